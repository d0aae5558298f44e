// What the table builder's phases read and write: inputs, the tables, and scratch memory that only
// they use. Host code binds it (host_builder.cc; on a GPU the launcher); the phases get it by
// value. Read builder_phases.h next.
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

// What one worker found; it alone writes its entry.
struct WorkerTotals {
  std::int32_t num_invalid_ids;      // count_groups
  std::uint32_t first_invalid_pair;  // count_groups; all ones for none
  std::int32_t num_real_rows;        // scan_workers: of the worker's groups
  std::int32_t num_rows;             // scan_workers: of the worker's groups, padding counted
  std::int32_t num_tiles;            // scan_workers: of the worker's groups
  std::int32_t max_tile_rows;        // scan_workers: of the worker's groups
  std::int32_t num_smallest;         // count_flags: of the worker's rows
  std::int32_t num_largest;          // count_flags: of the worker's rows
};

// A row's place in its token: set for one row of each token that has rows. May be the same row.
inline constexpr std::uint8_t kSmallestSlot = 1;
inline constexpr std::uint8_t kLargestSlot = 2;

// Nothing here needs to be initialised.
struct BuilderScratch {
  // [groups, workers]: rows of a group in a worker's share of the tokens, then their exclusive sum
  // over workers. A group's workers are adjacent, because scanning them is the only access in
  // order; counting goes to random groups either way.
  std::int32_t* worker_rows = nullptr;
  WorkerTotals* worker_totals = nullptr;        // [workers]
  std::int32_t* worker_owner_tokens = nullptr;  // [workers, W]: tokens with a row, by owner
  std::int32_t* owner_tokens = nullptr;         // [W]: the sum of that over workers
  std::int32_t* group_real_rows = nullptr;      // [groups]
  std::int32_t* group_tile_rows = nullptr;  // [groups]: rows from one tile's begin to the next's
  std::uint8_t* row_flags = nullptr;        // [capacity.num_rows]
};

struct BuilderArgs {
  ScheduleShape shape;
  std::int32_t num_workers = 1;
  const std::int32_t* tokens_per_rank = nullptr;  // [W]
  const std::int32_t* topk_ids = nullptr;         // [S, K] global, rank 0's tokens first
  ScheduleTables tables;
  BuilderScratch scratch;
};

// The one list of scratch fields: field(pointer, num_elements) for each, largest alignment first.
template <class Field>
SLIPSTREAM_HD void for_each_scratch_field(BuilderScratch& scratch, const ScheduleShape& shape,
                                          std::int64_t num_workers, std::int64_t max_rows,
                                          Field field) {
  const std::int64_t num_groups = shape.num_groups();
  field(scratch.worker_rows, num_groups * num_workers);
  field(scratch.worker_totals, num_workers);
  field(scratch.worker_owner_tokens, num_workers * shape.num_ranks);
  field(scratch.owner_tokens, std::int64_t{shape.num_ranks});
  field(scratch.group_real_rows, num_groups);
  field(scratch.group_tile_rows, num_groups);
  field(scratch.row_flags, max_rows);
}

SLIPSTREAM_HD inline std::int64_t builder_scratch_bytes(const ScheduleShape& shape,
                                                        std::int64_t num_workers,
                                                        std::int64_t max_rows) {
  std::int64_t bytes = 0;
  BuilderScratch scratch;
  for_each_scratch_field(scratch, shape, num_workers, max_rows,
                         [&]<class T>(T*&, std::int64_t count) {
                           bytes += count * static_cast<std::int64_t>(sizeof(T));
                         });
  return bytes;
}

// `base` has builder_scratch_bytes() bytes of 4-byte alignment. `max_rows` is capacity.num_rows.
SLIPSTREAM_HD inline BuilderScratch bind_builder_scratch(void* base, const ScheduleShape& shape,
                                                         std::int64_t num_workers,
                                                         std::int64_t max_rows) {
  BuilderScratch scratch;
  auto* next = static_cast<unsigned char*>(base);
  for_each_scratch_field(scratch, shape, num_workers, max_rows,
                         [&]<class T>(T*& pointer, std::int64_t count) {
                           static_assert(alignof(T) <= 4, "fields are packed at 4 bytes");
                           pointer = reinterpret_cast<T*>(next);
                           next += count * static_cast<std::int64_t>(sizeof(T));
                         });
  return scratch;
}

}  // namespace slipstream
