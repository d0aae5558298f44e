// HostLayer: what a layer is on the host backend. HostCall: one call of one rank, as its roles see
// it: publish_plan fills it, gather_gate_up and down_reduce_push work through it, final_reduce ends
// it.
#pragma once

#include <chrono>
#include <cstdint>

#include "host/host_rank.h"
#include "host/host_weights.h"
#include "host/local_buffers.h"
#include "protocol/protocol.h"
#include "slipstream/layer.h"
#include "slipstream/problem.h"
#include "slipstream/schedule.h"
#include "slipstream/tuning.h"
#include "symmetric/call_signature.h"

namespace slipstream::host {

struct HostLayer {
  Problem problem;
  Tuning tuning;
  HostWeights weights;
  CallSignature signature;
  ScheduleShape schedule_shape;
  std::int32_t num_blocks = 1;  // of a launch: threads_per_rank
};

// The largest call of the layer.
LocalShape largest_local_shape(const HostLayer& layer);
// This call's, once its counts are known.
LocalShape local_shape(const HostLayer& layer, const ScheduleCounts& counts,
                       std::int32_t num_blocks);

struct HostCall {
  HostCall(HostRank& its_rank, const HostLayer& its_layer, const LayerInput& its_input,
           const TensorView& its_out, std::int32_t its_num_blocks)
      : rank(its_rank),
        layer(its_layer),
        input(its_input),
        out(its_out),
        num_blocks(its_num_blocks) {}

  HostRank& rank;
  const HostLayer& layer;
  const LayerInput input;
  const TensorView out;
  const std::int32_t num_blocks;

  // Set by publish_plan's only block; constant from the next launch on. Without is_accepted there
  // is no schedule and the roles have nothing to do: the call was rejected (call_error), or the
  // group has failed.
  bool is_accepted = false;
  Status call_error;
  ScheduleView schedule;
  LocalShape shape;
  LocalBuffers buffers{};

  // What the blocks share.
  protocol::Dispenser pulls{};          // batches of tokens of pull_order
  protocol::Dispenser gate_up_tiles{};  // tiles of kernel 1
  protocol::Dispenser down_tiles{};     // positions of tile_order
  protocol::Dispenser jobs{};           // positions of job_order
  protocol::Dispenser pieces{};         // pieces of the final reduce

  std::int32_t my_rank() const { return rank.peers.rank; }
  std::int32_t num_ranks() const { return layer.problem.num_ranks; }
  const ColumnChunks& chunks() const { return layer.tuning.chunks; }

  protocol::TileDone& tile_done(std::int32_t chunk, std::int32_t tile) const {
    return buffers.tile_done[std::int64_t{chunk} * shape.num_tiles + tile];
  }
  protocol::Election& election(std::int32_t owner, std::int32_t chunk) const {
    return buffers.elections[std::int64_t{owner} * shape.num_chunks + chunk];
  }
  // Row `slot` of chunk `chunk` in the ring.
  float* ring_row(std::int32_t chunk, std::int64_t slot) const {
    const std::int64_t buffer = chunk % shape.ring_chunks;
    return buffers.ring + (buffer * shape.num_rows + slot) * shape.max_chunk_width;
  }
  // Row `token` (local to `owner`) of a staging plane in owner's region.
  std::byte* staged_row(std::int32_t owner, std::int32_t writer, std::int64_t token) const {
    const PeerTable& peers = rank.peers;
    const std::int64_t row_bytes =
        std::int64_t{layer.problem.hidden} * dtype_bytes(layer.tuning.partial_dtype);
    return staging_plane(peers.region(owner), peers.shape, writer) + token * row_bytes;
  }
  bool has_row(std::int32_t token) const {
    const std::int32_t topk = layer.problem.topk;
    for (std::int32_t k = 0; k < topk; ++k)
      if (schedule.slots[std::int64_t{token} * topk + k] >= 0) return true;
    return false;
  }
};

}  // namespace slipstream::host
