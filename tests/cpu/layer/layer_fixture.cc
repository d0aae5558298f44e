#include "layer_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "core/numeric.h"
#include "layer/impl.h"
#include "reference/reference_layer.h"
#include "reference/relative_error.h"

namespace slipstream::testing {

namespace {

constexpr std::byte kGuard{0x5a};
constexpr std::int64_t kGuardElements = 16;

std::vector<float> normal_values(std::int64_t count, float deviation, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

}  // namespace

GuardedTensor::GuardedTensor(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap)
    : dtype_(dtype), rows_(rows), cols_(cols), row_stride_(cols + gap), begin_(kGuardElements) {
  const std::int64_t elements = rows * row_stride_ + 2 * kGuardElements;
  memory_.assign(static_cast<std::size_t>(elements * dtype_bytes(dtype)), kGuard);
  poison();
}

TensorView GuardedTensor::view() const {
  if (rows_ == 0) return TensorView{};
  TensorView view = dense_view(memory_.data() + begin_ * dtype_bytes(dtype_), dtype_, rows_, cols_);
  view.row_stride = row_stride_;
  return view;
}

void GuardedTensor::set(const std::vector<float>& values) {
  for (std::int64_t row = 0; row < rows_; ++row) {
    from_float(values.data() + row * cols_, dtype_, cols_,
               memory_.data() + (begin_ + row * row_stride_) * dtype_bytes(dtype_));
  }
}

std::vector<float> GuardedTensor::values() const {
  std::vector<float> values(static_cast<std::size_t>(rows_ * cols_));
  for (std::int64_t row = 0; row < rows_; ++row) {
    to_float(memory_.data() + (begin_ + row * row_stride_) * dtype_bytes(dtype_), dtype_, cols_,
             values.data() + row * cols_);
  }
  return values;
}

void GuardedTensor::poison() {
  set(std::vector<float>(static_cast<std::size_t>(rows_ * cols_), std::nanf("")));
}

bool GuardedTensor::is_guard(std::int64_t element) const {
  const std::int64_t offset = element - begin_;
  return offset < 0 || offset >= rows_ * row_stride_ || offset % row_stride_ >= cols_;
}

bool GuardedTensor::guards_are_intact() const {
  const std::int64_t bytes = dtype_bytes(dtype_);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(memory_.size()); ++i)
    if (is_guard(i / bytes) && memory_[static_cast<std::size_t>(i)] != kGuard) return false;
  return true;
}

std::vector<std::byte> GuardedTensor::bits() const {
  std::vector<std::byte> bits;
  const std::int64_t row_bytes = cols_ * dtype_bytes(dtype_);
  for (std::int64_t row = 0; row < rows_; ++row) {
    const std::byte* begin = memory_.data() + (begin_ + row * row_stride_) * dtype_bytes(dtype_);
    bits.insert(bits.end(), begin, begin + row_bytes);
  }
  return bits;
}

Weights RankWeights::view() const {
  if (is_fused) return {.gate_up = gate_up.view(), .down = down.view()};
  return {.gate = gate.view(), .up = up.view(), .down = down.view()};
}

std::vector<RankWeights> random_weights(const Problem& problem, std::uint32_t seed, WeightForm form,
                                        std::int64_t row_gap) {
  const std::int64_t experts = problem.num_experts;
  const std::int64_t hidden = problem.hidden;
  const std::int64_t width = problem.intermediate_per_rank();
  std::vector<RankWeights> weights;
  for (int rank = 0; rank < problem.num_ranks; ++rank) {
    const auto seed_of = [&](int which) { return seed * 1000003U + rank * 31U + which; };
    const auto in = 1.0F / std::sqrt(static_cast<float>(hidden));
    const auto out = 1.0F / std::sqrt(static_cast<float>(problem.intermediate));
    const auto gate = normal_values(experts * width * hidden, 2.0F * in, seed_of(0));
    const auto up = normal_values(experts * width * hidden, in, seed_of(1));
    RankWeights rank_weights;
    rank_weights.is_fused = form == WeightForm::kFused;
    if (rank_weights.is_fused) {
      std::vector<float> joined;
      for (std::int64_t e = 0; e < experts; ++e) {
        for (const auto* part : {&gate, &up}) {
          const auto begin = part->begin() + e * width * hidden;
          joined.insert(joined.end(), begin, begin + width * hidden);
        }
      }
      rank_weights.gate_up = GuardedTensor(problem.dtype, experts * 2 * width, hidden, row_gap);
      rank_weights.gate_up.set(joined);
    } else {
      rank_weights.gate = GuardedTensor(problem.dtype, experts * width, hidden, row_gap);
      rank_weights.gate.set(gate);
      rank_weights.up = GuardedTensor(problem.dtype, experts * width, hidden, row_gap);
      rank_weights.up.set(up);
    }
    rank_weights.down = GuardedTensor(problem.dtype, experts * hidden, width, row_gap);
    rank_weights.down.set(normal_values(experts * hidden * width, out, seed_of(2)));
    weights.push_back(std::move(rank_weights));
  }
  return weights;
}

std::vector<std::int32_t> uniform_ids(const Problem& problem, std::int32_t num_tokens,
                                      std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> experts(static_cast<std::size_t>(problem.num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  std::vector<std::int32_t> ids;
  for (std::int32_t t = 0; t < num_tokens; ++t) {
    for (std::int32_t k = 0; k < problem.topk; ++k) {
      const auto first = static_cast<std::size_t>(k % problem.num_experts);
      std::uniform_int_distribution<std::size_t> pick(first, experts.size() - 1);
      std::swap(experts[first], experts[pick(generator)]);
      ids.push_back(experts[first]);
    }
  }
  return ids;
}

std::vector<RankData> random_inputs(const Problem& problem, const std::vector<std::int32_t>& tokens,
                                    std::uint32_t seed, const MakeIds& make_ids,
                                    std::int64_t row_gap) {
  std::vector<RankData> inputs;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    const auto seed_of = [&](std::uint32_t which) {
      return seed * 7919U + static_cast<std::uint32_t>(rank) * 101U + which;
    };
    RankData data;
    data.num_tokens = tokens[rank];
    data.topk = problem.topk;
    data.tokens = GuardedTensor(problem.dtype, data.num_tokens, problem.hidden, row_gap);
    data.tokens.set(
        normal_values(std::int64_t{data.num_tokens} * problem.hidden, 1.0F, seed_of(0)));
    data.topk_ids = make_ids(problem, data.num_tokens, seed_of(1));
    data.topk_weights =
        normal_values(std::int64_t{data.num_tokens} * problem.topk, 1.0F, seed_of(2));
    inputs.push_back(std::move(data));
  }
  return inputs;
}

std::vector<Status> on_all_ranks(int num_ranks, const std::function<Status(int)>& body) {
  std::vector<Status> statuses(static_cast<std::size_t>(num_ranks));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank] { statuses[static_cast<std::size_t>(rank)] = body(rank); });
  }
  for (std::thread& rank : ranks) rank.join();
  return statuses;
}

namespace {

// One object a rank, made on all ranks at once; empty when one fails.
template <class T>
std::vector<T> create_on_all_ranks(int num_ranks, const std::function<Result<T>(int)>& create) {
  std::vector<std::optional<T>> created(static_cast<std::size_t>(num_ranks));
  const auto statuses = on_all_ranks(num_ranks, [&](int rank) {
    Result<T> result = create(rank);
    if (result.is_ok()) created[static_cast<std::size_t>(rank)] = std::move(result).value();
    return result.status();
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.is_ok()) << status.message();
    if (!status.is_ok()) return {};
  }
  std::vector<T> all;
  for (auto& one : created) all.push_back(std::move(*one));
  return all;
}

}  // namespace

LayerGroup::LayerGroup(const Problem& problem, const std::vector<RankWeights>& weights,
                       const LayerOptions& options)
    : LayerGroup(problem, weights, [&](int) { return options; }) {}

LayerGroup::LayerGroup(const Problem& problem, const std::vector<RankWeights>& weights,
                       const OptionsOf& options_of)
    : group(RankGroup::in_process(problem.num_ranks).value()) {
  workspaces = create_on_all_ranks<Workspace>(
      problem.num_ranks, [&](int rank) { return Workspace::create(problem, group, rank); });
  if (!workspaces.empty()) layers = add_layers(problem, weights, options_of);
}

std::vector<Layer> LayerGroup::add_layers(const Problem& problem,
                                          const std::vector<RankWeights>& weights,
                                          const OptionsOf& options_of) const {
  return create_on_all_ranks<Layer>(problem.num_ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    LayerOptions options = options_of(rank);
    options.workspace = workspaces[r];
    return Layer::create(problem, group, rank, weights[r].view(), options);
  });
}

void LayerGroup::poison() const {
  constexpr int kNaN = 0xff;  // a NaN of every dtype when all bytes are it
  for (const Workspace& workspace : workspaces) {
    const host::HostRank& rank = *workspace.impl()->host;
    std::memset(rank.local.get(), kNaN, static_cast<std::size_t>(rank.local_size_bytes));
    const Region region = rank.peers.own();
    const RegionShape& shape = rank.peers.shape;
    std::memset(region.tokens, kNaN,
                static_cast<std::size_t>(shape.max_tokens * shape.token_row_bytes));
    std::memset(region.staging, kNaN,
                static_cast<std::size_t>(shape.num_ranks * shape.plane_bytes()));
  }
}

std::vector<std::byte> CallResult::bits() const {
  std::vector<std::byte> all;
  for (const GuardedTensor& out : outs) {
    const auto bits = out.bits();
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

CallResult run_call(std::vector<Layer>& layers, const std::vector<RankData>& inputs) {
  CallResult result;
  std::vector<LayerInput> views;
  std::vector<TensorView> outs;
  for (std::size_t rank = 0; rank < layers.size(); ++rank) {
    const Problem& problem = layers[rank].problem();
    result.outs.emplace_back(problem.dtype, inputs[rank].num_tokens, problem.hidden, 5);
    views.push_back(inputs[rank].input());
  }
  for (const GuardedTensor& out : result.outs) outs.push_back(out.view());
  result.status = run_all_ranks(layers, views, outs);
  for (const Layer& layer : layers) result.statuses.push_back(layer.status());
  for (const GuardedTensor& out : result.outs) EXPECT_TRUE(out.guards_are_intact());
  for (const RankData& data : inputs) EXPECT_TRUE(data.tokens.guards_are_intact());
  return result;
}

Reference reference_of(const Problem& problem, const std::vector<RankData>& inputs,
                       const std::vector<RankWeights>& weights) {
  std::vector<LayerInput> views;
  std::vector<Weights> weight_views;
  for (const RankData& data : inputs) views.push_back(data.input());
  for (const RankWeights& rank_weights : weights) weight_views.push_back(rank_weights.view());
  return reference_layer<double>(problem, views, weight_views);
}

double error_of(const CallResult& result, const Reference& reference) {
  double worst = 0;
  for (std::size_t rank = 0; rank < reference.size(); ++rank)
    worst = std::max(worst, relative_error(result.outs[rank].view(), reference[rank]));
  return worst;
}

double error_of(const Problem& problem, const CallResult& result,
                const std::vector<RankData>& inputs, const std::vector<RankWeights>& weights) {
  return error_of(result, reference_of(problem, inputs, weights));
}

double tolerance(DType dtype, DType partial_dtype) {
  const double of_partial = partial_dtype == DType::kBF16 ? 6e-3 : 0;
  switch (dtype) {
    case DType::kFP32: return std::max(1e-6, of_partial);
    case DType::kFP16: return std::max(5e-4, of_partial);
    case DType::kBF16: return std::max(4e-3, of_partial);
  }
  return 0;
}

Problem small_problem(int num_ranks) {
  return {.num_ranks = num_ranks,
          .num_experts = 4,
          .hidden = 40,
          .intermediate = 24 * num_ranks,
          .topk = 2,
          .max_tokens = 40,
          .dtype = DType::kFP32};
}

}  // namespace slipstream::testing
