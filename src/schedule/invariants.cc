#include "schedule/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "schedule/routing_facts.h"

namespace slipstream {

namespace {

Status broken(std::string_view invariant, std::string_view place, std::string observed,
              std::string expected) {
  return Status(StatusCode::kInternal, Subsystem::kSchedule,
                {.what = fmt::format("invariant {}: {}", invariant, place),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = {}});
}

// Ok when the two are equal.
Status expect(std::string_view invariant, std::string_view table, std::int64_t index,
              std::int64_t observed, std::int64_t expected) {
  if (observed == expected) return Status::ok();
  return broken(invariant, fmt::format("{}[{}]", table, index), fmt::format("{}", observed),
                fmt::format("{}", expected));
}

#define SLIPSTREAM_RETURN_IF_ERROR(expression) \
  if (Status status = (expression); !status.is_ok()) return status

Status compare_counts(std::string_view invariant, const ScheduleCounts& observed,
                      const ScheduleCounts& expected) {
  const std::tuple<const char*, std::int32_t ScheduleCounts::*> fields[] = {
      {"num_tokens", &ScheduleCounts::num_tokens},
      {"num_real_rows", &ScheduleCounts::num_real_rows},
      {"num_rows", &ScheduleCounts::num_rows},
      {"num_tiles", &ScheduleCounts::num_tiles},
      {"num_pull_tokens", &ScheduleCounts::num_pull_tokens},
      {"num_jobs", &ScheduleCounts::num_jobs},
      {"num_invalid_ids", &ScheduleCounts::num_invalid_ids},
      {"first_invalid_pair", &ScheduleCounts::first_invalid_pair},
      {"max_tile_rows", &ScheduleCounts::max_tile_rows}};
  for (const auto& [name, field] : fields) {
    if (observed.*field == expected.*field) continue;
    return broken(invariant, name, fmt::format("{}", observed.*field),
                  fmt::format("{}", expected.*field));
  }
  return Status::ok();
}

Status compare_tile(std::string_view invariant, std::int32_t index, const TokenTile& observed,
                    const TokenTile& expected) {
  if (observed.expert == expected.expert && observed.row_begin == expected.row_begin &&
      observed.num_rows == expected.num_rows)
    return Status::ok();
  const auto text = [](const TokenTile& tile) {
    return fmt::format("expert {} rows {} + {}", tile.expert, tile.row_begin, tile.num_rows);
  };
  return broken(invariant, fmt::format("token_tile[{}]", index), text(observed), text(expected));
}

Status check_owners(const ScheduleView& view, const RoutingFacts& facts) {
  for (std::size_t i = 0; i < facts.owner_token_begin.size(); ++i) {
    SLIPSTREAM_RETURN_IF_ERROR(expect("owner_token_begin", "owner_token_begin", i,
                                      view.owner_token_begin[i], facts.owner_token_begin[i]));
  }
  for (std::int32_t owner = 0; owner < view.shape.num_ranks; ++owner) {
    SLIPSTREAM_RETURN_IF_ERROR(expect("owner_num_jobs", "owner_num_jobs", owner,
                                      view.owner_num_jobs[owner],
                                      std::max(facts.owner_tokens[owner], 1)));
  }
  return Status::ok();
}

Status check_expert_ranges(const ScheduleView& view, const RoutingFacts& facts) {
  std::int32_t row = 0;
  std::int32_t tile = 0;
  for (std::int32_t group = 0; group <= view.shape.num_groups(); ++group) {
    SLIPSTREAM_RETURN_IF_ERROR(
        expect("expert ranges", "expert_row_begin", group, view.expert_row_begin[group], row));
    SLIPSTREAM_RETURN_IF_ERROR(
        expect("expert ranges", "expert_tile_begin", group, view.expert_tile_begin[group], tile));
    if (group == view.shape.num_groups()) break;
    row += facts.group_rows[group];
    tile += facts.group_tiles[group];
  }
  return Status::ok();
}

Status check_slots(const ScheduleView& view, const RoutingFacts& facts) {
  for (std::size_t pair = 0; pair < facts.pair_group.size(); ++pair) {
    const std::int32_t group = facts.pair_group[pair];
    const std::int32_t slot = view.slots[pair];
    if (group < 0) {
      SLIPSTREAM_RETURN_IF_ERROR(expect("slots", "slots", pair, slot, -1));
      continue;
    }
    const std::int32_t begin = view.expert_row_begin[group];
    const std::int32_t end = begin + facts.group_real_rows[group];
    if (slot < begin || slot >= end) {
      return broken("slots", fmt::format("slots[{}]", pair), fmt::format("{}", slot),
                    fmt::format("{}..{}, the rows of expert {} in segment {}", begin, end - 1,
                                group % view.shape.num_experts, group / view.shape.num_experts));
    }
  }
  return Status::ok();
}

Status check_row_source(const ScheduleView& view, const RoutingFacts& facts) {
  const auto num_pairs = static_cast<std::int32_t>(facts.pair_group.size());
  for (std::int32_t group = 0; group < view.shape.num_groups(); ++group) {
    const std::int32_t begin = view.expert_row_begin[group];
    for (std::int32_t row = begin; row < view.expert_row_begin[group + 1]; ++row) {
      const std::int32_t pair = view.row_source[row];
      if (row >= begin + facts.group_real_rows[group]) {
        SLIPSTREAM_RETURN_IF_ERROR(expect("row_source", "row_source", row, pair, -1));
      } else if (pair < 0 || pair >= num_pairs) {
        return broken("row_source", fmt::format("row_source[{}]", row), fmt::format("{}", pair),
                      fmt::format("a pair, 0..{}", num_pairs - 1));
      } else if (view.slots[pair] != row) {
        return broken("row_source", fmt::format("slots[row_source[{}] = {}]", row, pair),
                      fmt::format("{}", view.slots[pair]), fmt::format("{}", row));
      }
    }
  }
  return Status::ok();
}

Status check_row_order(const ScheduleView& view, const RoutingFacts& facts) {
  const ScheduleShape& shape = view.shape;
  // (distance of the owner, pair): pairs ascend by token, then k.
  const auto key_of = [&](std::int32_t row) {
    const std::int32_t pair = view.row_source[row];
    const std::int32_t owner = facts.token_owner[pair / shape.topk];
    const std::int32_t distance = shape.row_order == RowOrder::kLocalFirst
                                      ? (owner - shape.rank + shape.num_ranks) % shape.num_ranks
                                      : 0;
    return std::pair(distance, pair);
  };
  for (std::int32_t group = 0; group < shape.num_groups(); ++group) {
    const std::int32_t begin = view.expert_row_begin[group];
    for (std::int32_t row = begin + 1; row < begin + facts.group_real_rows[group]; ++row) {
      const auto before = key_of(row - 1);
      const auto here = key_of(row);
      if (before < here) continue;
      return broken(
          "row order", fmt::format("key of row {} (owner distance, pair)", row),
          fmt::format("({}, {})", here.first, here.second),
          fmt::format("more than ({}, {}) of the row before it", before.first, before.second));
    }
  }
  return Status::ok();
}

Status check_tiles(const ScheduleView& view, const RoutingFacts& facts) {
  for (std::int32_t group = 0; group < view.shape.num_groups(); ++group) {
    std::int32_t row = view.expert_row_begin[group];
    const std::int32_t real_end = row + facts.group_real_rows[group];
    for (std::int32_t tile = view.expert_tile_begin[group];
         tile < view.expert_tile_begin[group + 1]; ++tile) {
      const std::int32_t pitch = tile_pitch(view.shape, facts.group_real_rows[group]);
      const std::int32_t num_rows = std::min(pitch, real_end - row);
      const std::int32_t capacity = std::min(pitch, view.expert_row_begin[group + 1] - row);
      const TokenTile wanted{group % view.shape.num_experts, row, num_rows};
      SLIPSTREAM_RETURN_IF_ERROR(compare_tile("token_tile", tile, view.token_tile[tile], wanted));
      SLIPSTREAM_RETURN_IF_ERROR(
          expect("slack", "slack", tile, view.slack[tile], capacity - num_rows));
      row += pitch;
    }
  }
  return Status::ok();
}

Status check_slot_tile(const ScheduleView& view, const RoutingFacts& facts) {
  for (std::size_t pair = 0; pair < facts.pair_group.size(); ++pair) {
    const std::int32_t group = facts.pair_group[pair];
    std::int32_t wanted = -1;
    if (group >= 0) {
      wanted = view.expert_tile_begin[group];
      while (view.slots[pair] >=
             view.token_tile[wanted].row_begin + view.token_tile[wanted].num_rows)
        ++wanted;
    }
    SLIPSTREAM_RETURN_IF_ERROR(
        expect("slot_tile", "slot_tile", pair, view.slot_tile[pair], wanted));
  }
  return Status::ok();
}

// Both orders: `order` has each token with a row once, and slot_of(token) ascends.
template <class SlotOf>
Status check_token_order(std::string_view invariant, const std::int32_t* order, std::int32_t begin,
                         std::int32_t end, const RoutingFacts& facts, SlotOf slot_of) {
  std::vector<bool> seen(facts.counts.num_tokens, false);
  for (std::int32_t i = begin; i < end; ++i) {
    const std::int32_t token = order[i];
    const auto place = [&] { return fmt::format("{}[{}]", invariant, i); };
    if (token < 0 || token >= facts.counts.num_tokens || !facts.token_has_row[token])
      return broken(invariant, place(), fmt::format("{}", token), "a token with a row");
    if (seen[token]) return broken(invariant, place(), fmt::format("{} again", token), "once");
    seen[token] = true;
    if (i == begin || slot_of(order[i - 1]) < slot_of(token)) continue;
    return broken(invariant, fmt::format("slot of {} = token {}", place(), token),
                  fmt::format("{}", slot_of(token)),
                  fmt::format("more than {} of the token before it", slot_of(order[i - 1])));
  }
  return Status::ok();
}

Status check_orders(const ScheduleView& view, const RoutingFacts& facts) {
  const std::int32_t topk = view.shape.topk;
  const auto smallest_slot = [&](std::int32_t token) {
    std::int32_t smallest = -1;
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::int32_t slot = view.slots[std::int64_t{token} * topk + k];
      if (slot >= 0 && (smallest < 0 || slot < smallest)) smallest = slot;
    }
    return smallest;
  };
  const auto largest_slot = [&](std::int32_t token) {
    const std::int32_t* slots = view.slots + std::int64_t{token} * topk;
    return *std::max_element(slots, slots + topk);
  };
  SLIPSTREAM_RETURN_IF_ERROR(check_token_order("pull_order", view.pull_order, 0,
                                               facts.counts.num_pull_tokens, facts, smallest_slot));
  std::int32_t position = 0;
  for (std::int32_t owner = 0; owner < view.shape.num_ranks; ++owner) {
    if (facts.owner_tokens[owner] > 0) continue;
    SLIPSTREAM_RETURN_IF_ERROR(
        expect("job_order", "job_order", position, view.job_order[position], -1 - owner));
    ++position;
  }
  return check_token_order("job_order", view.job_order, position, facts.counts.num_jobs, facts,
                           largest_slot);
}

// Every (chunk, tile) and every (chunk, job) exactly once, chunk by chunk.
Status check_visits(const ScheduleView& view, const RoutingFacts& facts) {
  const std::int32_t num_chunks = view.shape.chunks.num_chunks;
  std::vector<std::int32_t> tile_visits(facts.counts.num_tiles);
  std::vector<std::int32_t> token_visits(facts.counts.num_tokens);
  std::vector<std::int32_t> null_visits(view.shape.num_ranks);
  const auto check_all = [](std::string_view what, const std::vector<std::int32_t>& visits,
                            std::int32_t chunk, auto expected_of) {
    const std::string place = fmt::format("visits of chunk {}, {}", chunk, what);
    for (std::size_t i = 0; i < visits.size(); ++i)
      SLIPSTREAM_RETURN_IF_ERROR(expect("visits", place, i, visits[i], expected_of(i)));
    return Status::ok();
  };
  for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (auto* visits : {&tile_visits, &token_visits, &null_visits}) std::ranges::fill(*visits, 0);
    for (std::int32_t i = 0; i < facts.counts.num_tiles; ++i) {
      const TileVisit visit = tile_order_at(view, std::int64_t{chunk} * facts.counts.num_tiles + i);
      SLIPSTREAM_RETURN_IF_ERROR(expect("visits", "chunk of tile visit", i, visit.chunk, chunk));
      ++tile_visits[visit.tile];
    }
    for (std::int32_t i = 0; i < facts.counts.num_jobs; ++i) {
      const JobVisit visit = job_order_at(view, std::int64_t{chunk} * facts.counts.num_jobs + i);
      SLIPSTREAM_RETURN_IF_ERROR(expect("visits", "chunk of job visit", i, visit.chunk, chunk));
      if (visit.token >= 0) {
        SLIPSTREAM_RETURN_IF_ERROR(
            expect("visits", "owner of job visit", i, visit.owner, facts.token_owner[visit.token]));
        ++token_visits[visit.token];
      } else {
        ++null_visits[visit.owner];
      }
    }
    SLIPSTREAM_RETURN_IF_ERROR(
        check_all("tile", tile_visits, chunk, [](std::size_t) { return 1; }));
    SLIPSTREAM_RETURN_IF_ERROR(check_all("token", token_visits, chunk, [&](std::size_t token) {
      return facts.token_has_row[token] ? 1 : 0;
    }));
    SLIPSTREAM_RETURN_IF_ERROR(check_all("null job", null_visits, chunk, [&](std::size_t owner) {
      return facts.owner_tokens[owner] > 0 ? 0 : 1;
    }));
  }
  return Status::ok();
}

}  // namespace

Status check_invariants(const ScheduleView& view, std::span<const std::int32_t> tokens_per_rank,
                        std::span<const std::int32_t> topk_ids) {
  const RoutingFacts facts = derive_facts(view.shape, tokens_per_rank, topk_ids);
  SLIPSTREAM_RETURN_IF_ERROR(compare_counts("counts", *view.counts, facts.counts));
  for (const auto check :
       {check_owners, check_expert_ranges, check_slots, check_row_source, check_row_order,
        check_tiles, check_slot_tile, check_orders, check_visits})
    SLIPSTREAM_RETURN_IF_ERROR(check(view, facts));
  return Status::ok();
}

Status compare_schedules(const ScheduleView& a, const ScheduleView& b) {
  const auto shape_of = [](const ScheduleView& view) {
    return fmt::format("{} ranks, {} experts, top {}, {} segments", view.shape.num_ranks,
                       view.shape.num_experts, view.shape.topk, view.shape.num_segments);
  };
  if (shape_of(a) != shape_of(b)) return broken("equal tables", "shape", shape_of(a), shape_of(b));
  SLIPSTREAM_RETURN_IF_ERROR(compare_counts("equal tables", *a.counts, *b.counts));
  for (std::int32_t tile = 0; tile < a.counts->num_tiles; ++tile)
    SLIPSTREAM_RETURN_IF_ERROR(
        compare_tile("equal tables", tile, a.token_tile[tile], b.token_tile[tile]));
  const ScheduleCounts& counts = *a.counts;
  const std::int64_t num_groups = a.shape.num_groups();
  const std::int64_t num_pairs = std::int64_t{counts.num_tokens} * a.shape.topk;
  const std::tuple<const char*, const std::int32_t*, const std::int32_t*, std::int64_t> tables[] = {
      {"owner_token_begin", a.owner_token_begin, b.owner_token_begin, a.shape.num_ranks + 1},
      {"expert_row_begin", a.expert_row_begin, b.expert_row_begin, num_groups + 1},
      {"expert_tile_begin", a.expert_tile_begin, b.expert_tile_begin, num_groups + 1},
      {"slack", a.slack, b.slack, counts.num_tiles},
      {"slots", a.slots, b.slots, num_pairs},
      {"slot_tile", a.slot_tile, b.slot_tile, num_pairs},
      {"row_source", a.row_source, b.row_source, counts.num_rows},
      {"pull_order", a.pull_order, b.pull_order, counts.num_pull_tokens},
      {"job_order", a.job_order, b.job_order, counts.num_jobs},
      {"owner_num_jobs", a.owner_num_jobs, b.owner_num_jobs, a.shape.num_ranks}};
  for (const auto& [name, left, right, size] : tables) {
    for (std::int64_t i = 0; i < size; ++i)
      SLIPSTREAM_RETURN_IF_ERROR(expect("equal tables", name, i, left[i], right[i]));
  }
  return Status::ok();
}

#undef SLIPSTREAM_RETURN_IF_ERROR

}  // namespace slipstream
