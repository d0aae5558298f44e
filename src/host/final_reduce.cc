#include "host/final_reduce.h"

#include <algorithm>

#include "core/numeric.h"

namespace slipstream::host {

using protocol::mutated;
using protocol::Mutation;
using protocol::SpinContext;
using protocol::SpinResult;

namespace {

constexpr std::int64_t kPieceRows = 64;
// How long a block that is not the first waits for a remote rank before it leaves.
constexpr std::uint64_t kPatienceNs = 20'000;

// At least one, without tokens too: taking it proves that the chunk's watermarks were waited for.
std::int64_t pieces_per_chunk(const HostCall& call) {
  return std::max<std::int64_t>(1, (call.out.rows + kPieceRows - 1) / kPieceRows);
}

bool chunk_has_arrived(const HostCall& call, const SpinContext& spin, std::int32_t chunk,
                       bool is_first) {
  if (mutated(Mutation::kRoleReaderWithoutAcquire) && !is_first)  // somebody else has seen it
    return call.pieces.relaxed_peek() > chunk * pieces_per_chunk(call);
  for (std::int32_t writer = 0; writer < spin.num_ranks(); ++writer)
    if (!spin.endpoint->mine().watermark[writer].poll(spin.tag, chunk)) return false;
  return true;
}

// The first block waits as long as the group allows; the others for a moment, then they leave: a
// launch that waits for remote ranks must not keep threads from other instances' work.
bool wait_for_chunk(const HostCall& call, const SpinContext& spin, std::int32_t chunk,
                    bool is_first) {
  if (is_first) {
    for (std::int32_t writer = 0; writer < spin.num_ranks(); ++writer)
      if (protocol::wait_watermark(spin, writer, chunk) != SpinResult::kReady) return false;
    return true;
  }
  std::uint64_t last = 0;
  return protocol::spin_until(
             [&] {
               return protocol::Observation{chunk_has_arrived(call, spin, chunk, is_first), 0};
             },
             [&] { return spin.failed(); }, kPatienceNs, last) == SpinResult::kReady;
}

// Rows [begin, end) of one chunk, planes added in rank order.
void reduce_piece(const HostCall& call, std::int32_t chunk, std::int64_t begin, std::int64_t end,
                  const Scratch& scratch) {
  const DType partial_dtype = call.layer.tuning.partial_dtype;
  const std::int32_t column = call.chunks().begin[chunk];
  const std::int32_t width = call.chunks().width(chunk);
  const std::int32_t me = call.my_rank();
  for (std::int64_t row = begin; row < end; ++row) {
    std::fill_n(scratch.sum, width, 0.0F);
    // Without a row nobody pushed: the staging holds what an earlier call left there.
    if (call.has_row(call.schedule.owner_token_begin[me] + static_cast<std::int32_t>(row))) {
      for (std::int32_t writer = 0; writer < call.num_ranks(); ++writer) {
        const std::byte* plane_row = call.staged_row(me, writer, row);
        to_float(plane_row + column * std::int64_t{dtype_bytes(partial_dtype)}, partial_dtype,
                 width, scratch.addend);
        for (std::int32_t i = 0; i < width; ++i) scratch.sum[i] += scratch.addend[i];
      }
    }
    auto* target = static_cast<std::byte*>(call.out.data) +
                   (row * call.out.row_stride + column) * dtype_bytes(call.out.dtype);
    from_float(scratch.sum, call.out.dtype, width, target);
  }
}

}  // namespace

void final_reduce(HostCall& call, const SpinContext& spin, std::int64_t ticket) {
  const bool is_first = ticket == 0;
  if (!call.is_accepted) {
    // A rejected call ends like any other: behind every peer's reading of this rank's routing.
    if (!is_first || call.call_error.is_ok()) return;
    for (std::int32_t peer = 0; peer < spin.num_ranks(); ++peer)
      if (protocol::wait_rejection(spin, peer) != SpinResult::kReady) return;
    return;
  }
  if (mutated(Mutation::kRoleLeaveWithoutFinalWait) && call.out.rows == 0) return;
  const Scratch scratch = scratch_of_block(call.buffers, call.shape, ticket);
  const std::int64_t per_chunk = pieces_per_chunk(call);
  const std::int64_t num_pieces = per_chunk * call.shape.num_chunks;
  for (;;) {
    const std::int64_t piece = call.pieces.relaxed_peek();
    if (piece >= num_pieces) return;
    const auto chunk = static_cast<std::int32_t>(piece / per_chunk);
    if (!chunk_has_arrived(call, spin, chunk, is_first)) {
      if (!wait_for_chunk(call, spin, chunk, is_first)) return;
      continue;
    }
    if (!call.pieces.relaxed_take_if(piece)) continue;
    const std::int64_t begin = piece % per_chunk * kPieceRows;
    reduce_piece(call, chunk, begin, std::min(begin + kPieceRows, call.out.rows), scratch);
  }
}

void leave_call(HostCall& call, const SpinContext& spin, std::int64_t ticket) {
  protocol::CallClock& clock = spin.endpoint->state->clock;
  if (mutated(Mutation::kRoleFailureKeepsEpoch) && spin.failed()) return;
  if (mutated(Mutation::kRoleEpochByElected)) {
    // Whoever reduced pieces is elected; nobody reduces in a call that was rejected.
    if (call.is_accepted && ticket == 0) clock.leave(1);
    return;
  }
  clock.leave(static_cast<std::uint32_t>(call.num_blocks));
}

}  // namespace slipstream::host
