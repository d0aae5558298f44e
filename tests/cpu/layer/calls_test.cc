// Sequences of calls: errors that every rank sees alike and that the next good call forgets, layers
// that share a workspace, inputs in place, token counts that shrink and grow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "layer_fixture.h"
#include "slipstream/layer.h"

namespace slipstream::testing {
namespace {

using ::testing::HasSubstr;

// Both drives go through the same calls.
class Calls : public ::testing::TestWithParam<HostDrive> {
 protected:
  LayerOptions options(int layer_tag = 0) const {
    LayerOptions options;
    options.host_drive = GetParam();
    options.layer_tag = layer_tag;
    return options;
  }

  void expect_good_call(const Problem& problem, std::vector<Layer>& layers,
                        const std::vector<RankWeights>& weights,
                        const std::vector<std::int32_t>& tokens, std::uint32_t seed) const {
    const auto inputs = random_inputs(problem, tokens, seed);
    const CallResult result = run_call(layers, inputs);
    ASSERT_TRUE(result.status.is_ok()) << result.status.message();
    EXPECT_LE(error_of(problem, result, inputs, weights), tolerance(problem.dtype));
  }
};

// `out` of a call error is as it was: NaN.
void expect_untouched(const CallResult& result) {
  for (const GuardedTensor& out : result.outs)
    for (const float value : out.values()) ASSERT_TRUE(std::isnan(value));
}

TEST_P(Calls, InvalidIdsAreAnErrorOfThatCallOnEveryRank) {
  const Problem problem = small_problem(3);
  const auto weights = random_weights(problem, 5);
  LayerGroup group(problem, weights, options());
  for (const std::int32_t bad : {problem.num_experts, -2, 1 << 30}) {
    auto inputs = random_inputs(problem, {4, 5, 6}, 6);
    inputs[1].topk_ids[3] = bad;  // token 1, k 1
    inputs[2].topk_ids[0] = bad;
    const CallResult result = run_call(group.layers, inputs);
    for (const Status& status : result.statuses) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidRouting);
      EXPECT_TRUE(status.is_call_error());
      EXPECT_THAT(status.message(), HasSubstr("topk_ids[1][1] of rank 1 is " + std::to_string(bad) +
                                              ", expected 0..3 or -1 (rank 1); 2 ids are invalid"));
    }
    expect_untouched(result);
    expect_good_call(problem, group.layers, weights, {4, 5, 6}, 7);
  }
}

TEST_P(Calls, DifferentLayersAreAnErrorThatNamesBothTags) {
  const Problem problem = small_problem(3);
  const auto weights = random_weights(problem, 5);
  LayerGroup group(problem, weights, options(11));
  std::vector<Layer> second = group.add_layers(problem, weights, [&](int) { return options(12); });
  const auto inputs = random_inputs(problem, {4, 0, 6}, 6);
  // Rank 2 calls the second layer where the others call the first.
  std::swap(group.layers[2], second[2]);
  const CallResult result = run_call(group.layers, inputs);
  for (const Status& status : result.statuses) {
    EXPECT_EQ(status.code(), StatusCode::kSignatureMismatch);
    EXPECT_EQ(status.culprit_rank(), 2);
    EXPECT_THAT(status.message(), HasSubstr("layer_tag of rank 2 is 12, expected 11 as on rank 0"));
  }
  expect_untouched(result);
  std::swap(group.layers[2], second[2]);
  expect_good_call(problem, group.layers, weights, {4, 0, 6}, 7);
  expect_good_call(problem, second, weights, {1, 2, 3}, 8);
}

TEST_P(Calls, DifferentShapesAndTuningsAreErrors) {
  const Problem problem = small_problem(2);
  Problem other = problem;
  other.num_experts = 3;
  other.hidden = 20;
  other.topk = 1;
  const auto weights = random_weights(problem, 5);
  const auto other_weights = random_weights(other, 5);
  LayerGroup group(problem, weights, options());
  std::vector<Layer> smaller =
      group.add_layers(other, other_weights, [&](int) { return options(); });
  std::vector<Layer> chunked = group.add_layers(problem, weights, [&](int) {
    LayerOptions with_chunks = options();
    with_chunks.tuning = Tuning{};
    with_chunks.tuning->chunks = even_chunks(problem.hidden, 5, 8);
    return with_chunks;
  });

  const auto run_mixed = [&](std::vector<Layer>& layers) {
    const auto inputs = random_inputs(layers[1].problem(), {0, 6}, 6);
    std::vector<Layer> mixed;
    mixed.push_back(std::move(group.layers[0]));
    mixed.push_back(std::move(layers[1]));
    const CallResult result = run_call(mixed, inputs);
    group.layers[0] = std::move(mixed[0]);
    layers[1] = std::move(mixed[1]);
    EXPECT_EQ(result.statuses[0].code(), StatusCode::kSignatureMismatch);
    EXPECT_EQ(result.statuses[0].message(), result.statuses[1].message());
    return result.statuses[0].message();
  };
  EXPECT_THAT(run_mixed(smaller), HasSubstr("num_experts of rank 1 is 3, expected 4"));
  EXPECT_THAT(run_mixed(chunked), HasSubstr("num_chunks of rank 1 is 5, expected 1"));
  expect_good_call(problem, group.layers, weights, {9, 4}, 8);
  expect_good_call(other, smaller, other_weights, {9, 4}, 9);
  expect_good_call(problem, chunked, weights, {9, 4}, 10);
}

TEST_P(Calls, TuningsMayDifferPerRankWhereNothingCrossesTheWire) {
  const Problem problem = small_problem(2);
  const auto weights = random_weights(problem, 5);
  LayerGroup group(problem, weights, [&](int rank) {
    LayerOptions per_rank = options();
    per_rank.tuning = Tuning{};
    per_rank.tuning->chunks = even_chunks(problem.hidden, 2, 8);
    if (rank == 1) {
      per_rank.tuning->tile_policy = TilePolicy::kFixed128;
      per_rank.tuning->delivery = Delivery::kScatter;
      per_rank.tuning->row_order = RowOrder::kAscending;
      per_rank.tuning->num_segments = 2;
      per_rank.tuning->ring_chunks = 1;
      per_rank.threads_per_rank = 2;
    }
    return per_rank;
  });
  expect_good_call(problem, group.layers, weights, {9, 31}, 8);
}

TEST_P(Calls, TokensShrinkAndGrow) {
  const Problem problem = small_problem(2);
  const auto weights = random_weights(problem, 5);
  LayerGroup group(problem, weights, options());
  std::uint32_t seed = 100;
  for (const std::vector<std::int32_t>& tokens : std::vector<std::vector<std::int32_t>>{
           {40, 40}, {1, 0}, {0, 40}, {3, 3}, {0, 0}, {40, 1}, {17, 23}}) {
    SCOPED_TRACE(::testing::PrintToString(tokens));
    expect_good_call(problem, group.layers, weights, tokens, ++seed);
  }
}

TEST_P(Calls, InputsInPlaceAreNotCopied) {
  const Problem problem = small_problem(2);
  const auto weights = random_weights(problem, 5);
  LayerGroup group(problem, weights, options());
  const auto inputs = random_inputs(problem, {7, 12}, 6);
  const CallResult copied = run_call(group.layers, inputs);
  group.poison();

  std::vector<LayerInput> in_place;
  std::vector<GuardedTensor> outs;
  std::vector<TensorView> out_views;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    InputBuffers buffers = group.layers[rank].input_buffers();
    const RankData& data = inputs[rank];
    const auto bits = data.tokens.bits();
    std::memcpy(buffers.tokens.data, bits.data(), bits.size());
    std::copy(data.topk_ids.begin(), data.topk_ids.end(), buffers.topk_ids);
    std::copy(data.topk_weights.begin(), data.topk_weights.end(), buffers.topk_weights);
    buffers.tokens.rows = data.num_tokens;
    in_place.push_back(
        {buffers.tokens, {buffers.topk_ids, buffers.topk_weights, data.num_tokens, problem.topk}});
    outs.emplace_back(problem.dtype, data.num_tokens, problem.hidden, 0);
  }
  for (const GuardedTensor& out : outs) out_views.push_back(out.view());
  const Status status = run_all_ranks(group.layers, in_place, out_views);
  ASSERT_TRUE(status.is_ok()) << status.message();
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(outs[rank].bits(), copied.outs[rank].bits());
}

TEST_P(Calls, LayersOfDifferentShapesTakeTurnsOnOneWorkspace) {
  Problem limits = small_problem(3);
  limits.num_experts = 9;
  limits.topk = 4;
  Problem half = small_problem(3);
  half.dtype = DType::kBF16;
  half.hidden = 33;
  Problem tall = limits;
  tall.hidden = 16;
  const auto weights = random_weights(limits, 1);
  const auto half_weights = random_weights(half, 2);
  const auto tall_weights = random_weights(tall, 3);
  LayerGroup group(limits, weights, options(1));
  auto half_layers = group.add_layers(half, half_weights, [&](int) { return options(2); });
  auto tall_layers = group.add_layers(tall, tall_weights, [&](int) { return options(3); });
  for (std::uint32_t round = 0; round < 4; ++round) {
    expect_good_call(limits, group.layers, weights, {40, 2, 0}, 10 + round);
    expect_good_call(half, half_layers, half_weights, {1, 33, 40}, 20 + round);
    expect_good_call(tall, tall_layers, tall_weights, {5, 6, 7}, 30 + round);
  }
}

TEST_P(Calls, TimesAndStatusAreOfTheLastCall) {
  const Problem problem = small_problem(2);
  const auto weights = random_weights(problem, 5);
  LayerGroup group(problem, weights, options());
  expect_good_call(problem, group.layers, weights, {9, 31}, 8);
  for (const Layer& layer : group.layers) {
    const PhaseTimes& times = layer.phase_times();
    EXPECT_TRUE(layer.status().is_ok());
    EXPECT_GT(times.total, 0);
    for (const double phase :
         {times.publish_plan, times.gather_gate_up, times.down_reduce_push, times.final_reduce}) {
      EXPECT_GT(phase, 0);
      EXPECT_LE(phase, times.total);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drives, Calls,
                         ::testing::Values(HostDrive::kSequential, HostDrive::kThreads),
                         [](const auto& info) {
                           return info.param == HostDrive::kThreads ? "Threads" : "Sequential";
                         });

}  // namespace
}  // namespace slipstream::testing
