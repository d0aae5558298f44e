// Dispensers: threads of one rank take work, or a role, from a common sequence.
#pragma once

#include <cstdint>

#include "protocol/atomic.h"
#include "protocol/mutation.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

inline constexpr std::int64_t kNoTicket = -1;

// Hands out 0, 1, ... limit - 1, each once.
//
// Writers: any thread of this rank.
// Readers: the same.
// Order and scope: device scope, relaxed: a ticket says which, never that anything is ready. Being
//   handed out once follows from atomicity alone, and what the ticket's work needs has gates of its
//   own.
// Reset: seeded with 0 once a call, before a kernel boundary that precedes the first take.
// Wrap: none: past the end it only looks, so it stops at limit + the number of concurrent takers,
//   however often it is asked.
// Timeout: nobody waits.
class Dispenser {
 public:
  SLIPSTREAM_HD void relaxed_seed() { next_.store(0, kRelaxed); }  // the kernel boundary orders it

  // The next position, or kNoTicket when all `limit` are taken.
  [[nodiscard]] SLIPSTREAM_HD std::int64_t relaxed_take(std::int64_t limit) {
    const auto end = static_cast<std::uint64_t>(limit);
    if (next_.load(kRelaxed) >= end && !mutated(Mutation::kDispenserUnbounded)) return kNoTicket;
    const std::uint64_t ticket = next_.fetch_add(1, kRelaxed);
    return ticket < end ? static_cast<std::int64_t>(ticket) : kNoTicket;
  }

  // Takes `position` if it is the next one: for work that is looked at before it is taken, so that
  // nobody ever holds what is not ready. False: somebody else has it; look again. `position` is
  // below the limit, so the end stays where it is.
  [[nodiscard]] SLIPSTREAM_HD bool relaxed_take_if(std::int64_t position) {
    auto expected = static_cast<std::uint64_t>(position);
    return next_.compare_exchange(expected, expected + 1, kRelaxed);
  }

  // Handed out so far, or more: for diagnosis, and to see the end coming.
  SLIPSTREAM_HD std::int64_t relaxed_peek() const {
    return static_cast<std::int64_t>(next_.load(kRelaxed));
  }

 private:
  Word<std::uint64_t, Scope::kDevice> next_;
};

// The order in which the blocks of a launch begin to run. Roles come from it and not from the block
// index: block 0 may be the last to become resident. One draw a block, so num_blocks is the limit.
class ArrivalTicket {
 public:
  SLIPSTREAM_HD void relaxed_seed() { dispenser_.relaxed_seed(); }
  [[nodiscard]] SLIPSTREAM_HD std::int64_t relaxed_draw(std::int64_t num_blocks) {
    return dispenser_.relaxed_take(num_blocks);
  }

 private:
  Dispenser dispenser_;
};

}  // namespace slipstream::protocol
