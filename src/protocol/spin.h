// The only spin of the library. Primitives describe what they wait for (WaitSite) and how to look
// (observe); spin_until looks until it is there, the group has failed, or the time is up. Who calls
// it: SpinContext::until (endpoint.h), which also does what an expiry asks for; reset.h.
#pragma once

#include <cstdint>

#if !defined(__CUDA_ARCH__)
#include <chrono>
#include <thread>
#endif

#include "protocol/mutation.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

enum class SpinResult : std::int32_t {
  kReady = 0,    // it is there; what it protects may be read
  kTimeout = 1,  // this wait ran out of time; the group has failed
  kAborted = 2,  // the group has failed elsewhere
};

// What kind of wait it is, for the record and for the choice of the limit.
enum class Primitive : std::int32_t {
  kNone = 0,
  kPublished = 1,  // a peer's tokens and routing
  kWatermark = 2,  // a peer's partial sums of a chunk
  kTokenGate = 3,  // the rows of a token tile
  kTileDone = 4,   // the outputs of a tile
  kReadyWork = 5,  // any work at all (a role's own predicate)
  kDrained = 6,    // a peer's part in the collective reset
  kStatus = 7,     // no wait of one's own: a peer reported
};

// Waits for other ranks carry the group's limit. Waits inside a rank get a longer one: a rank that
// starves because a peer is late should report the peer and not its own gate.
SLIPSTREAM_HD constexpr bool is_remote(Primitive primitive) {
  return primitive == Primitive::kPublished || primitive == Primitive::kWatermark ||
         primitive == Primitive::kDrained;
}

struct WaitSite {
  Primitive primitive = Primitive::kNone;
  std::int32_t peer = -1;  // the rank that supplies it, or -1 for one's own rank
  std::int32_t index = 0;  // chunk, tile; 0 where there is only one
  std::uint64_t expected = 0;
};

struct Observation {
  bool ready;
  std::uint64_t value;
};

// Nanoseconds of a clock that only moves forward. Differences only.
SLIPSTREAM_HD inline std::uint64_t clock_ns() {
#if defined(__CUDA_ARCH__)
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
#endif
}

// Gives way to whoever supplies what we wait for. On the host one core may carry many ranks: yield
// at once, sleep after a while.
SLIPSTREAM_HD inline void back_off(std::uint32_t poll_idx) {
#if defined(__CUDA_ARCH__)
  if (poll_idx >= 16) __nanosleep(poll_idx < 256 ? 40 : 400);
#else
  if (poll_idx < 256) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
#endif
}

// Polls `observe` (-> Observation) until it is ready. The first miss and every eighth after it ask
// `aborted` (-> bool) and the clock. `last` receives the last value that was seen. What is ready
// wins over a failure.
//
// Timeout: after limit_ns, in release builds too, plus at most eight back-offs.
template <class Observe, class Aborted>
SLIPSTREAM_HD SpinResult spin_until(const Observe& observe, const Aborted& aborted,
                                    std::uint64_t limit_ns, std::uint64_t& last) {
  constexpr std::uint32_t kPollsPerCheck = 8;
  std::uint64_t begin_ns = 0;
  bool missed = false;
  for (std::uint32_t poll_idx = 0;; ++poll_idx) {
    const Observation seen = observe();
    last = seen.value;
    if (seen.ready) return SpinResult::kReady;
    if (poll_idx % kPollsPerCheck == 0) {
      if (!mutated(Mutation::kSpinWithoutAbort) && aborted()) return SpinResult::kAborted;
      const std::uint64_t now_ns = clock_ns();
      if (!missed) begin_ns = now_ns;
      missed = true;
      if (!mutated(Mutation::kSpinWithoutDeadline) && now_ns - begin_ns >= limit_ns)
        return SpinResult::kTimeout;
    }
    back_off(poll_idx);
  }
}

}  // namespace slipstream::protocol
