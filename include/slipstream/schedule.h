// Schedule: the tables that turn dynamic routing into a static layout. Plain data, host and device.
//
// All tables are a pure function of the global topk_ids, the token counts per rank and the Tuning.
// The row layout is local to a rank, so ranks need not agree on it. Golden builder and device
// builder give the same tables element for element.
//
// Terms. Token j is a global index: the tokens of rank 0, then of rank 1, ... (owner_token_begin).
// A row is one routed (token, k) pair; its slot is its index in gathered order. Rows are sorted by
// (segment, expert) group, inside a group by the Tuning's RowOrder. The segment of an owner's local
// token t out of T is floor(t * num_segments / T): every segment holds tokens of every owner.
//
// Tiles. A group of n > 0 rows becomes tiles of its own; one without rows has none. balanced:
// t = ceil(n / tile_max_rows) tiles of round_up(ceil(n / t), 8) rows each, the last one what is
// left; rows are compact and slack is 0. fixed128 (which ignores tile_max_rows): ceil(n / 128)
// tiles of 128 rows, the n real rows first; the padding is the last tile's slack.
#pragma once

#include <cstdint>

#include "slipstream/config.h"
#include "slipstream/tuning.h"

namespace slipstream {

// Consecutive rows of one expert that one GEMM tile takes: the unit of arithmetic and of
// signalling. Tile i's rows are [row_begin, row_begin + num_rows); its capacity is
// num_rows + slack[i].
struct TokenTile {
  std::int32_t expert;
  std::int32_t row_begin;
  std::int32_t num_rows;
};

// What routing alone decides. On the device it is written by the builder and read by the kernels.
struct ScheduleCounts {
  std::int32_t num_tokens;          // S, over all ranks
  std::int32_t num_real_rows;       // routed (token, k) pairs
  std::int32_t num_rows;            // P: real rows and padding
  std::int32_t num_tiles;           // token tiles
  std::int32_t num_pull_tokens;     // tokens with at least one row
  std::int32_t num_jobs;            // jobs per column chunk, null jobs counted
  std::int32_t num_invalid_ids;     // ids that are neither -1 nor 0..E-1
  std::int32_t first_invalid_pair;  // smallest j * K + k of such an id, or -1
  std::int32_t max_tile_rows;       // largest num_rows + slack
};

// Fixed at layer creation.
struct ScheduleShape {
  std::int32_t num_ranks = 1;
  std::int32_t rank = 0;  // "me": where local-first row order starts
  std::int32_t num_experts = 1;
  std::int32_t topk = 1;
  TilePolicy tile_policy = TilePolicy::kBalanced;
  RowOrder row_order = RowOrder::kLocalFirst;
  std::int32_t tile_max_rows = 288;
  std::int32_t num_segments = 1;
  ColumnChunks chunks;

  SLIPSTREAM_HD std::int32_t num_groups() const { return num_segments * num_experts; }
};

// A job is one token's combine on this rank, of one column chunk. The order of jobs inside a chunk
// is the same for all chunks, so it is stored once: job_order[i] is a token j >= 0, or -1 - owner
// for the null job of an owner that has no token with a row. Null jobs come first, by owner; then
// tokens by their largest slot, that is by when their last tile is finished.
struct ScheduleView {
  ScheduleShape shape;
  const ScheduleCounts* counts = nullptr;
  const std::int32_t* owner_token_begin = nullptr;  // [W + 1] prefix sum of tokens per owner
  const std::int32_t* expert_row_begin = nullptr;   // [groups + 1], group = segment * E + expert
  const std::int32_t* expert_tile_begin = nullptr;  // [groups + 1]
  const TokenTile* token_tile = nullptr;            // [num_tiles], in consumption order
  const std::int32_t* slack = nullptr;              // [num_tiles], seed of the arrival counter
  const std::int32_t* slots = nullptr;              // [S, K], slot of (j, k) or -1
  const std::int32_t* slot_tile = nullptr;          // [S, K], tile of (j, k) or -1
  const std::int32_t* row_source = nullptr;         // [P], j * K + k or -1 for padding
  const std::int32_t* pull_order = nullptr;         // [num_pull_tokens], tokens by smallest slot
  const std::int32_t* job_order = nullptr;          // [num_jobs], see above
  const std::int32_t* owner_num_jobs = nullptr;     // [W], jobs of any one chunk; at least 1
};

// Kernel 2's two orders, spelled by position so that no table of chunks x tiles is stored.
// tile_order visits (chunk, segment, tile): rows are segment-major, so that is (chunk, tile index).
struct TileVisit {
  std::int32_t chunk;
  std::int32_t tile;
};
// `token` is -1 for a null job.
struct JobVisit {
  std::int32_t chunk;
  std::int32_t owner;
  std::int32_t token;
};

SLIPSTREAM_HD inline std::int32_t owner_of_token(const ScheduleView& view, std::int32_t token) {
  std::int32_t owner = 0;
  while (owner + 1 < view.shape.num_ranks && token >= view.owner_token_begin[owner + 1]) ++owner;
  return owner;
}

SLIPSTREAM_HD inline TileVisit tile_order_at(const ScheduleView& view, std::int64_t position) {
  const std::int32_t num_tiles = view.counts->num_tiles;
  return TileVisit{static_cast<std::int32_t>(position / num_tiles),
                   static_cast<std::int32_t>(position % num_tiles)};
}

SLIPSTREAM_HD inline JobVisit job_order_at(const ScheduleView& view, std::int64_t position) {
  const std::int32_t num_jobs = view.counts->num_jobs;
  const std::int32_t job = view.job_order[position % num_jobs];
  const auto chunk = static_cast<std::int32_t>(position / num_jobs);
  if (job < 0) return JobVisit{chunk, -1 - job, -1};
  return JobVisit{chunk, owner_of_token(view, job), job};
}

}  // namespace slipstream
