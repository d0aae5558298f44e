// What the builder's phases share: how work is cut into shares, which row a routed pair is, and
// what one pair and one token write. Read builder_phases.h, which says how they play together.
#pragma once

#include <cstdint>

#include "schedule/builder_args.h"
#include "slipstream/routing.h"

namespace slipstream::builder {

struct Range {
  std::int32_t begin;
  std::int32_t end;
};

SLIPSTREAM_HD inline Range share_of(std::int32_t total, std::int32_t worker,
                                    std::int32_t num_workers) {
  const std::int64_t all = total;
  return Range{static_cast<std::int32_t>(all * worker / num_workers),
               static_cast<std::int32_t>(all * (worker + 1) / num_workers)};
}

// Whose token is it. The loops have constant bounds, so that the array stays in registers.
struct OwnerRanges {
  std::int32_t begin[kMaxRanks + 1];

  SLIPSTREAM_HD explicit OwnerRanges(const BuilderArgs& args) {
    begin[0] = 0;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      const bool exists = rank < args.shape.num_ranks;
      begin[rank + 1] = begin[rank] + (exists ? args.tokens_per_rank[rank] : 0);
    }
  }

  SLIPSTREAM_HD std::int32_t num_tokens() const { return begin[kMaxRanks]; }

  SLIPSTREAM_HD std::int32_t owner_of(std::int32_t token) const {
    std::int32_t owner = 0;
    for (int rank = 1; rank < kMaxRanks; ++rank) owner += token >= begin[rank] ? 1 : 0;
    return owner;
  }

  SLIPSTREAM_HD Range range_of(std::int32_t token) const {
    Range range{0, 0};
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (token >= begin[rank]) range = Range{begin[rank], begin[rank + 1]};
    }
    return range;
  }

  // First token in rotated order.
  SLIPSTREAM_HD std::int32_t first_token(const ScheduleShape& shape) const {
    std::int32_t first = 0;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (rank == shape.rank) first = begin[rank];
    }
    return shape.row_order == RowOrder::kLocalFirst ? first : 0;
  }
};

// The `index`-th token in rotated order.
SLIPSTREAM_HD inline std::int32_t rotate(std::int32_t index, std::int32_t first,
                                         std::int32_t num_tokens) {
  const std::int32_t until_wrap = num_tokens - first;
  return index < until_wrap ? index + first : index - until_wrap;
}

struct Pair {
  std::int32_t index;   // j * K + k
  std::int32_t expert;  // as the caller gave it
  std::int32_t group;   // -1 where no row
};

SLIPSTREAM_HD inline Pair load_pair(const BuilderArgs& args, const OwnerRanges& owners,
                                    std::int32_t rotated_pair) {
  const ScheduleShape& shape = args.shape;
  const std::int32_t k = rotated_pair % shape.topk;
  const std::int32_t token =
      rotate(rotated_pair / shape.topk, owners.first_token(shape), owners.num_tokens());
  const std::int32_t index = token * shape.topk + k;
  const std::int32_t expert = args.topk_ids[index];
  if (!is_routed(expert, shape.num_experts)) return Pair{index, expert, -1};
  std::int32_t segment = 0;
  if (shape.num_segments > 1) {
    const Range range = owners.range_of(token);
    segment = static_cast<std::int32_t>(std::int64_t{token - range.begin} * shape.num_segments /
                                        (range.end - range.begin));
  }
  return Pair{index, expert, segment * shape.num_experts + expert};
}

// Writes one pair's entries; `before` rows of its group come earlier.
SLIPSTREAM_HD inline void write_pair(const BuilderArgs& args, const Pair& pair,
                                     std::int32_t before) {
  const ScheduleTables& tables = args.tables;
  const std::int32_t row_begin = tables.expert_row_begin[pair.group];
  const std::int32_t tile_rows = args.scratch.group_tile_rows[pair.group];
  const std::int32_t tile = tables.expert_tile_begin[pair.group] + before / tile_rows;
  tables.slots[pair.index] = row_begin + before;
  tables.slot_tile[pair.index] = tile;
  tables.row_source[row_begin + before] = pair.index;
  if (before % tile_rows != 0) return;
  // Every tile has a real first row, so exactly one pair describes it.
  const std::int32_t real_left = args.scratch.group_real_rows[pair.group] - before;
  const std::int32_t left = tables.expert_row_begin[pair.group + 1] - row_begin - before;
  const std::int32_t num_rows = real_left < tile_rows ? real_left : tile_rows;
  tables.token_tile[tile] = TokenTile{pair.expert, row_begin + before, num_rows};
  tables.slack[tile] = (left < tile_rows ? left : tile_rows) - num_rows;
}

// Flags the rows of one token, whose slots are written. Returns whether it has any.
SLIPSTREAM_HD inline bool flag_token(const BuilderArgs& args, std::int32_t token) {
  const std::int32_t topk = args.shape.topk;
  const std::int32_t* const slots = args.tables.slots + std::int64_t{token} * topk;
  std::int32_t smallest = -1;
  std::int32_t largest = -1;
  for (std::int32_t k = 0; k < topk; ++k) {
    const std::int32_t slot = slots[k];
    if (slot >= 0 && (smallest < 0 || slot < smallest)) smallest = slot;
    if (slot > largest) largest = slot;
  }
  for (std::int32_t k = 0; k < topk; ++k) {
    const std::int32_t slot = slots[k];
    if (slot < 0) continue;
    args.scratch.row_flags[slot] = static_cast<std::uint8_t>(
        (slot == smallest ? kSmallestSlot : 0) | (slot == largest ? kLargestSlot : 0));
  }
  return largest >= 0;
}

// Adds get(totals) over workers [begin, end).
template <class Lanes, class Get>
SLIPSTREAM_HD std::int32_t sum_over_workers(const BuilderArgs& args, Range workers, Get get) {
  typename Lanes::template Value<std::int32_t> sums;
  Lanes::each([&](int lane) {
    sums[lane] = 0;
    for (std::int32_t worker = workers.begin + lane; worker < workers.end; worker += Lanes::kWidth)
      sums[lane] += get(args.scratch.worker_totals[worker]);
  });
  return Lanes::sum(sums);
}

}  // namespace slipstream::builder
