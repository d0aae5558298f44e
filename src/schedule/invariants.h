// Checks of finished tables: against their own invariants, and against each other. Tests, the CLI's
// first anchor and debugging use them on golden, host-built and device-built tables alike.
// Read include/slipstream/schedule.h first.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/schedule.h"
#include "slipstream/status.h"

namespace slipstream {

// Whether `view` is a schedule of this routing, by the invariants alone (it calls no builder):
//
//   counts             what ids and token counts alone decide, checked first: table sizes follow
//   owner_token_begin  prefix sum of tokens per rank
//   expert ranges      expert_row_begin and expert_tile_begin are the prefix sums of the groups'
//                      rows and tiles under the tile policy
//   slots              -1 exactly where no row; inside the range of the pair's group
//   row_source         the inverse of slots (so slots are injective); padding is -1, at a group's
//   end row order          rows of a group ascend by the shape's RowOrder token_tile         tiles
//   of a group cover its rows in order, in the policy's sizes slack              slack + real rows
//   = capacity slot_tile          the tile whose rows contain the slot pull_order         each
//   token with a row once, by smallest slot job_order          null jobs first by owner, exactly
//   for owners without a row; then each token
//                      with a row once, by largest slot
//   owner_num_jobs     jobs per owner, at least 1
//   visits             tile_order_at and job_order_at give each (chunk, tile), each (chunk, job)
//   once
//
// tokens_per_rank [W], topk_ids [S, K] as for build_golden(). Errors: kInternal; `what` says
// "invariant <name above>: <table>[<index>]", with the value found and the one expected. A table's
// wrong values never lead to a read outside of it.
Status check_invariants(const ScheduleView& view, std::span<const std::int32_t> tokens_per_rank,
                        std::span<const std::int32_t> topk_ids);

// The first difference of two schedules of one shape: kInternal with table, index, a's value as
// observed and b's value as expected.
Status compare_schedules(const ScheduleView& a, const ScheduleView& b);

}  // namespace slipstream
