#include "schedule/schedule.h"

#include <algorithm>

#include "schedule/tile_policy.h"

namespace slipstream {

ScheduleView Schedule::view() const {
  ScheduleView view;
  view.shape = shape;
  view.counts = &counts;
  view.owner_token_begin = owner_token_begin.data();
  view.expert_row_begin = expert_row_begin.data();
  view.expert_tile_begin = expert_tile_begin.data();
  view.token_tile = token_tile.data();
  view.slack = slack.data();
  view.slots = slots.data();
  view.slot_tile = slot_tile.data();
  view.row_source = row_source.data();
  view.pull_order = pull_order.data();
  view.job_order = job_order.data();
  view.owner_num_jobs = owner_num_jobs.data();
  return view;
}

ScheduleShape schedule_shape(const Problem& problem, const Tuning& tuning, std::int32_t rank) {
  return ScheduleShape{.num_ranks = problem.num_ranks,
                       .rank = rank,
                       .num_experts = problem.num_experts,
                       .topk = problem.topk,
                       .tile_policy = tuning.tile_policy,
                       .row_order = tuning.row_order,
                       .tile_max_rows = tuning.tile_max_rows,
                       .num_segments = tuning.num_segments,
                       .chunks = tuning.chunks};
}

ScheduleCapacity schedule_capacity(const ScheduleShape& shape, std::int64_t num_tokens) {
  const bool fixed = shape.tile_policy == TilePolicy::kFixed128;
  const std::int64_t num_pairs = num_tokens * shape.topk;
  // Only a group with a row has tiles; each of them wastes less than one.
  const std::int64_t most_groups = std::min<std::int64_t>(shape.num_groups(), num_pairs);
  const std::int64_t tile_rows = fixed ? kFixedTileRows : shape.tile_max_rows;
  ScheduleCapacity capacity;
  capacity.num_pairs = num_pairs;
  capacity.num_rows = rows_bound(shape, num_tokens);
  capacity.num_tiles = num_pairs / tile_rows + most_groups;
  capacity.num_jobs = num_tokens + shape.num_ranks;
  return capacity;
}

}  // namespace slipstream
