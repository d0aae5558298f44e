// Random layers for tests: data of all ranks, layers on all ranks, outputs that show what was
// written and what was not. Everything follows from the seed, which failing tests print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slipstream/layer.h"

namespace slipstream::testing {

// A tensor in memory of its own: rows `row_stride` apart, guard elements before, between and behind
// them. Inputs have random rows; outputs begin as NaN everywhere.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap);

  TensorView view() const;
  // fp32 values, dense, rounded to the dtype.
  void set(const std::vector<float>& values);
  std::vector<float> values() const;
  void poison();  // rows become NaN
  bool guards_are_intact() const;
  // Bits of the rows, dense.
  std::vector<std::byte> bits() const;

 private:
  bool is_guard(std::int64_t element) const;

  DType dtype_ = DType::kFP32;
  std::int64_t rows_ = 0, cols_ = 0, row_stride_ = 0, begin_ = 0;
  mutable std::vector<std::byte> memory_;
};

struct RankData {
  GuardedTensor tokens;
  std::vector<std::int32_t> topk_ids;
  std::vector<float> topk_weights;
  std::int32_t num_tokens = 0;
  std::int32_t topk = 0;

  LayerInput input() const {
    return {tokens.view(), {topk_ids.data(), topk_weights.data(), num_tokens, topk}};
  }
};

struct RankWeights {
  GuardedTensor gate_up, gate, up, down;
  bool is_fused = true;

  Weights view() const;
};

enum class WeightForm { kFused, kApart };

// The same values in both forms.
std::vector<RankWeights> random_weights(const Problem& problem, std::uint32_t seed,
                                        WeightForm form = WeightForm::kFused,
                                        std::int64_t row_gap = 0);

// Fills ids of `num_tokens` tokens; returns [num_tokens, topk].
using MakeIds = std::function<std::vector<std::int32_t>(const Problem&, std::int32_t num_tokens,
                                                        std::uint32_t seed)>;
// K distinct experts a token (as far as E allows), each equally likely.
std::vector<std::int32_t> uniform_ids(const Problem& problem, std::int32_t num_tokens,
                                      std::uint32_t seed);

std::vector<RankData> random_inputs(const Problem& problem, const std::vector<std::int32_t>& tokens,
                                    std::uint32_t seed, const MakeIds& make_ids = uniform_ids,
                                    std::int64_t row_gap = 0);

// Calls body(rank) on a thread for each rank; returns the statuses.
std::vector<Status> on_all_ranks(int num_ranks, const std::function<Status(int)>& body);

// A group, a workspace for each rank, and layers on them. Fails the test (and leaves the vectors
// empty) when a creation fails.
struct LayerGroup {
  using OptionsOf = std::function<LayerOptions(int rank)>;

  LayerGroup(const Problem& problem, const std::vector<RankWeights>& weights,
             const LayerOptions& options);
  LayerGroup(const Problem& problem, const std::vector<RankWeights>& weights,
             const OptionsOf& options_of);

  // Another layer on every rank, on the same workspaces.
  std::vector<Layer> add_layers(const Problem& problem, const std::vector<RankWeights>& weights,
                                const OptionsOf& options_of) const;

  // Whatever a call does not write itself becomes NaN: local buffers, staging, tokens.
  void poison() const;

  RankGroup group;
  std::vector<Workspace> workspaces;
  std::vector<Layer> layers;
};

// Outputs of one call on all ranks.
struct CallResult {
  Status status;                 // of run_all_ranks
  std::vector<Status> statuses;  // of each rank
  std::vector<GuardedTensor> outs;

  std::vector<std::byte> bits() const;  // all ranks' behind each other
};

CallResult run_call(std::vector<Layer>& layers, const std::vector<RankData>& inputs);

// out [T_r, H] of each rank, in fp64.
using Reference = std::vector<std::vector<double>>;
Reference reference_of(const Problem& problem, const std::vector<RankData>& inputs,
                       const std::vector<RankWeights>& weights);

// Largest relative error of any rank with tokens.
double error_of(const CallResult& result, const Reference& reference);
double error_of(const Problem& problem, const CallResult& result,
                const std::vector<RankData>& inputs, const std::vector<RankWeights>& weights);

// What rounding of inputs' dtype, partial sums and output may amount to.
double tolerance(DType dtype, DType partial_dtype = DType::kFP32);

Problem small_problem(int num_ranks);

}  // namespace slipstream::testing
