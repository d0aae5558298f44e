// Golden tables against tables worked out by hand from the definitions in slipstream/schedule.h.
#include "schedule/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace slipstream {

static bool operator==(const TokenTile& a, const TokenTile& b) {
  return a.expert == b.expert && a.row_begin == b.row_begin && a.num_rows == b.num_rows;
}
static bool operator==(const TileVisit& a, const TileVisit& b) {
  return a.chunk == b.chunk && a.tile == b.tile;
}
static bool operator==(const JobVisit& a, const JobVisit& b) {
  return a.chunk == b.chunk && a.owner == b.owner && a.token == b.token;
}

namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

std::vector<std::int32_t> tile_sizes(std::int32_t num_rows, std::int32_t tile_max_rows) {
  const ScheduleShape shape{.num_experts = 1, .tile_max_rows = tile_max_rows};
  const std::vector<std::int32_t> ids(num_rows, 0);
  const std::vector<std::int32_t> tokens_per_rank = {num_rows};
  std::vector<std::int32_t> sizes;
  for (const TokenTile& tile : build_golden(shape, tokens_per_rank, ids).token_tile)
    sizes.push_back(tile.num_rows);
  return sizes;
}

// Rank 1 of 2: its own tokens 2, 3, 4 come before tokens 0 and 1 inside every expert.
//   expert 0: (2,1) (3,0) (3,1) (0,0)   expert 1: (4,1) (0,1) (1,0)   expert 2: (2,0)
Schedule local_first_example() {
  const ScheduleShape shape{.num_ranks = 2,
                            .rank = 1,
                            .num_experts = 3,
                            .topk = 2,
                            .tile_max_rows = 8,
                            .chunks = {.num_chunks = 2, .begin = {0, 64, 96}}};
  const std::vector<std::int32_t> tokens_per_rank = {2, 3};
  const std::vector<std::int32_t> ids = {0, 1, 1, -1, 2, 0, 0, 0, 5, 1};
  return build_golden(shape, tokens_per_rank, ids);
}

TEST(Golden, LocalFirstWithDuplicatesSkippedAndInvalidIds) {
  const Schedule s = local_first_example();
  EXPECT_THAT(s.owner_token_begin, ElementsAre(0, 2, 5));
  EXPECT_THAT(s.expert_row_begin, ElementsAre(0, 4, 7, 8));
  EXPECT_THAT(s.expert_tile_begin, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(s.token_tile,
              ElementsAre(TokenTile{0, 0, 4}, TokenTile{1, 4, 3}, TokenTile{2, 7, 1}));
  EXPECT_THAT(s.slack, ElementsAre(0, 0, 0));
  EXPECT_THAT(s.slots, ElementsAre(3, 5, 6, -1, 7, 0, 1, 2, -1, 4));
  EXPECT_THAT(s.slot_tile, ElementsAre(0, 1, 1, -1, 2, 0, 0, 0, -1, 1));
  EXPECT_THAT(s.row_source, ElementsAre(5, 6, 7, 0, 9, 1, 2, 4));
  EXPECT_THAT(s.pull_order, ElementsAre(2, 3, 0, 4, 1));
  EXPECT_THAT(s.job_order, ElementsAre(3, 4, 0, 1, 2));
  EXPECT_THAT(s.owner_num_jobs, ElementsAre(2, 3));
  EXPECT_EQ(s.counts.num_tokens, 5);
  EXPECT_EQ(s.counts.num_real_rows, 8);
  EXPECT_EQ(s.counts.num_rows, 8);
  EXPECT_EQ(s.counts.num_tiles, 3);
  EXPECT_EQ(s.counts.num_pull_tokens, 5);
  EXPECT_EQ(s.counts.num_jobs, 5);
  EXPECT_EQ(s.counts.num_invalid_ids, 1);
  EXPECT_EQ(s.counts.first_invalid_pair, 8);
  EXPECT_EQ(s.counts.max_tile_rows, 4);
}

TEST(Golden, OrdersOverChunks) {
  const Schedule s = local_first_example();
  EXPECT_THAT(golden_tile_order(s), ElementsAre(TileVisit{0, 0}, TileVisit{0, 1}, TileVisit{0, 2},
                                                TileVisit{1, 0}, TileVisit{1, 1}, TileVisit{1, 2}));
  EXPECT_THAT(
      golden_job_order(s),
      ElementsAre(JobVisit{0, 1, 3}, JobVisit{0, 1, 4}, JobVisit{0, 0, 0}, JobVisit{0, 0, 1},
                  JobVisit{0, 1, 2}, JobVisit{1, 1, 3}, JobVisit{1, 1, 4}, JobVisit{1, 0, 0},
                  JobVisit{1, 0, 1}, JobVisit{1, 1, 2}));
}

// Two segments: owner 0's tokens 0 and 1, then 2 and 3. Owner 1 has no token, owner 2 has one
// without an expert: both get null jobs.
TEST(Golden, Fixed128AscendingWithSegmentsAndNullJobs) {
  const ScheduleShape shape{.num_ranks = 3,
                            .rank = 2,
                            .num_experts = 2,
                            .topk = 1,
                            .tile_policy = TilePolicy::kFixed128,
                            .row_order = RowOrder::kAscending,
                            .num_segments = 2};
  const std::vector<std::int32_t> tokens_per_rank = {4, 0, 1};
  const std::vector<std::int32_t> ids = {1, 0, 1, 1, -1};
  const Schedule s = build_golden(shape, tokens_per_rank, ids);
  EXPECT_THAT(s.owner_token_begin, ElementsAre(0, 4, 4, 5));
  EXPECT_THAT(s.expert_row_begin, ElementsAre(0, 128, 256, 256, 384));
  EXPECT_THAT(s.expert_tile_begin, ElementsAre(0, 1, 2, 2, 3));
  EXPECT_THAT(s.token_tile,
              ElementsAre(TokenTile{0, 0, 1}, TokenTile{1, 128, 1}, TokenTile{1, 256, 2}));
  EXPECT_THAT(s.slack, ElementsAre(127, 127, 126));
  EXPECT_THAT(s.slots, ElementsAre(128, 0, 256, 257, -1));
  EXPECT_THAT(s.slot_tile, ElementsAre(1, 0, 2, 2, -1));
  std::vector<std::int32_t> sources(384, -1);
  sources[0] = 1;
  sources[128] = 0;
  sources[256] = 2;
  sources[257] = 3;
  EXPECT_EQ(s.row_source, sources);
  EXPECT_THAT(s.pull_order, ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(s.job_order, ElementsAre(-2, -3, 1, 0, 2, 3));
  EXPECT_THAT(s.owner_num_jobs, ElementsAre(4, 1, 1));
  EXPECT_EQ(s.counts.num_real_rows, 4);
  EXPECT_EQ(s.counts.num_rows, 384);
  EXPECT_EQ(s.counts.num_tiles, 3);
  EXPECT_EQ(s.counts.num_pull_tokens, 4);
  EXPECT_EQ(s.counts.num_jobs, 6);
  EXPECT_EQ(s.counts.num_invalid_ids, 0);
  EXPECT_EQ(s.counts.first_invalid_pair, -1);
  EXPECT_EQ(s.counts.max_tile_rows, 128);
  EXPECT_THAT(golden_job_order(s),
              ElementsAre(JobVisit{0, 1, -1}, JobVisit{0, 2, -1}, JobVisit{0, 0, 1},
                          JobVisit{0, 0, 0}, JobVisit{0, 0, 2}, JobVisit{0, 0, 3}));
}

TEST(Golden, BalancedTilesAreNearEqualAndRoundedTo8) {
  EXPECT_THAT(tile_sizes(20, 8), ElementsAre(8, 8, 4));
  EXPECT_THAT(tile_sizes(288, 288), ElementsAre(288));
  EXPECT_THAT(tile_sizes(300, 288), ElementsAre(152, 148));
  EXPECT_THAT(tile_sizes(17, 16), ElementsAre(16, 1));
  EXPECT_THAT(tile_sizes(5, 288), ElementsAre(5));
  EXPECT_THAT(tile_sizes(0, 288), SizeIs(0));
  EXPECT_THAT(tile_sizes(8 * 1000, 8), Each(8));
}

TEST(Golden, NoTokensAnywhereLeavesOneNullJobPerOwner) {
  const ScheduleShape shape{.num_ranks = 4, .rank = 3, .num_experts = 2, .topk = 2};
  const std::vector<std::int32_t> tokens_per_rank = {0, 0, 0, 0};
  const Schedule s = build_golden(shape, tokens_per_rank, {});
  EXPECT_EQ(s.counts.num_tiles, 0);
  EXPECT_EQ(s.counts.num_rows, 0);
  EXPECT_EQ(s.counts.max_tile_rows, 0);
  EXPECT_THAT(s.expert_row_begin, ElementsAre(0, 0, 0));
  EXPECT_THAT(s.job_order, ElementsAre(-1, -2, -3, -4));
  EXPECT_THAT(s.owner_num_jobs, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(s.pull_order, SizeIs(0));
}

TEST(Schedule, ShapeComesFromProblemAndTuning) {
  const Problem problem{.num_ranks = 4,
                        .num_experts = 60,
                        .hidden = 96,
                        .intermediate = 448,
                        .topk = 3,
                        .max_tokens = 16,
                        .dtype = DType::kFP16};
  Tuning tuning = default_tuning(problem, 64);
  tuning.tile_policy = TilePolicy::kFixed128;
  tuning.row_order = RowOrder::kAscending;
  tuning.tile_max_rows = 136;
  tuning.num_segments = 3;
  const ScheduleShape shape = schedule_shape(problem, tuning, 2);
  EXPECT_EQ(shape.num_ranks, 4);
  EXPECT_EQ(shape.rank, 2);
  EXPECT_EQ(shape.num_experts, 60);
  EXPECT_EQ(shape.topk, 3);
  EXPECT_EQ(shape.tile_policy, TilePolicy::kFixed128);
  EXPECT_EQ(shape.row_order, RowOrder::kAscending);
  EXPECT_EQ(shape.tile_max_rows, 136);
  EXPECT_EQ(shape.num_segments, 3);
  EXPECT_EQ(shape.chunks.num_chunks, 2);
  EXPECT_EQ(shape.chunks.begin[2], 96);
}

}  // namespace
}  // namespace slipstream
