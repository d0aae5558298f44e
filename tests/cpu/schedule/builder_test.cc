// The builder's phases against the golden tables, element for element, for many shapes, numbers of
// workers, lane widths and orders of the workers inside a phase.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "random_problem.h"
#include "schedule/golden.h"
#include "schedule/host_builder.h"
#include "schedule/invariants.h"

namespace slipstream {
namespace {

enum class WorkerOrder { kForward, kReversed, kShuffled, kThreads };

// The orders a phase's workers run in. Shuffled is another order in every phase.
RunPhase run_phase_in(WorkerOrder order, std::uint64_t seed) {
  return [order, random = Random(seed)](std::int32_t num_shares, const auto& run_share) mutable {
    if (order == WorkerOrder::kThreads) {
      std::vector<std::jthread> threads;
      for (std::int32_t w = 0; w < num_shares; ++w)
        threads.emplace_back([&run_share, w] { run_share(w); });
      return;
    }
    std::vector<std::int32_t> workers(num_shares);
    std::iota(workers.begin(), workers.end(), 0);
    if (order == WorkerOrder::kReversed) std::ranges::reverse(workers);
    for (std::size_t i = workers.size(); order == WorkerOrder::kShuffled && i > 1; --i)
      std::swap(workers[i - 1], workers[random.below(i)]);
    for (const std::int32_t w : workers) run_share(w);
  };
}

void expect_builds_golden(const ScheduleProblem& problem, std::int32_t num_shares,
                          TeamWidth team_width, WorkerOrder order) {
  const Schedule golden = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
  const Status invariants =
      check_invariants(golden.view(), problem.tokens_per_rank, problem.topk_ids);
  ASSERT_TRUE(invariants.is_ok()) << problem << "\n" << invariants.message();
  const Schedule built =
      build_on_host(problem.shape, problem.tokens_per_rank, problem.topk_ids,
                    {.num_shares = num_shares,
                     .team_width = team_width,
                     .fresh_teams = num_shares % 2 == 0,
                     .run_phase = run_phase_in(order, static_cast<std::uint64_t>(num_shares))});
  const Status equal = compare_schedules(built.view(), golden.view());
  ASSERT_TRUE(equal.is_ok()) << problem << " shares " << num_shares << " width "
                             << static_cast<int>(team_width) << " order " << static_cast<int>(order)
                             << "\n"
                             << equal.message();
}

// Every rank of every group size. Policies, orders, segments, chunks and ways to drive the workers
// take turns, so that every pair of them meets somewhere in the matrix.
class BuilderMatrix
    : public testing::TestWithParam<std::tuple<std::string, std::int32_t, std::int32_t>> {};

TEST_P(BuilderMatrix, EqualsGolden) {
  const auto& [kind, num_experts, topk] = GetParam();
  constexpr std::int32_t kTokens[kMaxRanks] = {17, 0, 5, 1, 0, 64, 3, 0};
  constexpr std::int32_t kWorkers[] = {1, 2, 3, 7, 16, 33};
  Random random(num_experts * 64 + topk, kind.size());
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> choices[] = {values...};
    return choices[random.below(sizeof...(values))];
  };
  for (std::int32_t num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    ScheduleProblem problem{.name = kind};
    problem.tokens_per_rank.assign(kTokens, kTokens + num_ranks);
    const std::int32_t num_tokens =
        std::accumulate(problem.tokens_per_rank.begin(), problem.tokens_per_rank.end(), 0);
    problem.topk_ids = ids_for(kind, num_tokens, num_experts, topk, 1000 + num_ranks);
    for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
      if (num_experts > 64 && rank % 3 != num_ranks % 3) continue;  // slow; others have every rank
      problem.shape =
          ScheduleShape{.num_ranks = num_ranks,
                        .rank = rank,
                        .num_experts = num_experts,
                        .topk = topk,
                        .tile_policy = pick(TilePolicy::kBalanced, TilePolicy::kFixed128),
                        .row_order = pick(RowOrder::kLocalFirst, RowOrder::kAscending),
                        .tile_max_rows = pick(16, 288),
                        .num_segments = pick(1, 2, 3),
                        .chunks = uneven_chunks(pick(1, 2, 3, 4))};
      expect_builds_golden(
          problem, kWorkers[random.below(std::size(kWorkers))],
          pick(TeamWidth::kOne, TeamWidth::kWarp, TeamWidth::kTwoWarps),
          pick(WorkerOrder::kForward, WorkerOrder::kReversed, WorkerOrder::kShuffled));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, BuilderMatrix,
                         testing::Combine(testing::Values("balanced", "uniform", "zipf:1.2",
                                                          "stddev:0.3", "one", "mixed", "skipped"),
                                          testing::Values(1, 3, 8, 60, 64, 256, 512, 1024),
                                          testing::Values(1, 2, 3, 6, 8, 10)));

TEST(Builder, EqualsGoldenOnRandomProblems) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed, 7);
    expect_builds_golden(random_problem(seed), static_cast<std::int32_t>(1 + random.below(40)),
                         random.below(2) == 0 ? TeamWidth::kOne : TeamWidth::kWarp,
                         static_cast<WorkerOrder>(random.below(3)));
    if (HasFatalFailure()) return;
  }
}

// One thread per worker: with ThreadSanitizer, the proof that phases do not communicate.
TEST(Builder, PhasesRunOnThreads) {
  for (std::uint64_t seed = 0; seed < 21; ++seed) {
    expect_builds_golden(random_problem(seed), 5,
                         seed % 2 == 0 ? TeamWidth::kOne : TeamWidth::kWarp, WorkerOrder::kThreads);
    if (HasFatalFailure()) return;
  }
}

TEST(Builder, EdgesOfTokenCounts) {
  const std::vector<std::vector<std::int32_t>> token_counts = {
      {0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {0, 1, 0}, {1, 1, 1}, {5000, 1, 1}, {0, 5000, 0}};
  for (const auto& tokens_per_rank : token_counts) {
    for (const char* kind : {"uniform", "one", "mixed", "skipped"}) {
      for (std::int32_t rank = 0; rank < 3; ++rank) {
        ScheduleProblem problem{.name = kind, .tokens_per_rank = tokens_per_rank};
        problem.shape = ScheduleShape{.num_ranks = 3,
                                      .rank = rank,
                                      .num_experts = 8,
                                      .topk = 2,
                                      .num_segments = 3,
                                      .chunks = uneven_chunks(3)};
        const std::int32_t num_tokens =
            std::accumulate(tokens_per_rank.begin(), tokens_per_rank.end(), 0);
        problem.topk_ids = ids_for(kind, num_tokens, 8, 2, 31);
        for (const TeamWidth width : {TeamWidth::kOne, TeamWidth::kWarp}) {
          expect_builds_golden(problem, 9, width, WorkerOrder::kForward);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Builder, SeedShapeWithAsManySharesAsBlocks) {
  ScheduleProblem problem{.name = "seed shape", .tokens_per_rank = {512, 512, 512, 512}};
  problem.topk_ids = ids_for("uniform", 2048, 64, 8, 32);
  problem.shape = ScheduleShape{
      .num_ranks = 4, .rank = 2, .num_experts = 64, .topk = 8, .chunks = uneven_chunks(8)};
  for (const TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128}) {
    problem.shape.tile_policy = policy;
    expect_builds_golden(problem, 8, TeamWidth::kTwoWarps, WorkerOrder::kShuffled);
  }
}

// What a workspace reserves holds every routing, and is used up by the worst one.
TEST(Schedule, CapacityHoldsEveryRouting) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const ScheduleProblem problem = random_problem(seed);
    const Schedule s = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
    const ScheduleCapacity capacity = schedule_capacity(problem.shape, s.counts.num_tokens);
    EXPECT_EQ(static_cast<std::int64_t>(s.slots.size()), capacity.num_pairs);
    EXPECT_LE(s.counts.num_rows, capacity.num_rows) << problem;
    EXPECT_LE(s.counts.num_tiles, capacity.num_tiles) << problem;
    EXPECT_LE(s.counts.num_jobs, capacity.num_jobs) << problem;
  }
  const ScheduleShape fixed{.num_experts = 4, .topk = 1, .tile_policy = TilePolicy::kFixed128};
  EXPECT_EQ(schedule_capacity(fixed, 4).num_rows, 4 * 128);  // one token for each expert
  EXPECT_EQ(schedule_capacity(fixed, 4).num_tiles, 4);
}

// The iterators of the kernels against orders sorted by their full keys.
TEST(Schedule, OrdersByPositionEqualSortedOrders) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ScheduleProblem problem = random_problem(seed);
    const Schedule s = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
    const auto tiles = golden_tile_order(s);
    const auto jobs = golden_job_order(s);
    const std::size_t num_chunks = problem.shape.chunks.num_chunks;
    ASSERT_EQ(tiles.size(), num_chunks * s.counts.num_tiles) << problem;
    ASSERT_EQ(jobs.size(), num_chunks * s.counts.num_jobs) << problem;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const TileVisit visit = tile_order_at(s.view(), static_cast<std::int64_t>(i));
      ASSERT_EQ(std::tie(visit.chunk, visit.tile), std::tie(tiles[i].chunk, tiles[i].tile))
          << problem << " at " << i;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const JobVisit visit = job_order_at(s.view(), static_cast<std::int64_t>(i));
      ASSERT_EQ(std::tie(visit.chunk, visit.owner, visit.token),
                std::tie(jobs[i].chunk, jobs[i].owner, jobs[i].token))
          << problem << " at " << i;
    }
  }
}

}  // namespace
}  // namespace slipstream
