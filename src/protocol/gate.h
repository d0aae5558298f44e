// Gates: how threads of one rank tell each other that all parts of something are there. A TokenGate
// stands before each token tile of kernel 1, a TileDone behind each (chunk, tile) of kernel 2.
// Next: election.h.
#pragma once

#include <cstdint>

#include "protocol/atomic.h"
#include "protocol/mutation.h"
#include "protocol/spin.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

enum class GateState : std::int32_t {
  kClosed = 0,
  kFull = 1,    // every part is there and may be read
  kOpened = 2,  // opened by a group failure: go on, but what is behind it may be garbage, and on
                // the host somebody may be writing it still
};

// A local arrival counter. kPrimitive is its name in the record; its orders have names of their own
// in mutation.h.
//
// Writers: any thread of this rank arrives once its own part is complete (its stores done, bulk
//   copies waited for); all arrivals of a call and the seed add up to the capacity.
// Readers: any thread of this rank; each that reads what is behind the gate asks itself.
// Order and scope: device scope; arrive releases, poll and wait acquire.
// Reset: seeded once a call, before a kernel boundary (launch, or the host's joining of threads)
//   that precedes the first arrival: with the slack of the tile, so that real rows just fill it up.
// Wrap: none; capacities are far below 2^31.
// Timeout: bounded by the local limit. A group failure opens the gate for good until the next seed.
template <Primitive kPrimitive, Mutation kArriveRelaxed, Mutation kWaitRelaxed>
class ArrivalGate {
 public:
  // Relaxed: the kernel boundary orders it.
  SLIPSTREAM_HD void relaxed_seed(std::uint32_t num_present) {
    count_.store(num_present, kRelaxed);
  }

  SLIPSTREAM_HD void arrive(std::uint32_t num_parts = 1) {
    count_.fetch_add(num_parts, order_unless(kArriveRelaxed, kRelease));
  }

  SLIPSTREAM_HD GateState poll(std::uint32_t capacity) const {
    return state_of(observe(), capacity);
  }

  // kReady: full. kAborted: the group has failed, whether or not the gate was opened already.
  // `spin` is a SpinContext (endpoint.h); `index` names the gate in the record.
  template <class Spin>
  SLIPSTREAM_HD SpinResult wait(std::uint32_t capacity, const Spin& spin,
                                std::int32_t index) const {
    GateState state = GateState::kClosed;
    const SpinResult result =
        spin.until(WaitSite{kPrimitive, -1, index, capacity}, [this, capacity, &state] {
          const std::uint32_t count = observe();
          state = state_of(count, capacity);
          return Observation{state != GateState::kClosed, count};
        });
    return state == GateState::kOpened ? SpinResult::kAborted : result;
  }

  // Part of a group failure: lets everybody pass. Releases, so that who passes sees the failure.
  SLIPSTREAM_HD void open() {
    count_.fetch_or(kOpenBit, order_unless(Mutation::kGateOpenRelaxed, kRelease));
  }

 private:
  static constexpr std::uint32_t kOpenBit = 1U << 31;

  SLIPSTREAM_HD std::uint32_t observe() const {
    return count_.load(order_unless(kWaitRelaxed, kAcquire));
  }
  // Equal, not "at least": one arrival too many is a defect and must not look like success.
  SLIPSTREAM_HD static constexpr GateState state_of(std::uint32_t count, std::uint32_t capacity) {
    if (count == capacity) return GateState::kFull;
    return (count & kOpenBit) != 0 ? GateState::kOpened : GateState::kClosed;
  }

  Word<std::uint32_t, Scope::kDevice> count_;
};

// Counts rows of a token tile: seeded with the tile's slack, full at num_rows + slack.
using TokenGate =
    ArrivalGate<Primitive::kTokenGate, Mutation::kGateArriveRelaxed, Mutation::kGateWaitRelaxed>;

// Counts the parts in which a (chunk, tile) is computed: seeded with 0, full at the number of
// parts.
using TileDone =
    ArrivalGate<Primitive::kTileDone, Mutation::kTileDoneRelaxed, Mutation::kTileWaitRelaxed>;

}  // namespace slipstream::protocol
