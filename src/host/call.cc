#include "host/call.h"

#include <algorithm>

#include "schedule/tile_policy.h"

namespace slipstream::host {

namespace {

LocalShape shape_of(const HostLayer& layer, std::int32_t num_blocks) {
  const ColumnChunks& chunks = layer.tuning.chunks;
  LocalShape shape;
  shape.delivery = layer.tuning.delivery;
  shape.num_ranks = layer.problem.num_ranks;
  shape.hidden = layer.problem.hidden;
  shape.width = layer.problem.intermediate_per_rank();
  shape.num_chunks = chunks.num_chunks;
  shape.ring_chunks = layer.tuning.ring_chunks;
  for (std::int32_t c = 0; c < chunks.num_chunks; ++c)
    shape.max_chunk_width = std::max<std::int64_t>(shape.max_chunk_width, chunks.width(c));
  shape.num_blocks = num_blocks;
  return shape;
}

}  // namespace

LocalShape largest_local_shape(const HostLayer& layer) {
  const std::int64_t num_tokens = std::int64_t{layer.problem.num_ranks} * layer.problem.max_tokens;
  const ScheduleCapacity capacity = schedule_capacity(layer.schedule_shape, num_tokens);
  LocalShape shape = shape_of(layer, layer.num_blocks);
  shape.num_tokens = num_tokens;
  shape.num_rows = capacity.num_rows;
  shape.num_tiles = capacity.num_tiles;
  shape.max_tile_rows = std::min<std::int64_t>(
      capacity.num_rows, std::max(layer.tuning.tile_max_rows, kFixedTileRows));
  return shape;
}

LocalShape local_shape(const HostLayer& layer, const ScheduleCounts& counts,
                       std::int32_t num_blocks) {
  LocalShape shape = shape_of(layer, num_blocks);
  shape.num_tokens = counts.num_tokens;
  shape.num_rows = counts.num_rows;
  shape.num_tiles = counts.num_tiles;
  shape.max_tile_rows = counts.max_tile_rows;
  return shape;
}

}  // namespace slipstream::host
