// Election: threads of one rank that finished their parts find out which of them was the last. The
// last one is elected and speaks for all, e.g. as the single writer of a watermark.
#pragma once

#include <cstdint>

#include "protocol/atomic.h"
#include "protocol/mutation.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// Writers: every thread of this rank that did a part arrives once for it, its own stores complete.
// Readers: none but the arrivers; nobody waits.
// Order and scope: device scope, acq_rel: each arrival releases what its thread did, the last one
//   acquires all of it (read-modify-writes continue the release sequence).
// Reset: seeded with 0 once a call, before a kernel boundary that precedes the first arrival.
// Wrap: none; at most max_tokens jobs an owner and chunk.
// Timeout: nobody waits. With num_expected == 0 nobody would ever be elected: every (owner, chunk)
//   has at least one job, a null job if need be.
class Election {
 public:
  SLIPSTREAM_HD void relaxed_seed() { count_.store(0, kRelaxed); }  // the kernel boundary orders it

  // True for exactly one of num_expected arrivals.
  [[nodiscard]] SLIPSTREAM_HD bool arrive(std::uint32_t num_expected) {
    return count_.fetch_add(1, arrive_order()) + 1 == num_expected;
  }

 private:
  SLIPSTREAM_HD static constexpr MemoryOrder arrive_order() {
    if (mutated(Mutation::kElectionReleaseOnly)) return kRelease;
    if (mutated(Mutation::kElectionAcquireOnly)) return kAcquire;
    return order_unless(Mutation::kElectionRelaxed, kAcqRel);
  }

  Word<std::uint32_t, Scope::kDevice> count_;
};

}  // namespace slipstream::protocol
