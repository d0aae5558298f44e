// A rank's own buffers of a call: rows on their way through the two GEMMs, and the counters between
// its threads. Nobody else sees them. One field list gives sizes and pointers, like the symmetric
// region's. Laid out by publish_plan for the call's true counts; the memory behind it is the
// workspace's and holds the largest call of its layers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/protocol.h"
#include "slipstream/problem.h"
#include "slipstream/tuning.h"
#include "symmetric/region_layout.h"

namespace slipstream::host {

struct LocalShape {
  Delivery delivery = Delivery::kGather;
  std::int64_t num_ranks = 1;
  std::int64_t num_tokens = 0;  // S
  std::int64_t num_rows = 0;    // P
  std::int64_t num_tiles = 0;
  std::int64_t max_tile_rows = 0;
  std::int64_t hidden = 0;
  std::int64_t width = 0;  // I
  std::int64_t num_chunks = 1;
  std::int64_t ring_chunks = 1;
  std::int64_t max_chunk_width = 0;
  std::int64_t num_blocks = 1;

  // kGather keeps each token once and a tile's rows are put together by the block that computes it;
  // kScatter keeps each token's row K times, in the order of the tiles.
  std::int64_t num_delivered_rows() const {
    return delivery == Delivery::kGather ? num_tokens : num_rows;
  }
  std::int64_t tile_x_floats() const {
    return delivery == Delivery::kGather ? max_tile_rows * hidden : 0;
  }
  std::int64_t gate_floats() const { return max_tile_rows * width; }
  std::int64_t scratch_floats() const {
    return tile_x_floats() + 2 * gate_floats() + 2 * max_chunk_width;
  }
};

// Where one block works on a tile or a job.
struct Scratch {
  float* tile_x;  // [max_tile_rows, H], kGather only
  float* gate;    // [max_tile_rows, I]
  float* up;      // [max_tile_rows, I]
  float* sum;     // [max_chunk_width]
  float* addend;  // [max_chunk_width]
};

struct LocalBuffers {
  float* x;                          // [num_delivered_rows, H]
  float* y;                          // [P, I]
  float* ring;                       // [ring_chunks, P, max_chunk_width]
  protocol::TokenGate* token_gates;  // [num_tiles]
  protocol::TileDone* tile_done;     // [num_chunks, num_tiles]
  protocol::TileDone* chunk_read;    // [num_chunks], right behind tile_done: jobs that have read it
  protocol::Election* elections;     // [W, num_chunks]
  float* scratch;                    // [num_blocks, scratch_floats]
};

template <class Visit>
void for_each_local_field(const LocalShape& shape, LocalBuffers& buffers, Visit&& visit) {
  constexpr std::int64_t kFloat = sizeof(float);
  visit(buffers.x, shape.num_delivered_rows() * shape.hidden * kFloat);
  visit(buffers.y, shape.num_rows * shape.width * kFloat);
  visit(buffers.ring, shape.ring_chunks * shape.num_rows * shape.max_chunk_width * kFloat);
  visit(buffers.token_gates, shape.num_tiles * std::int64_t{sizeof(protocol::TokenGate)});
  visit(buffers.tile_done,
        shape.num_chunks * (shape.num_tiles + 1) * std::int64_t{sizeof(protocol::TileDone)});
  visit(buffers.elections,
        shape.num_ranks * shape.num_chunks * std::int64_t{sizeof(protocol::Election)});
  visit(buffers.scratch, shape.num_blocks * shape.scratch_floats() * kFloat);
}

inline std::int64_t local_bytes(const LocalShape& shape) {
  LocalBuffers unused{};
  RegionByteCounter counter;
  for_each_local_field(shape, unused, counter);
  return counter.bytes;
}

inline LocalBuffers local_buffers_at(std::byte* base, const LocalShape& shape) {
  LocalBuffers buffers{};
  RegionPointerSetter setter{base};
  for_each_local_field(shape, buffers, setter);
  buffers.chunk_read = buffers.tile_done + shape.num_chunks * shape.num_tiles;
  return buffers;
}

inline Scratch scratch_of_block(const LocalBuffers& buffers, const LocalShape& shape,
                                std::int64_t block) {
  float* base = buffers.scratch + block * shape.scratch_floats();
  Scratch scratch{};
  scratch.tile_x = base;
  scratch.gate = scratch.tile_x + shape.tile_x_floats();
  scratch.up = scratch.gate + shape.gate_floats();
  scratch.sum = scratch.up + shape.gate_floats();
  scratch.addend = scratch.sum + shape.max_chunk_width;
  return scratch;
}

}  // namespace slipstream::host
