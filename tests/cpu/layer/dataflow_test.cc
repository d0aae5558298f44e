// The second anchor: the host layer with the real tables against the naive fp64 reference, over the
// shapes, routings and tunings that users bring. Every case also runs twice for the same bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "layer_fixture.h"
#include "schedule/routing_generator.h"
#include "slipstream/layer.h"

namespace slipstream::testing {
namespace {

struct Case {
  Problem problem;
  std::vector<std::int32_t> tokens;
  LayerOptions options;
  std::uint32_t seed = 1;
  MakeIds make_ids = uniform_ids;
  WeightForm form = WeightForm::kFused;
};

LayerOptions sequential(const Tuning& tuning) {
  LayerOptions options;
  options.tuning = tuning;
  options.host_drive = HostDrive::kSequential;
  return options;
}

struct CaseData {
  explicit CaseData(const Case& c)
      : weights(random_weights(c.problem, c.seed, c.form, /*row_gap=*/3)),
        inputs(random_inputs(c.problem, c.tokens, c.seed, c.make_ids, /*row_gap=*/7)),
        reference(reference_of(c.problem, inputs, weights)) {}

  std::vector<RankWeights> weights;
  std::vector<RankData> inputs;
  Reference reference;
};

// Returns the bits of the output.
std::vector<std::byte> expect_equals_reference(const Case& c, const CaseData& data) {
  SCOPED_TRACE("seed " + std::to_string(c.seed));
  LayerGroup group(c.problem, data.weights, c.options);
  if (group.layers.empty()) return {};
  group.poison();
  const CallResult first = run_call(group.layers, data.inputs);
  EXPECT_TRUE(first.status.is_ok()) << first.status.message();
  const DType partial_dtype = group.layers[0].tuning().partial_dtype;
  EXPECT_LE(error_of(first, data.reference), tolerance(c.problem.dtype, partial_dtype));
  group.poison();
  const CallResult second = run_call(group.layers, data.inputs);
  EXPECT_EQ(first.bits(), second.bits()) << "the second run gave other bits";
  return first.bits();
}

std::vector<std::byte> expect_equals_reference(const Case& c) {
  return expect_equals_reference(c, CaseData(c));
}

Case base_case(int num_ranks, std::vector<std::int32_t> tokens) {
  Case c;
  c.problem = small_problem(num_ranks);
  c.tokens = std::move(tokens);
  Tuning tuning;
  tuning.chunks = even_chunks(c.problem.hidden, 3, 8);
  c.options = sequential(tuning);
  return c;
}

TEST(Dataflow, EveryNumberOfRanks) {
  for (int num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    SCOPED_TRACE(num_ranks);
    std::vector<std::int32_t> tokens;
    for (int rank = 0; rank < num_ranks; ++rank) tokens.push_back(5 + 3 * rank);
    Case c = base_case(num_ranks, tokens);
    c.seed = static_cast<std::uint32_t>(10 + num_ranks);
    expect_equals_reference(c);
  }
}

TEST(Dataflow, UnevenZeroAndSingleTokens) {
  for (const std::vector<std::int32_t>& tokens : std::vector<std::vector<std::int32_t>>{
           {0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {0, 40, 0}, {40, 1, 7}, {1, 1, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(tokens));
    expect_equals_reference(base_case(3, tokens));
  }
}

TEST(Dataflow, EveryTopk) {
  for (const int topk : {1, 2, 3, 5, 6, 8, 10}) {
    SCOPED_TRACE(topk);
    Case c = base_case(2, {11, 6});
    c.problem.topk = topk;
    c.problem.num_experts = 12;
    c.seed = static_cast<std::uint32_t>(topk);
    expect_equals_reference(c);
  }
}

TEST(Dataflow, NumbersOfExperts) {
  for (const int num_experts : {1, 8, 60, 512, 1024}) {
    SCOPED_TRACE(num_experts);
    Case c = base_case(2, {30, 17});
    c.problem.num_experts = num_experts;
    c.problem.hidden = 8;
    c.problem.intermediate = 8;
    c.options.tuning->chunks = even_chunks(8, 2, 4);
    expect_equals_reference(c);
  }
}

TEST(Dataflow, OddWidths) {
  for (const int hidden : {1, 7, 96, 176}) {
    for (const int width : {1, 7, 176}) {
      SCOPED_TRACE(std::to_string(hidden) + " x " + std::to_string(width));
      Case c = base_case(2, {9, 14});
      c.problem.hidden = hidden;
      c.problem.intermediate = 2 * width;
      c.options.tuning->chunks = even_chunks(hidden, 3, 5);
      c.options.tuning->ring_chunks = 1;
      expect_equals_reference(c);
    }
  }
}

TEST(Dataflow, EveryTuning) {
  Case c = base_case(3, {40, 0, 33});
  c.problem.hidden = 70;
  c.problem.num_experts = 3;
  c.problem.topk = 3;
  c.problem.max_tokens = 200;
  c.tokens = {180, 0, 133};
  const ColumnChunks unequal{.num_chunks = 4, .begin = {0, 33, 34, 60, 70}};
  const CaseData data(c);
  int num_cases = 0;
  for (const TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128}) {
    for (const RowOrder order : {RowOrder::kLocalFirst, RowOrder::kAscending}) {
      for (const Delivery delivery : {Delivery::kGather, Delivery::kScatter}) {
        for (const int num_segments : {1, 3}) {
          for (const int ring : {1, 2, 4}) {
            Tuning tuning;
            tuning.tile_policy = policy;
            tuning.row_order = order;
            tuning.delivery = delivery;
            tuning.num_segments = num_segments;
            tuning.tile_max_rows = ring == 2 ? 40 : 288;
            tuning.chunks = unequal;
            tuning.ring_chunks = ring;
            c.options = sequential(tuning);
            SCOPED_TRACE(describe(tuning));
            expect_equals_reference(c, data);
            ++num_cases;
          }
        }
      }
    }
  }
  EXPECT_EQ(num_cases, 48);
}

TEST(Dataflow, EveryDistribution) {
  for (const char* text : {"balanced", "uniform", "zipf:1.2", "stddev:0.5", "one"}) {
    SCOPED_TRACE(text);
    const RoutingDistribution distribution = parse_routing_distribution(text).value();
    Case c = base_case(4, {64, 0, 33, 1});
    c.problem.max_tokens = 64;
    c.problem.num_experts = 16;
    c.make_ids = [&](const Problem& problem, std::int32_t num_tokens, std::uint32_t seed) {
      return generate_routing(distribution, num_tokens, problem.num_experts, problem.topk, seed)
          .value()
          .topk_ids;
    };
    expect_equals_reference(c);
  }
}

TEST(Dataflow, DTypes) {
  for (const DType dtype : {DType::kBF16, DType::kFP16, DType::kFP32}) {
    for (const DType partial_dtype : {DType::kFP32, DType::kBF16}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " partial " +
                   std::string(to_string(partial_dtype)));
      Case c = base_case(4, {19, 3, 0, 25});
      c.problem.dtype = dtype;
      c.options.tuning->partial_dtype = partial_dtype;
      expect_equals_reference(c);
    }
  }
}

TEST(Dataflow, WeightsFusedOrApartGiveTheSameBits) {
  Case c = base_case(2, {31, 12});
  const auto fused = expect_equals_reference(c);
  c.form = WeightForm::kApart;
  EXPECT_EQ(fused, expect_equals_reference(c));
}

TEST(Dataflow, SkippedAndDuplicateIds) {
  Case c = base_case(3, {24, 9, 31});
  c.problem.topk = 3;
  c.make_ids = [](const Problem& problem, std::int32_t num_tokens, std::uint32_t seed) {
    std::vector<std::int32_t> ids = uniform_ids(problem, num_tokens, seed);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i % 5 == 0) ids[i] = -1;                  // here and there
      if (i / 3 % 4 == 1) ids[i] = -1;              // whole tokens
      if (i / 3 % 4 == 2) ids[i] = ids[i / 3 * 3];  // the same expert K times
    }
    return ids;
  };
  expect_equals_reference(c);
}

TEST(Dataflow, NobodyRoutesAnything) {
  Case c = base_case(2, {3, 4});
  c.make_ids = [](const Problem& problem, std::int32_t num_tokens, std::uint32_t) {
    return std::vector<std::int32_t>(static_cast<std::size_t>(num_tokens * problem.topk), -1);
  };
  const auto bits = expect_equals_reference(c);
  EXPECT_EQ(bits, std::vector<std::byte>(bits.size(), std::byte{0})) << "rows without a job are +0";
}

TEST(Dataflow, LargeExpertOutputsDoNotOverflow) {
  // fp16 outputs of an expert beyond 65504, brought back by the weight: fp32 in between holds them.
  Case c = base_case(2, {8, 8});
  c.problem.dtype = DType::kFP16;
  const auto weights = random_weights(c.problem, 3);
  auto inputs = random_inputs(c.problem, c.tokens, 3);
  for (RankData& data : inputs) {
    std::vector<float> values = data.tokens.values();
    for (float& value : values) value *= 500.0F;
    data.tokens.set(values);
    for (float& weight : data.topk_weights) weight *= 1e-4F;
  }
  LayerGroup group(c.problem, weights, c.options);
  const CallResult result = run_call(group.layers, inputs);
  EXPECT_LE(error_of(c.problem, result, inputs, weights), tolerance(DType::kFP16));
}

}  // namespace
}  // namespace slipstream::testing
