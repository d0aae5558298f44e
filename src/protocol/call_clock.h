// CallClock: which call a rank is in. It lies in the rank's own (device) memory, so that a replayed
// graph finds the right epoch; the last one to leave a call advances it.
#pragma once

#include <cstdint>

#include "protocol/atomic.h"
#include "protocol/mutation.h"
#include "protocol/tag.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// Epoch and leavers in one word: the epoch in the upper half, below it how many have left this
// call. The last leaver's addition clears the lower half by carrying into the upper one.
//
// Writers: each block of the call's last launch (each worker thread, on the host) leaves once,
// after
//   its last access to anything the next call may touch; after a failure too. Also the collective
//   reset, while nothing runs (reset.h).
// Readers: every block at its start.
// Order and scope: device scope. Leaving is acq_rel: the last leaver has all others behind it.
//   Reading the epoch acquires: who sees epoch n+1 has all of this rank's call n behind it.
// Reset: never inside a generation; the number of leavers may differ from call to call.
// Wrap: the epoch wraps at 2^32 by itself (Tag::reaches); leavers stay below 2^31.
// Timeout: nobody waits.
class CallClock {
 public:
  SLIPSTREAM_HD Tag now() const {
    const std::uint64_t word = word_.load(order_unless(Mutation::kEpochReadRelaxed, kAcquire));
    return Tag{generation_.load(kRelaxed), static_cast<std::uint32_t>(word >> 32)};
  }

  // True for the last of num_leavers. Must be the caller's last access in the call.
  SLIPSTREAM_HD bool leave(std::uint32_t num_leavers) {
    const std::uint64_t seen = word_.fetch_add(1, leave_order());
    const std::uint32_t num_left = static_cast<std::uint32_t>(seen) + 1;
    if (mutated(Mutation::kEpochByFirstLeaver)) {
      if (num_left == 1) word_.fetch_add(std::uint64_t{1} << 32, kRelaxed);
      if (num_left == num_leavers) word_.fetch_add(-std::uint64_t{num_leavers}, kRelaxed);
      return num_left == 1;
    }
    if (num_left != num_leavers) return false;
    // Relaxed: as a read-modify-write it continues the release sequence of all leaves, its own too.
    word_.fetch_add((std::uint64_t{1} << 32) - num_leavers, kRelaxed);
    return true;
  }

  // Relaxed: only the collective reset (and a test) calls it, while no block of this rank runs;
  // what starts blocks afterwards orders it.
  SLIPSTREAM_HD void relaxed_start(Tag tag) {
    generation_.store(tag.generation, kRelaxed);
    word_.store(std::uint64_t{tag.epoch} << 32, kRelaxed);
  }

 private:
  SLIPSTREAM_HD static constexpr MemoryOrder leave_order() {
    if (mutated(Mutation::kLeaveReleaseOnly)) return kRelease;
    if (mutated(Mutation::kLeaveAcquireOnly)) return kAcquire;
    return kAcqRel;
  }

  Word<std::uint64_t, Scope::kDevice> word_;
  Word<std::uint32_t, Scope::kDevice> generation_;
};

}  // namespace slipstream::protocol
