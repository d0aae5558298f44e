#include "schedule/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedule/tile_policy.h"

namespace slipstream {

namespace {

void measure_experts(const ScheduleView& view, ScheduleStatistics& statistics) {
  std::vector<std::int64_t> rows(view.shape.num_experts, 0);
  for (std::int32_t tile = 0; tile < view.counts->num_tiles; ++tile)
    rows[view.token_tile[tile].expert] += view.token_tile[tile].num_rows;
  const auto [min, max] = std::ranges::minmax(rows);
  const double mean = static_cast<double>(view.counts->num_real_rows) / view.shape.num_experts;
  double square = 0;
  for (const std::int64_t count : rows) {
    const double distance = static_cast<double>(count) - mean;
    square += distance * distance;
  }
  statistics.min_expert_rows = static_cast<double>(min);
  statistics.mean_expert_rows = mean;
  statistics.max_expert_rows = static_cast<double>(max);
  statistics.stddev_expert_rows = std::sqrt(square / view.shape.num_experts);
}

// The part of a GEMM in which one tile is computed, in rows (times columns).
struct Span {
  std::int64_t begin;
  std::int64_t end;
};

// tile_of(i) is the tile that brings the i-th of `count` tokens or jobs; they ascend.
// has_happened(tile, tenths) says whether it has at that many tenths of the GEMM.
template <class TileOf, class Happened>
ReadinessCurve curve_of(std::int64_t count, std::int64_t total, TileOf tile_of,
                        Happened has_happened) {
  ReadinessCurve curve;
  curve.share.fill(1);
  if (count == 0) return curve;
  std::int64_t happened = 0;
  for (std::int64_t tenths = 1; tenths <= 10; ++tenths) {
    while (happened < count && has_happened(tile_of(happened), tenths)) ++happened;
    curve.share[tenths - 1] = static_cast<double>(happened) / static_cast<double>(count);
  }
  curve.half_after =
      static_cast<double>(tile_of((count - 1) / 2).begin) / static_cast<double>(total);
  return curve;
}

}  // namespace

ScheduleStatistics schedule_statistics(const ScheduleView& view) {
  const ScheduleCounts& counts = *view.counts;
  ScheduleStatistics statistics;
  statistics.num_tiles = counts.num_tiles;
  statistics.num_real_rows = counts.num_real_rows;
  // Rows computed when tile t begins; tile t ends where t + 1 begins.
  std::vector<std::int64_t> tile_begin(counts.num_tiles + 1, 0);
  for (std::int32_t tile = 0; tile < counts.num_tiles; ++tile) {
    statistics.num_computed_rows +=
        round_up(view.token_tile[tile].num_rows + view.slack[tile], kTileGranule);
    tile_begin[tile + 1] = statistics.num_computed_rows;
  }
  const std::int64_t all_rows = statistics.num_computed_rows;
  if (all_rows > 0) {
    statistics.padding_tax =
        1 - static_cast<double>(counts.num_real_rows) / static_cast<double>(all_rows);
  }
  measure_experts(view, statistics);

  // Tiles of a token's first and last row.
  const std::int32_t topk = view.shape.topk;
  const auto first_tile = [&](std::int32_t token) {
    std::int32_t tile = counts.num_tiles;
    for (std::int32_t k = 0; k < topk; ++k) {
      const std::int32_t candidate = view.slot_tile[std::int64_t{token} * topk + k];
      if (candidate >= 0) tile = std::min(tile, candidate);
    }
    return tile;
  };
  const auto last_tile = [&](std::int32_t token) {
    const std::int32_t* const tiles = view.slot_tile + std::int64_t{token} * topk;
    return *std::max_element(tiles, tiles + topk);
  };
  statistics.tokens_needed = curve_of(
      counts.num_pull_tokens, all_rows,
      [&](std::int64_t i) {
        const std::int32_t tile = first_tile(view.pull_order[i]);
        return Span{tile_begin[tile], tile_begin[tile + 1]};
      },
      [&](Span tile, std::int64_t tenths) { return tile.begin * 10 < all_rows * tenths; });

  const ColumnChunks& chunks = view.shape.chunks;
  const std::int32_t num_null_jobs = counts.num_jobs - counts.num_pull_tokens;
  const std::int64_t all_work = all_rows * chunks.begin[chunks.num_chunks];
  statistics.jobs_ready = curve_of(
      std::int64_t{counts.num_pull_tokens} * chunks.num_chunks, all_work,
      [&](std::int64_t i) {
        const auto chunk = static_cast<std::int32_t>(i / counts.num_pull_tokens);
        const std::int64_t job = num_null_jobs + i % counts.num_pull_tokens;
        const std::int32_t tile = last_tile(view.job_order[job]);
        const std::int64_t chunk_begin = all_rows * chunks.begin[chunk];
        const std::int64_t width = chunks.width(chunk);
        return Span{chunk_begin + tile_begin[tile] * width,
                    chunk_begin + tile_begin[tile + 1] * width};
      },
      [&](Span tile, std::int64_t tenths) { return tile.end * 10 <= all_work * tenths; });
  return statistics;
}

}  // namespace slipstream
