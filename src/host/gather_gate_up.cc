#include "host/gather_gate_up.h"

#include <algorithm>
#include <cstring>

#include "core/numeric.h"
#include "host/host_gemm.h"
#include "host/swiglu.h"

namespace slipstream::host {

using protocol::GateState;
using protocol::kNoTicket;
using protocol::mutated;
using protocol::Mutation;
using protocol::SpinContext;

namespace {

constexpr std::int64_t kPullBatch = 4;  // tokens that a block takes at once

std::int64_t num_pull_batches(const HostCall& call) {
  return (call.schedule.counts->num_pull_tokens + kPullBatch - 1) / kPullBatch;
}

// Each of the token's rows is one arrival at its tile's gate.
void arrive_at_tiles(const HostCall& call, std::int32_t token) {
  const std::int64_t topk = call.layer.problem.topk;
  for (std::int64_t pair = token * topk; pair < (token + 1) * topk; ++pair) {
    const std::int32_t tile = call.schedule.slot_tile[pair];
    if (tile >= 0) call.buffers.token_gates[tile].arrive();
  }
}

void pull_token(const HostCall& call, std::int32_t token) {
  const Problem& problem = call.layer.problem;
  const std::int64_t hidden = problem.hidden;
  const std::int64_t topk = problem.topk;
  const std::int32_t owner = owner_of_token(call.schedule, token);
  const std::int64_t local = token - call.schedule.owner_token_begin[owner];
  const std::byte* source =
      call.rank.peers.region(owner).tokens + local * hidden * dtype_bytes(problem.dtype);
  if (call.shape.delivery == Delivery::kGather) {
    to_float(source, problem.dtype, hidden, call.buffers.x + token * hidden);
    return;
  }
  const float* first_copy = nullptr;  // one visit to the owner, whatever K is
  for (std::int64_t pair = token * topk; pair < (token + 1) * topk; ++pair) {
    const std::int64_t slot = call.schedule.slots[pair];
    if (slot < 0) continue;
    float* row = call.buffers.x + slot * hidden;
    if (first_copy == nullptr) {
      to_float(source, problem.dtype, hidden, row);
      first_copy = row;
    } else {
      std::memcpy(row, first_copy, static_cast<std::size_t>(hidden) * sizeof(float));
    }
  }
}

void pull_batch(const HostCall& call, std::int64_t batch) {
  const std::int64_t end =
      std::min<std::int64_t>((batch + 1) * kPullBatch, call.schedule.counts->num_pull_tokens);
  for (std::int64_t i = batch * kPullBatch; i < end; ++i) {
    const std::int32_t token = call.schedule.pull_order[i];
    if (mutated(Mutation::kRoleMissingCompletionWait)) arrive_at_tiles(call, token);
    pull_token(call, token);
    if (!mutated(Mutation::kRoleMissingCompletionWait)) arrive_at_tiles(call, token);
  }
}

// The tile's rows [num_rows, H], behind each other.
const float* rows_of_tile(const HostCall& call, const TokenTile& tile, float* tile_x) {
  const std::int64_t hidden = call.layer.problem.hidden;
  if (call.shape.delivery == Delivery::kScatter) return call.buffers.x + tile.row_begin * hidden;
  for (std::int64_t i = 0; i < tile.num_rows; ++i) {
    const std::int64_t token =
        call.schedule.row_source[tile.row_begin + i] / call.layer.problem.topk;
    std::memcpy(tile_x + i * hidden, call.buffers.x + token * hidden,
                static_cast<std::size_t>(hidden) * sizeof(float));
  }
  return tile_x;
}

void compute_tile(const HostCall& call, std::int64_t tile_idx, const Scratch& scratch) {
  const TokenTile& tile = call.schedule.token_tile[tile_idx];
  const std::int64_t hidden = call.layer.problem.hidden;
  const std::int64_t width = call.shape.width;
  const float* x = rows_of_tile(call, tile, scratch.tile_x);
  const WeightRows gate = call.layer.weights.gate(tile.expert);
  const WeightRows up = call.layer.weights.up(tile.expert);
  gemm_nt(tile.num_rows, width, hidden, x, hidden, gate.data, gate.row_stride, scratch.gate, width);
  gemm_nt(tile.num_rows, width, hidden, x, hidden, up.data, up.row_stride, scratch.up, width);
  swiglu(scratch.gate, scratch.up, tile.num_rows * width, call.buffers.y + tile.row_begin * width);
}

GateState gate_of(const HostCall& call, std::int64_t tile) {
  const std::int32_t capacity = call.schedule.token_tile[tile].num_rows + call.schedule.slack[tile];
  return call.buffers.token_gates[tile].poll(static_cast<std::uint32_t>(capacity));
}

// Waits for nobody on this rank, and all peers have published: every token that is taken arrives.
void communicate(HostCall& call) {
  for (;;) {
    const std::int64_t batch = call.pulls.relaxed_take(num_pull_batches(call));
    if (batch == kNoTicket) return;
    pull_batch(call, batch);
  }
}

// Why it cannot lock up, with any number of blocks running at once: a block takes a tile only when
// its gate has opened, so whatever is taken gets done without a wait. If the next tile's gate is
// closed, a token of it is either not taken yet, and this block fetches it, or taken by a block
// that is running and will arrive.
void compute(HostCall& call, const SpinContext& spin, const Scratch& scratch) {
  const std::int64_t num_tiles = call.shape.num_tiles;
  for (;;) {
    const std::int64_t tile = call.gate_up_tiles.relaxed_peek();
    if (tile >= num_tiles) return;
    const GateState state = gate_of(call, tile);
    if (state != GateState::kClosed) {
      if (!call.gate_up_tiles.relaxed_take_if(tile)) continue;
      // Opened by a failure: somebody may still be writing the rows. The tile counts as done.
      if (state == GateState::kFull) compute_tile(call, tile, scratch);
      continue;
    }
    const std::int64_t batch = call.pulls.relaxed_take(num_pull_batches(call));
    if (batch != kNoTicket) {
      pull_batch(call, batch);
      continue;
    }
    const protocol::WaitSite site{protocol::Primitive::kReadyWork, -1,
                                  static_cast<std::int32_t>(tile), 1};
    const protocol::SpinResult result = spin.until(site, [&] {
      const bool is_ready =
          call.gate_up_tiles.relaxed_peek() != tile || gate_of(call, tile) != GateState::kClosed;
      return protocol::Observation{is_ready, is_ready ? 1U : 0U};
    });
    if (mutated(Mutation::kRoleExitOnFailure) && result != protocol::SpinResult::kReady) return;
  }
}

}  // namespace

void gather_gate_up(HostCall& call, const SpinContext& spin, std::int64_t ticket) {
  if (!call.is_accepted) return;
  const std::int64_t num_communicators = std::max<std::int64_t>(1, call.num_blocks / 4);
  if (ticket < num_communicators) communicate(call);
  compute(call, spin, scratch_of_block(call.buffers, call.shape, ticket));
}

}  // namespace slipstream::host
