// Schedule owns the tables that include/slipstream/schedule.h defines, in host memory. The golden
// builder (golden.h) and the host-driven builder (host_builder.h) fill it; everybody else reads it
// through view(). Read include/slipstream/schedule.h first, golden.h next.
#pragma once

#include <cstdint>
#include <vector>

#include "slipstream/problem.h"
#include "slipstream/schedule.h"
#include "slipstream/tuning.h"

namespace slipstream {

struct Schedule {
  ScheduleShape shape;
  ScheduleCounts counts{};
  std::vector<std::int32_t> owner_token_begin;  // [W + 1]
  std::vector<std::int32_t> expert_row_begin;   // [groups + 1]
  std::vector<std::int32_t> expert_tile_begin;  // [groups + 1]
  std::vector<TokenTile> token_tile;            // [num_tiles]
  std::vector<std::int32_t> slack;              // [num_tiles]
  std::vector<std::int32_t> slots;              // [S, K]
  std::vector<std::int32_t> slot_tile;          // [S, K]
  std::vector<std::int32_t> row_source;         // [P]
  std::vector<std::int32_t> pull_order;         // [num_pull_tokens]
  std::vector<std::int32_t> job_order;          // [num_jobs]
  std::vector<std::int32_t> owner_num_jobs;     // [W]

  // Valid until the schedule is moved, changed or destroyed.
  ScheduleView view() const;
};

// The shape of rank `rank`'s schedules of a layer. Problem and Tuning are taken as validated.
ScheduleShape schedule_shape(const Problem& problem, const Tuning& tuning, std::int32_t rank);

// Most entries that any routing of `num_tokens` tokens (over all ranks) can need: what a workspace
// reserves before it has seen a routing.
struct ScheduleCapacity {
  std::int64_t num_pairs;  // of slots and slot_tile: S * K
  std::int64_t num_rows;   // of row_source
  std::int64_t num_tiles;  // of token_tile and slack
  std::int64_t num_jobs;   // of job_order; pull_order needs no more
};

ScheduleCapacity schedule_capacity(const ScheduleShape& shape, std::int64_t num_tokens);

}  // namespace slipstream
