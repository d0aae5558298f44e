// How the rows of one (segment, expert) group become tiles. The one place that both builders ask.
// Read golden.h next.
#pragma once

#include <cstdint>

#include "slipstream/config.h"
#include "slipstream/schedule.h"

namespace slipstream {

inline constexpr std::int32_t kFixedTileRows = 128;
// wgmma takes tokens on its N side in steps of 8, so a tile computes a multiple of 8 rows.
inline constexpr std::int32_t kTileGranule = 8;

// Not negative, as all counts here. The sum stays inside unsigned 32 bits.
SLIPSTREAM_HD constexpr std::int32_t ceil_div(std::int32_t value, std::int32_t divisor) {
  return static_cast<std::int32_t>(
      (static_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(divisor) - 1U) /
      static_cast<std::uint32_t>(divisor));
}

SLIPSTREAM_HD constexpr std::int32_t round_up(std::int32_t value, std::int32_t step) {
  return ceil_div(value, step) * step;
}

struct GroupTiles {
  std::int32_t num_tiles;  // 0 for a group without rows
  std::int32_t tile_rows;  // rows from one tile's begin to the next one's; 0 without rows
  std::int32_t num_rows;   // rows the group occupies, padding counted
  std::int32_t capacity;   // largest num_rows + slack of its tiles
};

// Balanced: t = ceil(n / max) tiles of round_up(ceil(n / t), 8) rows; only the last may be shorter,
// and it is never empty, because (t - 1) * max < n and a tile is at most max.
SLIPSTREAM_HD inline GroupTiles group_tiles(const ScheduleShape& shape, std::int32_t real_rows) {
  if (real_rows == 0) return GroupTiles{0, 0, 0, 0};
  if (shape.tile_policy == TilePolicy::kFixed128) {
    const std::int32_t num_tiles = ceil_div(real_rows, kFixedTileRows);
    return GroupTiles{num_tiles, kFixedTileRows, num_tiles * kFixedTileRows, kFixedTileRows};
  }
  const std::int32_t num_tiles = ceil_div(real_rows, shape.tile_max_rows);
  const std::int32_t tile_rows = round_up(ceil_div(real_rows, num_tiles), kTileGranule);
  return GroupTiles{num_tiles, tile_rows, real_rows, tile_rows < real_rows ? tile_rows : real_rows};
}

// Most rows, padding counted, that any routing of num_tokens tokens has: only a group with a row is
// padded, by less than a tile.
SLIPSTREAM_HD inline std::int64_t rows_bound(const ScheduleShape& shape, std::int64_t num_tokens) {
  const std::int64_t num_pairs = num_tokens * shape.topk;
  if (shape.tile_policy != TilePolicy::kFixed128) return num_pairs;
  const std::int64_t groups = num_pairs < shape.num_groups() ? num_pairs : shape.num_groups();
  return num_pairs + groups * (kFixedTileRows - 1);
}

}  // namespace slipstream
