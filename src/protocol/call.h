// The protocol of one call, as role code spells it: begin, publish the inputs, wait for the peers',
// write and await watermarks, or reject the call; the clock's leave() ends it. Who may touch what
// in between, and why there is no barrier, is in docs/protocol.md.
//
// All of it is per peer: on a GPU lane q serves peer q, on the host a loop does.
#pragma once

#include <cstdint>

#include "protocol/endpoint.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// Every block and thread calls it at the start of a launch, after whatever orders the launch behind
// the last one. A group error of before, here or at a peer, makes failed() true at once.
SLIPSTREAM_HD inline SpinContext begin_call(const Endpoint& endpoint, std::int32_t block) {
  SpinContext spin{&endpoint, endpoint.state->clock.now(), block};
  spin.poll_peer_failure(WaitSite{Primitive::kStatus, -1, 0, 0});
  return spin;
}

// After a group failure nothing is published any more: what this rank holds may be garbage. A
// thread that got garbage from another one sees the failure here (FailureWord says why). True: go
// ahead.
SLIPSTREAM_HD inline bool may_publish(const SpinContext& spin) {
  return !spin.failed() || mutated(Mutation::kPublishAfterFailure);
}

// published[me]@peer: this rank's tokens, routing and signature of this call are complete. One
// thread a call and peer, behind everything that wrote them. False: suppressed.
SLIPSTREAM_HD inline bool publish_inputs(const SpinContext& spin, std::int32_t peer) {
  if (!may_publish(spin)) return false;
  spin.endpoint->signals[peer]->published[spin.rank()].publish(spin.tag);
  return true;
}

// Before reading peer's tokens, routing or signature. Every block that reads them waits itself.
SLIPSTREAM_HD inline SpinResult wait_inputs(const SpinContext& spin, std::int32_t peer) {
  return spin.endpoint->mine().published[peer].wait(spin.tag, spin, Primitive::kPublished, peer);
}

// watermark[me][chunk]@owner: all partial rows of this chunk for owner's tokens are in its staging
// plane, and this rank has read all it needs of owner's tokens. By the thread elected for (owner,
// chunk). False: suppressed.
SLIPSTREAM_HD inline bool publish_watermark(const SpinContext& spin, std::int32_t owner,
                                            std::int32_t chunk, std::int32_t num_chunks) {
  if (!may_publish(spin)) return false;
  spin.endpoint->signals[owner]->watermark[spin.rank()].publish(spin.tag, chunk, num_chunks);
  return true;
}

// Before the final reduce reads staging plane `writer`. Every owner waits for every (writer, chunk)
// before its call ends, with tokens or without: that is what makes a barrier unnecessary.
SLIPSTREAM_HD inline SpinResult wait_watermark(const SpinContext& spin, std::int32_t writer,
                                               std::int32_t chunk) {
  return spin.endpoint->mine().watermark[writer].wait(spin.tag, spin, writer, chunk);
}

// A call error: every rank saw the same signatures and ids and skips the work, but the epoch must
// not run ahead of a peer that still reads this rank's routing. So each rank still sends this
// epoch's watermark, behind its reading, and waits for everybody's. Chunk 0 stands for all: ranks
// may disagree about the number of chunks, that may be the very error. The caller has joined the
// rank's readers.
SLIPSTREAM_HD inline bool publish_rejection(const SpinContext& spin, std::int32_t peer) {
  if (mutated(Mutation::kCallErrorWithoutExchange)) return false;
  return publish_watermark(spin, peer, 0, 1);
}
SLIPSTREAM_HD inline SpinResult wait_rejection(const SpinContext& spin, std::int32_t peer) {
  return wait_watermark(spin, peer, 0);
}

// Both, for all peers, by one thread of each rank.
SLIPSTREAM_HD inline SpinResult exchange_rejection(const SpinContext& spin) {
  for (std::int32_t peer = 0; peer < spin.num_ranks(); ++peer) publish_rejection(spin, peer);
  for (std::int32_t peer = 0; peer < spin.num_ranks(); ++peer) {
    const SpinResult result = wait_rejection(spin, peer);
    if (result != SpinResult::kReady) return result;
  }
  return SpinResult::kReady;
}

}  // namespace slipstream::protocol
