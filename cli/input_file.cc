// Names and shapes of an --input file. The values are input_values.cc's.
#include "input_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "options.h"
#include "slipstream/config.h"

namespace slipstream::cli {

namespace {

constexpr const char* kNames[] = {"hidden_states", "tokens_per_rank", "topk_ids", "topk_weights",
                                  "w_gate_up",     "w_gate",          "w_up",     "w_down"};
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxWidth = 1 << 20;

std::optional<DType> layer_dtype(StoredType type) {
  switch (type) {
    case StoredType::kBF16: return DType::kBF16;
    case StoredType::kF16: return DType::kFP16;
    case StoredType::kF32: return DType::kFP32;
    default: return std::nullopt;
  }
}

// The checks of one file, in the order of a token's way. Each fills in what it has checked.
class Checker {
 public:
  explicit Checker(InputFile* input) : input_(*input) {}

  Status run() {
    for (const auto check : {&Checker::tokens, &Checker::routing, &Checker::down,
                             &Checker::gate_and_up, &Checker::tokens_per_rank}) {
      if (Status status = (this->*check)(); !status.is_ok()) return status;
    }
    return Status::ok();
  }

 private:
  Status error(const std::string& what, std::string observed, std::string expected,
               std::string hint) const {
    return input_error(input_.file.path(), what, std::move(observed), std::move(expected),
                       std::move(hint));
  }

  Status find(const char* name, const StoredTensor** tensor) const {
    *tensor = input_.file.find(name);
    if (*tensor != nullptr) return Status::ok();
    return error(fmt::format("tensor {}", name), "missing", "it in the file",
                 did_you_mean(name, input_.ignored, "docs/input_format.md lists the names"));
  }

  Status find_floats(const char* name, const StoredTensor** tensor) const {
    if (Status status = find(name, tensor); !status.is_ok()) return status;
    if (layer_dtype((*tensor)->type)) return Status::ok();
    return error(fmt::format("dtype of {}", name), std::string(to_string((*tensor)->type)),
                 "BF16, F16 or F32", "convert the tensor");
  }

  Status find_integers(const char* name, const StoredTensor** tensor) const {
    if (Status status = find(name, tensor); !status.is_ok()) return status;
    if ((*tensor)->type == StoredType::kI32 || (*tensor)->type == StoredType::kI64)
      return Status::ok();
    return error(fmt::format("dtype of {}", name), std::string(to_string((*tensor)->type)),
                 "I32 or I64", "convert the tensor");
  }

  Status wrong_shape(const StoredTensor& tensor, std::string expected, std::string hint) const {
    return error("shape of " + tensor.name, shape_to_string(tensor.shape), std::move(expected),
                 std::move(hint));
  }

  Status tokens() {
    if (Status s = find_floats("hidden_states", &input_.hidden_states); !s.is_ok()) return s;
    const std::vector<std::int64_t>& shape = input_.hidden_states->shape;
    if (shape.size() != 2 || shape[0] > kMaxInt32 || shape[1] < 1 || shape[1] > kMaxWidth) {
      return wrong_shape(*input_.hidden_states, fmt::format("[T, H] with H in 1..{}", kMaxWidth),
                         "rows are tokens");
    }
    input_.num_tokens = static_cast<std::int32_t>(shape[0]);
    input_.hidden = static_cast<std::int32_t>(shape[1]);
    input_.dtype = *layer_dtype(input_.hidden_states->type);
    return Status::ok();
  }

  Status routing() {
    if (Status s = find_integers("topk_ids", &input_.topk_ids); !s.is_ok()) return s;
    if (Status s = find_floats("topk_weights", &input_.topk_weights); !s.is_ok()) return s;
    const std::vector<std::int64_t>& shape = input_.topk_ids->shape;
    if (shape.size() != 2 || shape[0] != input_.num_tokens || shape[1] < 1 || shape[1] > kMaxTopk) {
      return wrong_shape(*input_.topk_ids,
                         fmt::format("[{}, K] with K in 1..{}", input_.num_tokens, kMaxTopk),
                         "it has a row for every token of hidden_states");
    }
    if (input_.topk_weights->shape != shape) {
      return wrong_shape(*input_.topk_weights, shape_to_string(shape),
                         "it has a weight for every id of topk_ids");
    }
    input_.topk = static_cast<std::int32_t>(shape[1]);
    return Status::ok();
  }

  Status down() {
    if (Status s = find_floats("w_down", &input_.w_down); !s.is_ok()) return s;
    const std::vector<std::int64_t>& shape = input_.w_down->shape;
    if (shape.size() != 3 || shape[0] < 1 || shape[0] > kMaxExperts || shape[1] != input_.hidden ||
        shape[2] < 1 || shape[2] > kMaxWidth) {
      return wrong_shape(*input_.w_down,
                         fmt::format("[E, {}, I] with E in 1..{} and I in 1..{}", input_.hidden,
                                     kMaxExperts, kMaxWidth),
                         "its rows are the columns of hidden_states");
    }
    input_.num_experts = static_cast<std::int32_t>(shape[0]);
    input_.intermediate = static_cast<std::int32_t>(shape[2]);
    return Status::ok();
  }

  Status gate_and_up() {
    const bool is_fused = input_.file.find("w_gate_up") != nullptr;
    const bool is_apart =
        input_.file.find("w_gate") != nullptr || input_.file.find("w_up") != nullptr;
    if (is_fused && is_apart) {
      return error("gate and up", "there fused and apart", "w_gate_up, or w_gate and w_up",
                   "leave one of them out");
    }
    if (!is_apart) return weight_rows("w_gate_up", 2, &input_.w_gate_up);
    if (Status s = weight_rows("w_gate", 1, &input_.w_gate); !s.is_ok()) return s;
    return weight_rows("w_up", 1, &input_.w_up);
  }

  Status weight_rows(const char* name, std::int64_t times, const StoredTensor** tensor) {
    if (Status s = find_floats(name, tensor); !s.is_ok()) return s;
    const std::vector<std::int64_t> expected = {input_.num_experts, times * input_.intermediate,
                                                input_.hidden};
    if ((*tensor)->shape == expected) return Status::ok();
    return wrong_shape(
        **tensor, shape_to_string(expected),
        fmt::format("w_down {} says E, H and I", shape_to_string(input_.w_down->shape)));
  }

  Status tokens_per_rank() {
    if (input_.file.find("tokens_per_rank") == nullptr) return Status::ok();
    const StoredTensor* tensor = nullptr;
    if (Status s = find_integers("tokens_per_rank", &tensor); !s.is_ok()) return s;
    if (tensor->shape.size() != 1 || tensor->shape[0] < 1 || tensor->shape[0] > kMaxRanks) {
      return wrong_shape(*tensor, fmt::format("[W] with W in 1..{}", kMaxRanks),
                         "it has a number for every rank");
    }
    std::vector<std::int64_t> counts(static_cast<std::size_t>(tensor->shape[0]));
    if (Status s = read_integers(*tensor, 0, tensor->num_elements, counts.data()); !s.is_ok())
      return s;
    std::int64_t left = input_.num_tokens;
    bool is_good = true;
    for (std::int64_t count : counts) {
      is_good = is_good && count >= 0 && count <= left;
      if (is_good) left -= count;
    }
    if (!is_good || left != 0) {
      return error("tokens_per_rank", shape_to_string(counts),
                   fmt::format("counts with the sum {}", input_.num_tokens),
                   "they share out the rows of hidden_states");
    }
    input_.tokens_per_rank.emplace(counts.begin(), counts.end());
    return Status::ok();
  }

  InputFile& input_;
};

}  // namespace

Status input_error(const std::string& path, const std::string& what, std::string observed,
                   std::string expected, std::string hint) {
  return Status(StatusCode::kFileError, Subsystem::kCli,
                {.what = fmt::format("'{}': {}", path, what),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = std::move(hint)});
}

Result<InputFile> open_input_file(const std::string& path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file.is_ok()) return file.status();
  InputFile input;
  input.file = std::move(file).value();
  for (const StoredTensor& tensor : input.file.tensors()) {
    if (std::find(std::begin(kNames), std::end(kNames), tensor.name) == std::end(kNames))
      input.ignored.push_back(tensor.name);
  }
  if (Status status = Checker(&input).run(); !status.is_ok()) return status;
  return input;
}

}  // namespace slipstream::cli
