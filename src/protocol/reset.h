// The collective reset: the way out of a group error, and the way into the first call. Who calls
// it: one thread of each rank (on a GPU a launch of its own), from Workspace::create and
// Layer::reset.
//
//   generation 0 (zeroed memory) --reset--> 1 --calls-- failure --reset--> 2 ...
//
//   running g   -- caller drains its streams, joins its threads -->  drained
//   drained     -- publish drained[me]@q = g+1 to all q         -->  waiting
//   waiting     -- all drained[q] reach g+1                     -->  running g+1, epoch kFirstEpoch
//   waiting     -- limit                                        -->  waiting: call reset again
#pragma once

#include <cstdint>

#include "protocol/endpoint.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

struct ResetOutcome {
  SpinResult result = SpinResult::kReady;  // kReady or kTimeout
  std::int32_t missing_rank = -1;          // kTimeout: the first rank that did not come
  Tag tag;                                 // of the next call when kReady
};

// Precondition: nothing of this rank runs, on any stream or thread, that touches symmetric memory
// or the rank's counters.
//
// Why all ranks agree afterwards, though a group error may leave them at different epochs: the new
// generation follows from the old one, which all share, and epochs start again at kFirstEpoch. No
// slot holds a tag of the new generation before that, so the old signals are as good as zeroed. A
// rank enters generation g+1 only after every peer has drained g, so nobody still reads what it
// overwrites, nor writes into its staging. (Reset by one rank alone breaks exactly that.)
//
// Timeout: the group's limit a peer. After kTimeout the rank is still in the old generation and may
// try again; a peer that got through meanwhile waits for it in its first call.
SLIPSTREAM_HD inline ResetOutcome collective_reset(const Endpoint& endpoint) {
  const Tag old = endpoint.state->clock.now();
  const Tag next{
      mutated(Mutation::kResetKeepsGeneration) ? old.generation : next_generation(old.generation),
      kFirstEpoch};
  for (std::int32_t peer = 0; peer < endpoint.num_ranks; ++peer)
    endpoint.signals[peer]->drained[endpoint.rank].publish(next);

  for (std::int32_t peer = 0; peer < endpoint.num_ranks; ++peer) {
    if (mutated(Mutation::kResetLocal)) break;
    const SlotSignal& slot = endpoint.mine().drained[peer];
    std::uint64_t observed = 0;
    // A failure of the old generation must not abort the way out of it.
    const SpinResult result = spin_until(
        [&slot, next] {
          const Tag seen = slot.observe();
          return Observation{generation_reaches(seen.generation, next.generation), seen.packed()};
        },
        [] { return false; }, endpoint.remote_limit_ns, observed);
    if (result == SpinResult::kReady) continue;

    WaitReport report;
    report.failure = Failure{old.generation, peer, FailureReason::kTimeout};
    report.site = WaitSite{Primitive::kDrained, peer, 0, next.packed()};
    report.observed = observed;
    report.limit_ns = endpoint.remote_limit_ns;
    report.tag = old;
    report.rank = endpoint.rank;
    endpoint.record->publish(report);
    return ResetOutcome{result, peer, old};
  }
  endpoint.state->clock.relaxed_start(next);
  return ResetOutcome{SpinResult::kReady, -1, next};
}

}  // namespace slipstream::protocol
