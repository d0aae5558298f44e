// What the table builder's phases read and write: inputs, the tables, scratch in device memory that
// all shares see, and scratch in fast memory (a block's shared memory) that one team has. Host code
// or the kernel binds it; the phases get it by value. Read builder_phases.h next.
#pragma once

#include <cstdint>

#include "slipstream/schedule.h"

namespace slipstream {

// The tables of ScheduleView, to be written. Sizes: schedule_capacity().
struct ScheduleTables {
  ScheduleCounts* counts = nullptr;
  std::int32_t* owner_token_begin = nullptr;  // [W + 1]
  std::int32_t* expert_row_begin = nullptr;   // [groups + 1]
  std::int32_t* expert_tile_begin = nullptr;  // [groups + 1]
  TokenTile* token_tile = nullptr;            // [capacity.num_tiles]
  std::int32_t* slack = nullptr;              // [capacity.num_tiles]
  std::int32_t* slots = nullptr;              // [S, K]
  std::int32_t* slot_tile = nullptr;          // [S, K]
  std::int32_t* row_source = nullptr;         // [capacity.num_rows]
  std::int32_t* pull_order = nullptr;         // [capacity.num_jobs]
  std::int32_t* job_order = nullptr;          // [capacity.num_jobs]
  std::int32_t* owner_num_jobs = nullptr;     // [W]
};

// What one share found out; its team alone writes it.
struct ShareTotals {
  std::int32_t num_invalid_ids;
  std::int32_t num_real_rows;
  std::uint32_t first_invalid_pair;      // all ones for none
  std::int32_t owner_tokens[kMaxRanks];  // tokens with a row, by owner
};

// Seen by all shares. Nothing here needs to be initialised.
struct BuilderScratch {
  std::int32_t* share_rows = nullptr;      // [shares, groups]: rows of a group in a share's tokens
  ShareTotals* share_totals = nullptr;     // [shares]
  std::uint32_t* smallest_bits = nullptr;  // a bit per row: it is some token's smallest slot
  std::uint32_t* largest_bits = nullptr;   // likewise largest
};

// One team's own. Nothing needs to be initialised, nothing is kept from share to share, but for
// warp_rows between count_share and assign_share of the same share.
struct TeamScratch {
  std::int32_t num_warps = 1;          // that count; the others have no room for a row of warp_rows
  std::int32_t* warp_rows = nullptr;   // [num_warps, groups]
  std::int32_t* slot_base = nullptr;   // [groups]: slot of the share's first row of the group
  std::int32_t* row_begin = nullptr;   // [groups + 1]
  std::int32_t* tile_begin = nullptr;  // [groups + 1]
  std::int32_t* tile_rows = nullptr;   // [groups]
  std::int32_t* real_rows = nullptr;   // [groups]
  std::int32_t* owner_tokens = nullptr;  // [kMaxRanks]
  // [2, prefix_words]: rows flagged before a word of bits. Shares memory with warp_rows.
  std::int32_t* bit_prefix = nullptr;
  std::int32_t prefix_words = 0;
};

struct BuilderArgs {
  ScheduleShape shape;
  std::int32_t num_shares = 1;
  const std::int32_t* tokens_per_rank = nullptr;  // [W]
  const std::int32_t* topk_ids = nullptr;         // [S, K] global, rank 0's tokens first
  ScheduleTables tables;
  BuilderScratch scratch;
};

SLIPSTREAM_HD constexpr std::int64_t bit_words(std::int64_t num_rows) {
  return (num_rows + 31) / 32;
}

// The one list of scratch fields: field(pointer, num_elements) for each.
template <class Field>
SLIPSTREAM_HD void for_each_scratch_field(BuilderScratch& scratch, const ScheduleShape& shape,
                                          std::int64_t num_shares, std::int64_t max_rows,
                                          Field field) {
  field(scratch.share_rows, num_shares * shape.num_groups());
  field(scratch.share_totals, num_shares);
  field(scratch.smallest_bits, bit_words(max_rows));
  field(scratch.largest_bits, bit_words(max_rows));
}

inline constexpr std::int64_t kMinPrefixWords = 512;

template <class Field>
SLIPSTREAM_HD void for_each_team_field(TeamScratch& team, const ScheduleShape& shape, Field field) {
  const std::int64_t num_groups = shape.num_groups();
  const std::int64_t rows = team.num_warps * num_groups;
  const std::int64_t prefix = rows / 2 > kMinPrefixWords ? rows / 2 : kMinPrefixWords;
  team.prefix_words = static_cast<std::int32_t>(prefix);
  field(team.warp_rows, rows > 2 * prefix ? rows : 2 * prefix);
  team.bit_prefix = team.warp_rows;
  field(team.slot_base, num_groups);
  field(team.row_begin, num_groups + 1);
  field(team.tile_begin, num_groups + 1);
  field(team.tile_rows, num_groups);
  field(team.real_rows, num_groups);
  field(team.owner_tokens, std::int64_t{kMaxRanks});
}

struct FieldBytes {
  std::int64_t bytes = 0;
  template <class T>
  SLIPSTREAM_HD void operator()(T*&, std::int64_t count) {
    bytes += count * static_cast<std::int64_t>(sizeof(T));
  }
};

struct FieldBinder {
  unsigned char* next;
  template <class T>
  SLIPSTREAM_HD void operator()(T*& pointer, std::int64_t count) {
    static_assert(alignof(T) <= 4, "fields are packed at 4 bytes");
    pointer = reinterpret_cast<T*>(next);
    next += count * static_cast<std::int64_t>(sizeof(T));
  }
};

// Calls a field list with a reference to the visitor, so that its sum or position survives.
template <class Visitor>
struct FieldRef {
  Visitor* visitor;
  template <class T>
  SLIPSTREAM_HD void operator()(T*& pointer, std::int64_t count) {
    (*visitor)(pointer, count);
  }
};

SLIPSTREAM_HD inline std::int64_t builder_scratch_bytes(const ScheduleShape& shape,
                                                        std::int64_t num_shares,
                                                        std::int64_t max_rows) {
  FieldBytes counter;
  BuilderScratch scratch;
  for_each_scratch_field(scratch, shape, num_shares, max_rows, FieldRef<FieldBytes>{&counter});
  return counter.bytes;
}

// `base` has builder_scratch_bytes() bytes of 4-byte alignment. `max_rows` is capacity.num_rows.
SLIPSTREAM_HD inline BuilderScratch bind_builder_scratch(void* base, const ScheduleShape& shape,
                                                         std::int64_t num_shares,
                                                         std::int64_t max_rows) {
  FieldBinder binder{static_cast<unsigned char*>(base)};
  BuilderScratch scratch;
  for_each_scratch_field(scratch, shape, num_shares, max_rows, FieldRef<FieldBinder>{&binder});
  return scratch;
}

SLIPSTREAM_HD inline std::int64_t team_scratch_bytes(const ScheduleShape& shape,
                                                     std::int32_t num_warps) {
  FieldBytes counter;
  TeamScratch team;
  team.num_warps = num_warps;
  for_each_team_field(team, shape, FieldRef<FieldBytes>{&counter});
  return counter.bytes;
}

SLIPSTREAM_HD inline TeamScratch bind_team_scratch(void* base, const ScheduleShape& shape,
                                                   std::int32_t num_warps) {
  FieldBinder binder{static_cast<unsigned char*>(base)};
  TeamScratch team;
  team.num_warps = num_warps;
  for_each_team_field(team, shape, FieldRef<FieldBinder>{&binder});
  return team;
}

// As many warps as fit into `bytes` of fast memory, at most max_warps, at least one: kMaxGroups
// take 193 KB with one warp.
SLIPSTREAM_HD inline std::int32_t fitting_warps(const ScheduleShape& shape, std::int64_t bytes,
                                                std::int32_t max_warps) {
  std::int32_t num_warps = max_warps;
  while (num_warps > 1 && team_scratch_bytes(shape, num_warps) > bytes) num_warps /= 2;
  return num_warps;
}

}  // namespace slipstream
