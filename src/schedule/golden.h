// The golden builder: every table from its definition, in obvious loops. It is the judge of the
// device builder's phases (builder_phases.h). Its cost is linear in rows. Read
// include/slipstream/schedule.h first, golden.cc next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace slipstream {

// tokens_per_rank  [W], each 0 or more
// topk_ids         [S, K] global: rank 0's tokens first, then rank 1's, ...
// `shape` comes from validated settings (schedule_shape), the spans have these sizes, and
// S * K + padding fits 31 bits, as validate(Problem) guarantees. Ids may be anything: invalid ones
// are counted and treated like -1.
Schedule build_golden(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                      std::span<const std::int32_t> topk_ids);

// The orders of kernel 2 spelled out over all chunks by sorting with their full keys: what
// tile_order_at() and job_order_at() must give at every position.
//   tiles: (chunk, segment, expert, row_begin)
//   jobs:  (chunk, null jobs first by owner, position of the job's last tile in tile_order,
//           largest slot)
std::vector<TileVisit> golden_tile_order(const Schedule& schedule);
std::vector<JobVisit> golden_job_order(const Schedule& schedule);

}  // namespace slipstream
