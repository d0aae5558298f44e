// The values of an --input file: checked, converted to the layer's dtype, cut into slices.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/numeric.h"
#include "input_file.h"
#include "slipstream/routing.h"

namespace slipstream::cli {

namespace {

constexpr float kFP16Overflow = 65520;  // the first value that rounds to infinity

// "w_down[3, 0, 17]"
std::string element_name(const StoredTensor& tensor, std::int64_t index) {
  std::vector<std::int64_t> place(tensor.shape.size());
  for (std::size_t d = tensor.shape.size(); d-- > 0; index /= tensor.shape[d])
    place[d] = index % tensor.shape[d];
  return tensor.name + shape_to_string(place);
}

// Reads stretches of a tensor and remembers the first value that the layer cannot take.
class Converter {
 public:
  Converter(const std::string& path, DType dtype) : path_(path), dtype_(dtype) {}

  // To the layer's dtype.
  void convert(const StoredTensor& tensor, std::int64_t begin, std::int64_t count,
               std::byte* target) {
    row_.resize(static_cast<std::size_t>(count));
    read(tensor, begin, count, row_.data());
    from_float(row_.data(), dtype_, count, target);
  }

  void read(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, float* target) {
    if (Status status = read_floats(tensor, begin, count, target); !status.is_ok()) {
      keep(std::move(status));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const bool overflows = dtype_ == DType::kFP16 && std::fabs(target[i]) >= kFP16Overflow;
      if (std::isfinite(target[i]) && !overflows) continue;
      const bool is_finite = std::isfinite(target[i]);
      keep(input_error(
          path_, element_name(tensor, begin + i), fmt::format("{}", target[i]),
          is_finite ? "a value that fp16 can hold" : "a finite value",
          is_finite ? "use --dtype bf16 or fp32" : "for a padded token write zeros and the id -1"));
      return;
    }
  }

  const Status& status() const { return status_; }

 private:
  void keep(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
  }

  const std::string& path_;
  DType dtype_;
  std::vector<float> row_;
  Status status_;
};

Status fill_ids(const InputFile& input, std::int64_t begin, RankData* rank) {
  std::vector<std::int64_t> ids(rank->topk_ids.size());
  const auto count = static_cast<std::int64_t>(ids.size());
  if (Status s = read_integers(*input.topk_ids, begin, count, ids.data()); !s.is_ok()) return s;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = ids[static_cast<std::size_t>(i)];
    if (id < -1 || id >= input.num_experts) {
      return input_error(input.file.path(), element_name(*input.topk_ids, begin + i),
                         fmt::format("{}", id), fmt::format("0..{} or -1", input.num_experts - 1),
                         "-1 is no expert; w_down says how many experts there are");
    }
    rank->topk_ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(id);
  }
  return Status::ok();
}

Status fill_tokens(const InputFile& input, LayerData* data) {
  const Problem& problem = data->problem();
  std::int64_t first_token = 0;
  for (int r = 0; r < data->num_ranks(); ++r) {
    RankData& rank = data->rank(r);
    const std::int64_t first_pair = first_token * problem.topk;
    if (Status status = fill_ids(input, first_pair, &rank); !status.is_ok()) return status;
    Converter converter(input.file.path(), problem.dtype);
    for (std::int64_t t = 0; t < rank.num_tokens; ++t) {
      converter.convert(*input.hidden_states, (first_token + t) * problem.hidden, problem.hidden,
                        rank.tokens.data() + t * problem.hidden * dtype_bytes(problem.dtype));
    }
    // The router's weights stay fp32 whatever the layer's dtype.
    Converter router(input.file.path(), DType::kFP32);
    router.read(*input.topk_weights, first_pair, std::ssize(rank.topk_weights),
                rank.topk_weights.data());
    if (!converter.status().is_ok()) return converter.status();
    if (!router.status().is_ok()) return router.status();
    first_token += rank.num_tokens;
  }
  return Status::ok();
}

// Rank r's rows of gate and up, columns of down.
Status fill_expert(const InputFile& input, std::int64_t expert, int r, LayerData* data) {
  const Problem& problem = data->problem();
  const std::int64_t hidden = problem.hidden;
  const std::int64_t full = problem.intermediate;
  const std::int64_t width = problem.intermediate_per_rank();
  const std::int64_t size = dtype_bytes(problem.dtype);
  const bool is_fused = input.w_gate_up != nullptr;
  const StoredTensor& gate = is_fused ? *input.w_gate_up : *input.w_gate;
  const StoredTensor& up = is_fused ? *input.w_gate_up : *input.w_up;
  const std::int64_t gate_row = expert * (is_fused ? 2 : 1) * full + r * width;
  const std::int64_t up_row = gate_row + (is_fused ? full : 0);

  Converter converter(input.file.path(), problem.dtype);
  std::byte* gate_up = data->rank(r).gate_up.data() + expert * 2 * width * hidden * size;
  for (std::int64_t i = 0; i < width; ++i) {
    converter.convert(gate, (gate_row + i) * hidden, hidden, gate_up + i * hidden * size);
    converter.convert(up, (up_row + i) * hidden, hidden, gate_up + (width + i) * hidden * size);
  }
  std::byte* down = data->rank(r).down.data() + expert * hidden * width * size;
  for (std::int64_t h = 0; h < hidden; ++h) {
    converter.convert(*input.w_down, (expert * hidden + h) * full + r * width, width,
                      down + h * width * size);
  }
  return converter.status();
}

}  // namespace

Status fill_from_file(const InputFile& input, LayerData* data) {
  if (Status status = fill_tokens(input, data); !status.is_ok()) return status;
  const std::int64_t num_slices = std::int64_t{input.num_experts} * data->num_ranks();
  std::vector<Status> results(static_cast<std::size_t>(num_slices));
  parallel_for(num_slices, [&](std::int64_t i) {
    results[static_cast<std::size_t>(i)] =
        fill_expert(input, i / data->num_ranks(), static_cast<int>(i % data->num_ranks()), data);
  });
  for (Status& status : results)
    if (!status.is_ok()) return std::move(status);
  return Status::ok();
}

}  // namespace slipstream::cli
