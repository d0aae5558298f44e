// SlotSignal: how one rank tells another that something is there. `published`, `watermark` and
// `drained` are arrays of it (endpoint.h). Next: watermark.h, gate.h.
#pragma once

#include <cstdint>

#include "protocol/atomic.h"
#include "protocol/mutation.h"
#include "protocol/spin.h"
#include "protocol/tag.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// A 64-bit word in symmetric memory that holds the Tag of the last call it speaks for.
//
// Writers: exactly one rank, and in it one thread a call: the elected one, so that whatever other
//   threads wrote has been joined before (election.h). A remote store, never a remote atomic.
// Readers: any thread of the rank whose memory it is; each that reads what the signal protects
// waits
//   itself. Nobody polls remote memory.
// Order and scope: system scope; publish releases, wait and poll acquire.
// Reset: never. Tags only move forward, so a second reader of the same call finds it too.
// Wrap: Tag::reaches.
// Timeout: wait is bounded by the group's limit and names the writer.
class SlotSignal {
 public:
  SLIPSTREAM_HD void publish(Tag tag) {
    word_.store(tag.packed(), order_unless(Mutation::kSlotPublishRelaxed, kRelease));
  }

  // True when the signal is at least `tag`; the writer's data may then be read.
  SLIPSTREAM_HD bool poll(Tag tag) const { return observe().reaches(tag); }

  // Waits for at least `tag`. `spin` is a SpinContext (endpoint.h). Unless kReady comes back, what
  // the signal protects must not be read: its writer may be at it.
  template <class Spin>
  SLIPSTREAM_HD SpinResult wait(Tag tag, const Spin& spin, Primitive primitive, std::int32_t peer,
                                std::int32_t index = 0) {
    const SpinResult result =
        spin.until(WaitSite{primitive, peer, index, tag.packed()}, [this, tag] {
          const Tag seen = observe();
          return Observation{seen.reaches(tag), seen.packed()};
        });
    if (mutated(Mutation::kSlotReset)) word_.store(0, kRelaxed);
    return result;
  }

  // The last tag published, acquired: what its writer wrote before may be read.
  SLIPSTREAM_HD Tag observe() const {
    return Tag::unpacked(word_.load(order_unless(Mutation::kSlotWaitRelaxed, kAcquire)));
  }

 private:
  Word<std::uint64_t, Scope::kSystem> word_;
};

}  // namespace slipstream::protocol
