#include "schedule/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_problem.h"
#include "schedule/golden.h"

namespace slipstream {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::Pointwise;

// Worked out by hand from the tables of golden_test.cc. Tiles of 4, 3 and 1 rows compute 8 each.
// Tokens: 2, 3, 0 in the first tile, 4 and 1 in the second. Jobs: token 3 is ready after tile 0;
// 4, 0, 1 after tile 1; 2 after tile 2. Chunk 0 is the first third of the GEMM.
TEST(Statistics, SmallExample) {
  const ScheduleShape shape{.num_ranks = 2,
                            .rank = 1,
                            .num_experts = 3,
                            .topk = 2,
                            .tile_max_rows = 8,
                            .chunks = {.num_chunks = 2, .begin = {0, 64, 192}}};
  const std::vector<std::int32_t> tokens_per_rank = {2, 3};
  const std::vector<std::int32_t> ids = {0, 1, 1, -1, 2, 0, 0, 0, 5, 1};
  const ScheduleStatistics s =
      schedule_statistics(build_golden(shape, tokens_per_rank, ids).view());
  EXPECT_EQ(s.num_tiles, 3);
  EXPECT_EQ(s.num_real_rows, 8);
  EXPECT_EQ(s.num_computed_rows, 24);
  EXPECT_DOUBLE_EQ(s.padding_tax, 2.0 / 3);
  EXPECT_DOUBLE_EQ(s.min_expert_rows, 1);
  EXPECT_DOUBLE_EQ(s.mean_expert_rows, 8.0 / 3);
  EXPECT_DOUBLE_EQ(s.max_expert_rows, 4);
  EXPECT_DOUBLE_EQ(s.stddev_expert_rows, std::sqrt((16.0 + 1 + 25) / 27));
  EXPECT_THAT(s.tokens_needed.share,
              Pointwise(DoubleEq(), {0.6, 0.6, 0.6, 1., 1., 1., 1., 1., 1., 1.}));
  EXPECT_DOUBLE_EQ(s.tokens_needed.half_after, 0);
  // Ready at 1/9, 2/9 three times, 1/3; 5/9, 7/9 three times, 1.
  EXPECT_THAT(s.jobs_ready.share,
              Pointwise(DoubleEq(), {0., 0.1, 0.4, 0.5, 0.5, 0.6, 0.6, 0.9, 0.9, 1.}));
  // The fifth of ten jobs comes with tile 2 of chunk 0, which begins at 2/9.
  EXPECT_DOUBLE_EQ(s.jobs_ready.half_after, 2.0 / 9);
}

ScheduleStatistics seed_shape(TilePolicy policy, std::string_view distribution,
                              std::int32_t num_chunks, std::uint64_t seed) {
  const ScheduleShape shape{.num_ranks = 4,
                            .rank = 0,
                            .num_experts = 64,
                            .topk = 8,
                            .tile_policy = policy,
                            .chunks = even_chunks(4096, num_chunks)};
  const std::vector<std::int32_t> tokens_per_rank(4, 512);
  const Routing routing =
      generate_routing(parse_routing_distribution(distribution).value(), 2048, 64, 8, seed).value();
  return schedule_statistics(build_golden(shape, tokens_per_rank, routing.topk_ids).view());
}

// Chance that all 8 experts of a token are among the first m of 64.
double all_among_first(int m) {
  double chance = 1;
  for (int k = 0; k < 8; ++k) chance *= (m - k) / (64.0 - k);
  return chance;
}

// The figures that shaped the design: 4 ranks of 512 tokens, 8 of 64 experts, uniform.
TEST(Statistics, SeedShapeUniform) {
  double fixed_tax = 0;
  double fixed_half = 0;
  double half = 0;
  constexpr int kSeeds = 20;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const ScheduleStatistics fixed = seed_shape(TilePolicy::kFixed128, "uniform", 1, seed);
    EXPECT_EQ(fixed.num_real_rows, 16384);
    fixed_tax += fixed.padding_tax / kSeeds;
    fixed_half += fixed.jobs_ready.half_after / kSeeds;
    const ScheduleStatistics s = seed_shape(TilePolicy::kBalanced, "uniform", 1, seed);
    half += s.jobs_ready.half_after / kSeeds;
    EXPECT_LT(s.padding_tax, 0.02);
    EXPECT_NEAR(s.tokens_needed.half_after, 0.08, 0.02);  // 8% of the GEMM needs half of them
    // At 30% of the GEMM 20 experts have begun, at 90% 57 are finished, give or take one.
    EXPECT_GE(s.tokens_needed.share[2], 1 - all_among_first(64 - 19) - 0.02);
    EXPECT_LE(s.tokens_needed.share[2], 1 - all_among_first(64 - 21) + 0.02);
    EXPECT_GE(s.jobs_ready.share[8], all_among_first(56) - 0.03);
    EXPECT_LE(s.jobs_ready.share[8], all_among_first(58) + 0.03);
    EXPECT_DOUBLE_EQ(s.tokens_needed.share[9], 1);
    EXPECT_DOUBLE_EQ(s.jobs_ready.share[9], 1);
  }
  EXPECT_NEAR(fixed_tax, 0.19, 0.01);
  EXPECT_NEAR(fixed_half, 0.91, 0.01);
  EXPECT_NEAR(half, 0.91, 0.01);
  // Eight chunks: half of all jobs are those of the first four.
  EXPECT_NEAR(seed_shape(TilePolicy::kBalanced, "uniform", 8, 1).jobs_ready.half_after, 0.5, 0.01);
}

TEST(Statistics, BalancedRoutingHidesTheCollapse) {
  const ScheduleStatistics s = seed_shape(TilePolicy::kFixed128, "balanced", 1, 1);
  EXPECT_DOUBLE_EQ(s.padding_tax, 0);
  EXPECT_DOUBLE_EQ(s.stddev_expert_rows, 0);
  EXPECT_NEAR(s.jobs_ready.half_after, 0.5, 0.02);
}

TEST(Statistics, NothingToDoKeepsNobodyWaiting) {
  const ScheduleShape shape{.num_ranks = 2, .num_experts = 4, .chunks = even_chunks(64, 1)};
  for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{}, {-1, -1}}) {
    const std::vector<std::int32_t> tokens_per_rank = {static_cast<std::int32_t>(ids.size()), 0};
    const ScheduleStatistics s =
        schedule_statistics(build_golden(shape, tokens_per_rank, ids).view());
    EXPECT_EQ(s.num_tiles, 0);
    EXPECT_EQ(s.padding_tax, 0);
    EXPECT_EQ(s.max_expert_rows, 0);
    EXPECT_THAT(s.tokens_needed.share, Each(1));
    EXPECT_THAT(s.jobs_ready.share, Each(1));
    EXPECT_EQ(s.jobs_ready.half_after, 0);
  }
}

// Against counting event by event over the spelled-out orders.
TEST(Statistics, CurvesEqualCountingOverTheOrders) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const ScheduleProblem problem = random_problem(seed);
    const Schedule s = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
    if (s.counts.num_pull_tokens == 0) continue;
    std::vector<std::int64_t> ready_at(s.slots.size() * problem.shape.chunks.num_chunks, 0);
    std::vector<std::int64_t> finished;  // work done after each visit
    std::int64_t work = 0;
    for (const TileVisit& visit : golden_tile_order(s)) {
      const TokenTile& tile = s.token_tile[visit.tile];
      const std::int64_t rows = (tile.num_rows + s.slack[visit.tile] + 7) / 8 * 8;
      work += rows * problem.shape.chunks.width(visit.chunk);
      for (std::int32_t row = tile.row_begin; row < tile.row_begin + tile.num_rows; ++row)
        ready_at[visit.chunk * s.slots.size() + s.row_source[row]] = work;
    }
    std::array<std::int64_t, 10> ready{};
    std::int64_t num_jobs = 0;
    for (const JobVisit& visit : golden_job_order(s)) {
      if (visit.token < 0) continue;
      ++num_jobs;
      std::int64_t moment = 0;
      for (std::int32_t k = 0; k < problem.shape.topk; ++k)
        moment = std::max(
            moment, ready_at[visit.chunk * s.slots.size() + visit.token * problem.shape.topk + k]);
      for (std::int64_t point = 1; point <= 10; ++point)
        ready[point - 1] += moment * 10 <= work * point ? 1 : 0;
    }
    const ScheduleStatistics statistics = schedule_statistics(s.view());
    for (int i = 0; i < 10; ++i)
      EXPECT_DOUBLE_EQ(statistics.jobs_ready.share[i], static_cast<double>(ready[i]) / num_jobs)
          << problem << " at " << i;
  }
}

}  // namespace
}  // namespace slipstream
