#include "schedule/routing_facts.h"

#include <algorithm>

#include "slipstream/routing.h"

namespace slipstream {

namespace {

std::int32_t tiles_of(const ScheduleShape& shape, std::int32_t real_rows) {
  const std::int32_t tile_rows =
      shape.tile_policy == TilePolicy::kFixed128 ? 128 : shape.tile_max_rows;
  return (real_rows + tile_rows - 1) / tile_rows;
}

void count_tokens(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                  std::span<const std::int32_t> topk_ids, RoutingFacts& facts) {
  std::int32_t token = 0;
  for (std::int32_t owner = 0; owner < shape.num_ranks; ++owner) {
    const std::int32_t num_tokens = tokens_per_rank[owner];
    for (std::int32_t local = 0; local < num_tokens; ++local, ++token) {
      const std::int64_t segment = std::int64_t{local} * shape.num_segments / num_tokens;
      bool has_row = false;
      for (std::int32_t k = 0; k < shape.topk; ++k) {
        const std::int32_t expert = topk_ids[facts.pair_group.size()];
        const auto pair = static_cast<std::int32_t>(facts.pair_group.size());
        if (is_invalid_id(expert, shape.num_experts) && facts.counts.num_invalid_ids++ == 0)
          facts.counts.first_invalid_pair = pair;
        const bool routed = is_routed(expert, shape.num_experts);
        const auto group = static_cast<std::int32_t>(segment * shape.num_experts + expert);
        facts.pair_group.push_back(routed ? group : -1);
        if (routed) ++facts.group_real_rows[group];
        has_row = has_row || routed;
      }
      facts.token_owner.push_back(owner);
      facts.token_has_row.push_back(has_row);
      facts.owner_tokens[owner] += has_row ? 1 : 0;
    }
    facts.owner_token_begin.push_back(token);
  }
}

}  // namespace

std::int32_t tile_pitch(const ScheduleShape& shape, std::int32_t real_rows) {
  if (shape.tile_policy == TilePolicy::kFixed128) return 128;
  const std::int32_t num_tiles = tiles_of(shape, real_rows);
  return ((real_rows + num_tiles - 1) / num_tiles + 7) / 8 * 8;
}

RoutingFacts derive_facts(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                          std::span<const std::int32_t> topk_ids) {
  RoutingFacts facts;
  facts.owner_token_begin = {0};
  facts.owner_tokens.assign(shape.num_ranks, 0);
  facts.group_real_rows.assign(shape.num_groups(), 0);
  facts.counts.first_invalid_pair = -1;
  count_tokens(shape, tokens_per_rank, topk_ids, facts);

  ScheduleCounts& counts = facts.counts;
  counts.num_tokens = facts.owner_token_begin.back();
  for (const std::int32_t real_rows : facts.group_real_rows) {
    const std::int32_t num_tiles = tiles_of(shape, real_rows);
    const bool fixed = shape.tile_policy == TilePolicy::kFixed128;
    facts.group_tiles.push_back(num_tiles);
    facts.group_rows.push_back(fixed ? num_tiles * 128 : real_rows);
    counts.num_real_rows += real_rows;
    counts.num_rows += facts.group_rows.back();
    counts.num_tiles += num_tiles;
    if (real_rows == 0) continue;
    const std::int32_t pitch = tile_pitch(shape, real_rows);
    counts.max_tile_rows =
        std::max(counts.max_tile_rows, fixed ? pitch : std::min(pitch, real_rows));
  }
  for (const std::int32_t tokens : facts.owner_tokens) {
    counts.num_pull_tokens += tokens;
    counts.num_jobs += std::max(tokens, 1);
  }
  return facts;
}

}  // namespace slipstream
