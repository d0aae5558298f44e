// What a routing alone decides about its schedule, derived without any table or builder: the ground
// on which invariants.cc judges the tables. Written apart from tile_policy.h on purpose, so that a
// mistake there shows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "slipstream/schedule.h"

namespace slipstream {

struct RoutingFacts {
  std::vector<std::int32_t> owner_token_begin;  // [W + 1]
  std::vector<std::int32_t> pair_group;         // [S, K], -1 where no row
  std::vector<std::int32_t> group_real_rows;    // [groups]
  std::vector<std::int32_t> group_rows;         // [groups], padding counted
  std::vector<std::int32_t> group_tiles;        // [groups]
  std::vector<std::int32_t> owner_tokens;       // [W], tokens with a row
  std::vector<std::int32_t> token_owner;        // [S]
  std::vector<bool> token_has_row;              // [S]
  ScheduleCounts counts{};
};

// Sizes as for build_golden().
RoutingFacts derive_facts(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                          std::span<const std::int32_t> topk_ids);

// Rows from one tile's begin to the next one's, in a group of `real_rows` > 0 rows.
std::int32_t tile_pitch(const ScheduleShape& shape, std::int32_t real_rows);

}  // namespace slipstream
