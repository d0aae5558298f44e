// Each table corrupted once: the right invariant, the place and both values are named.
#include "schedule/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "random_problem.h"
#include "schedule/golden.h"

namespace slipstream {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Mutation {
  const char* invariant;
  const char* text;  // part of the message behind the invariant's name
  std::function<void(Schedule&)> corrupt;
};

// Rank 1 of 2; the tables are in golden_test.cc. fixed128 adds padding to the same routing.
ScheduleProblem example(TilePolicy policy) {
  ScheduleProblem problem{.name = "example", .tokens_per_rank = {2, 3, 0}};
  problem.shape = ScheduleShape{.num_ranks = 3,
                                .rank = 1,
                                .num_experts = 3,
                                .topk = 2,
                                .tile_policy = policy,
                                .tile_max_rows = 8,
                                .chunks = uneven_chunks(2)};
  problem.topk_ids = {0, 1, 1, -1, 2, 0, 0, 0, 5, 1};
  return problem;
}

void expect_named(TilePolicy policy, const std::vector<Mutation>& mutations) {
  const ScheduleProblem problem = example(policy);
  const Schedule good = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
  ASSERT_TRUE(check_invariants(good.view(), problem.tokens_per_rank, problem.topk_ids).is_ok());
  for (const Mutation& mutation : mutations) {
    Schedule bad = good;
    mutation.corrupt(bad);
    const Status status = check_invariants(bad.view(), problem.tokens_per_rank, problem.topk_ids);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << mutation.invariant;
    EXPECT_THAT(status.message(),
                StartsWith("schedule: invariant " + std::string(mutation.invariant) + ": "));
    EXPECT_THAT(status.message(), HasSubstr(mutation.text));
    EXPECT_FALSE(compare_schedules(bad.view(), good.view()).is_ok()) << mutation.invariant;
  }
}

TEST(Invariants, NameWhatBrokeInBalancedTables) {
  expect_named(
      TilePolicy::kBalanced,
      {{"counts", "num_tokens is 6, expected 5", [](Schedule& s) { s.counts.num_tokens = 6; }},
       {"counts", "num_real_rows is 9, expected 8", [](Schedule& s) { s.counts.num_real_rows++; }},
       {"counts", "num_rows is 1000000, expected 8",
        [](Schedule& s) { s.counts.num_rows = 1000000; }},
       {"counts", "num_tiles is 2, expected 3", [](Schedule& s) { s.counts.num_tiles--; }},
       {"counts", "num_pull_tokens is 4, expected 5",
        [](Schedule& s) { s.counts.num_pull_tokens--; }},
       {"counts", "num_jobs is 5, expected 6", [](Schedule& s) { s.counts.num_jobs--; }},
       {"counts", "num_invalid_ids is 0, expected 1",
        [](Schedule& s) { s.counts.num_invalid_ids = 0; }},
       {"counts", "first_invalid_pair is -1, expected 8",
        [](Schedule& s) { s.counts.first_invalid_pair = -1; }},
       {"counts", "max_tile_rows is 3, expected 4", [](Schedule& s) { s.counts.max_tile_rows--; }},
       {"owner_token_begin", "owner_token_begin[1] is 3, expected 2",
        [](Schedule& s) { s.owner_token_begin[1] = 3; }},
       {"owner_num_jobs", "owner_num_jobs[2] is 0, expected 1",
        [](Schedule& s) { s.owner_num_jobs[2] = 0; }},
       {"owner_num_jobs", "owner_num_jobs[0] is 3, expected 2",
        [](Schedule& s) { s.owner_num_jobs[0] = 3; }},
       {"expert ranges", "expert_row_begin[2] is 6, expected 7",
        [](Schedule& s) { s.expert_row_begin[2] = 6; }},
       {"expert ranges", "expert_tile_begin[3] is 4, expected 3",
        [](Schedule& s) { s.expert_tile_begin[3] = 4; }},
       {"slots", "slots[0] is 4, expected 0..3, the rows of expert 0 in segment 0",
        [](Schedule& s) { s.slots[0] = 4; }},
       {"slots", "slots[3] is 0, expected -1", [](Schedule& s) { s.slots[3] = 0; }},
       {"row_source", "slots[row_source[3] = 0] is 2, expected 3",  // two pairs in slot 2
        [](Schedule& s) { s.slots[0] = 2; }},
       {"row_source", "row_source[7] is 10, expected a pair, 0..9",
        [](Schedule& s) { s.row_source[7] = 10; }},
       {"row_source", "row_source[7] is -1", [](Schedule& s) { s.row_source[7] = -1; }},
       {"row order", "key of row 1",
        [](Schedule& s) {
          std::swap(s.slots[5], s.slots[6]);
          std::swap(s.row_source[0], s.row_source[1]);
        }},
       {"row order", "is (0, 9), expected more than (2, 1) of the row before",  // remote first
        [](Schedule& s) {
          std::swap(s.slots[9], s.slots[1]);
          std::swap(s.row_source[4], s.row_source[5]);
        }},
       {"token_tile", "token_tile[1] is expert 1 rows 4 + 2, expected expert 1 rows 4 + 3",
        [](Schedule& s) { s.token_tile[1].num_rows = 2; }},
       {"token_tile", "token_tile[2] is expert 0 rows 7 + 1",
        [](Schedule& s) { s.token_tile[2].expert = 0; }},
       {"token_tile", "token_tile[0] is expert 0 rows 1 + 4",
        [](Schedule& s) { s.token_tile[0].row_begin = 1; }},
       {"slack", "slack[0] is 4, expected 0", [](Schedule& s) { s.slack[0] = 4; }},
       {"slot_tile", "slot_tile[1] is 0, expected 1", [](Schedule& s) { s.slot_tile[1] = 0; }},
       {"slot_tile", "slot_tile[8] is 0, expected -1", [](Schedule& s) { s.slot_tile[8] = 0; }},
       {"pull_order", "slot of pull_order[2] = token 3 is 1, expected more than 3 of",
        [](Schedule& s) {
          s.pull_order = {2, 0, 3, 4, 1};
        }},
       {"pull_order", "pull_order[4] is 4 again", [](Schedule& s) { s.pull_order[4] = 4; }},
       {"pull_order", "pull_order[0] is 5", [](Schedule& s) { s.pull_order[0] = 5; }},
       {"job_order", "job_order[0] is -1, expected -3", [](Schedule& s) { s.job_order[0] = -1; }},
       {"job_order", "slot of job_order[5] = token 1 is 6, expected more than 7",
        [](Schedule& s) { std::swap(s.job_order[4], s.job_order[5]); }},
       {"job_order", "job_order[1] is -1", [](Schedule& s) { s.job_order[1] = -1; }}});
}

TEST(Invariants, NameWhatBrokeInPaddedTables) {
  expect_named(
      TilePolicy::kFixed128,
      {{"row_source", "row_source[127] is 0, expected -1",
        [](Schedule& s) { s.row_source[127] = 0; }},
       {"slots", "slots[0] is 127, expected 0..3", [](Schedule& s) { s.slots[0] = 127; }},
       {"slack", "slack[1] is 124, expected 125", [](Schedule& s) { s.slack[1] = 124; }},
       {"token_tile", "expert 0 rows 0 + 128", [](Schedule& s) { s.token_tile[0].num_rows = 128; }},
       {"counts", "max_tile_rows is 4, expected 128",
        [](Schedule& s) { s.counts.max_tile_rows = 4; }}});
}

// Every number of every table of a larger schedule matters: none can change unnoticed.
TEST(Invariants, NoticeAnyChangedNumber) {
  for (const std::uint64_t seed : {1, 2, 3, 5, 8}) {
    const ScheduleProblem problem = random_problem(seed);
    Schedule s = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
    const auto each_number_of = [&](const char* name, std::vector<std::int32_t>& table) {
      const std::size_t step = 1 + table.size() / 20;
      for (std::size_t i = 0; i < table.size(); i += step) {
        for (const std::int32_t wrong : {table[i] + 1, table[i] - 1, -1, INT32_MAX, INT32_MIN}) {
          const std::int32_t right = std::exchange(table[i], wrong);
          if (wrong != right) {
            EXPECT_FALSE(
                check_invariants(s.view(), problem.tokens_per_rank, problem.topk_ids).is_ok())
                << problem << " " << name << "[" << i << "] " << right << " -> " << wrong;
          }
          table[i] = right;
        }
      }
    };
    each_number_of("owner_token_begin", s.owner_token_begin);
    each_number_of("expert_row_begin", s.expert_row_begin);
    each_number_of("expert_tile_begin", s.expert_tile_begin);
    each_number_of("slack", s.slack);
    each_number_of("slots", s.slots);
    each_number_of("slot_tile", s.slot_tile);
    each_number_of("row_source", s.row_source);
    each_number_of("pull_order", s.pull_order);
    each_number_of("job_order", s.job_order);
    each_number_of("owner_num_jobs", s.owner_num_jobs);
    ASSERT_TRUE(check_invariants(s.view(), problem.tokens_per_rank, problem.topk_ids).is_ok());
  }
}

TEST(CompareSchedules, NamesTheFirstDifference) {
  const ScheduleProblem problem = example(TilePolicy::kBalanced);
  const Schedule a = build_golden(problem.shape, problem.tokens_per_rank, problem.topk_ids);
  Schedule b = a;
  EXPECT_TRUE(compare_schedules(a.view(), b.view()).is_ok());
  b.pull_order[3] = 77;
  EXPECT_THAT(compare_schedules(a.view(), b.view()).message(),
              HasSubstr("pull_order[3] is 4, expected 77"));
  b.counts.num_jobs = 1;
  EXPECT_THAT(compare_schedules(a.view(), b.view()).message(),
              HasSubstr("num_jobs is 6, expected 1"));
  b.shape.topk = 3;
  EXPECT_THAT(compare_schedules(a.view(), b.view()).message(), HasSubstr("top 2"));
}

}  // namespace
}  // namespace slipstream
