// Endpoint: where one rank's protocol words and its peers' are. SpinContext: one thread's view of
// it in one call; every wait and every publish goes through it. Who makes them: the workspace makes
// an Endpoint and passes it to kernels by value; each block or thread makes a SpinContext by
// begin_call (call.h). Next: call.h for a call, reset.h for what comes after a group error.
#pragma once

#include <cstdint>

#include "protocol/call_clock.h"
#include "protocol/failure.h"
#include "protocol/gate.h"
#include "protocol/slot_signal.h"
#include "protocol/spin.h"
#include "protocol/watermark.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// The signals of one rank: part of its symmetric memory, zeroed before any peer gets a pointer to
// it. Slot p is written by rank p only, and read only by the rank whose memory it is. A rank has a
// slot for itself too: every loop goes over all ranks.
struct RankSignals {
  alignas(128) SlotSignal published[kMaxRanks];    // p's tokens and routing of this call
  alignas(128) WatermarkRow watermark[kMaxRanks];  // p's partial rows in staging plane p
  alignas(128) StatusSlot status[kMaxRanks];       // p's group error
  alignas(128) SlotSignal drained[kMaxRanks];      // p runs nothing of an older generation
};

// The words of one rank that no peer sees, in its own (device) memory, zeroed.
struct RankState {
  CallClock clock;
  FailureWord failure;
};

struct Endpoint {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;
  RankSignals* signals[kMaxRanks] = {};  // [q]: rank q's, as this rank maps it
  RankState* state = nullptr;
  WaitRecord* record = nullptr;  // host memory, zeroed; on a GPU pinned and mapped

  // Opened by a group failure: all of the workspace's, used by the call or not.
  TokenGate* token_gates = nullptr;
  std::int64_t num_token_gates = 0;
  TileDone* tile_done = nullptr;
  std::int64_t num_tile_done = 0;

  // The group's limit for a wait for a peer, and that for a wait inside the rank, which must be the
  // longer one (set_limit).
  std::uint64_t remote_limit_ns = 0;
  std::uint64_t local_limit_ns = 0;

  SLIPSTREAM_HD RankSignals& mine() const { return *signals[rank]; }

  // Local waits starve when a peer is late; twice the time and a second let the wait that knows the
  // peer's name report first.
  SLIPSTREAM_HD void set_limit(std::uint64_t limit_ns) {
    remote_limit_ns = limit_ns;
    local_limit_ns = 2 * limit_ns + 1'000'000'000;
  }
};

// Cheap to make and to copy. The Endpoint outlives it.
struct SpinContext {
  const Endpoint* endpoint = nullptr;
  Tag tag;                 // of this call
  std::int32_t block = 0;  // for the record: block or thread of this rank

  SLIPSTREAM_HD std::int32_t rank() const { return endpoint->rank; }
  SLIPSTREAM_HD std::int32_t num_ranks() const { return endpoint->num_ranks; }

  // True once the group has failed in this generation and this rank knows.
  SLIPSTREAM_HD bool failed() const {
    return endpoint->state->failure.relaxed_read().is_of(tag.generation);
  }

  // Bounded wait for `observe` (-> Observation). An expiry fails the group, naming site.peer.
  template <class Observe>
  SLIPSTREAM_HD SpinResult until(const WaitSite& site, const Observe& observe) const;

  // Group error of this rank's own making, e.g. a launch that failed. Returns false when the group
  // had failed before. Opens every gate, tells every peer, writes the record.
  SLIPSTREAM_HD bool fail(const WaitReport& report) const;

  // Looks whether a peer has reported a group error, and takes it over. Returns failed().
  SLIPSTREAM_HD bool poll_peer_failure(const WaitSite& site) const;
};

// The order matters: the failure word first, so that whoever passes a gate opened by it sees it;
// then the record, then the peers; their reports come back here only as "already failed".
SLIPSTREAM_HD SLIPSTREAM_NOINLINE inline bool SpinContext::fail(const WaitReport& report) const {
  const Failure failure = report.failure;
  if (!endpoint->state->failure.relaxed_raise(failure)) return false;
  endpoint->record->publish(report);
  if (!mutated(Mutation::kFailureWithoutStatus)) {
    for (std::int32_t peer = 0; peer < endpoint->num_ranks; ++peer) {
      if (peer != endpoint->rank) {
        endpoint->signals[peer]->status[endpoint->rank].relaxed_report(failure);
      }
    }
  }
  if (!mutated(Mutation::kFailureWithoutGates)) {
    for (std::int64_t gate = 0; gate < endpoint->num_token_gates; ++gate)
      endpoint->token_gates[gate].open();
    for (std::int64_t tile = 0; tile < endpoint->num_tile_done; ++tile)
      endpoint->tile_done[tile].open();
  }
  return true;
}

SLIPSTREAM_HD SLIPSTREAM_NOINLINE inline bool SpinContext::poll_peer_failure(
    const WaitSite& site) const {
  if (failed()) return true;
  const RankSignals& mine = endpoint->mine();
  for (std::int32_t peer = 0; peer < endpoint->num_ranks; ++peer) {
    const Failure reported = mine.status[peer].relaxed_read();
    if (!reported.is_of(tag.generation)) continue;
    WaitReport report;
    report.failure = Failure{tag.generation, reported.culprit, FailureReason::kPeerFailed};
    report.site = site;
    report.tag = tag;
    report.rank = endpoint->rank;
    report.block = block;
    report.reporter = peer;
    fail(report);
    return true;
  }
  return false;
}

template <class Observe>
SLIPSTREAM_HD SpinResult SpinContext::until(const WaitSite& site, const Observe& observe) const {
  const std::uint64_t limit_ns =
      is_remote(site.primitive) ? endpoint->remote_limit_ns : endpoint->local_limit_ns;
  std::uint64_t observed = 0;
  const auto aborted = [this, &site] { return poll_peer_failure(site); };
  const SpinResult result = spin_until(observe, aborted, limit_ns, observed);
  if (result != SpinResult::kTimeout) return result;

  WaitReport report;
  report.failure =
      Failure{tag.generation, site.peer >= 0 ? site.peer : endpoint->rank, FailureReason::kTimeout};
  report.site = site;
  report.observed = observed;
  report.limit_ns = limit_ns;
  report.tag = tag;
  report.rank = endpoint->rank;
  report.block = block;
  return fail(report) ? SpinResult::kTimeout : SpinResult::kAborted;
}

}  // namespace slipstream::protocol
