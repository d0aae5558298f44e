// Tag: what a signal says. The generation counts collective resets, the epoch counts calls inside a
// generation. A signal is a Tag in 64 bits; zeroed memory is "nothing yet". Next: slot_signal.h.
#pragma once

#include <cstdint>

#include "protocol/mutation.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// Zeroed memory is generation 0, in which no call ever runs: a group's first reset starts 1.
inline constexpr std::uint32_t kNoGeneration = 0;
inline constexpr std::uint32_t kFirstEpoch = 1;

SLIPSTREAM_HD constexpr std::uint32_t next_generation(std::uint32_t generation) {
  return generation + 1 == kNoGeneration ? 1 : generation + 1;
}

// True when `observed` was started at or after `expected`; right while they are less than 2^31
// resets apart.
SLIPSTREAM_HD constexpr bool generation_reaches(std::uint32_t observed, std::uint32_t expected) {
  return observed != kNoGeneration && static_cast<std::int32_t>(observed - expected) >= 0;
}

// Wrap: epochs compare by signed distance, right while they are less than 2^31 calls apart. Two
// ranks are never more than one call apart (docs/protocol.md); a slot that a call does not use is
// refreshed long before it is 2^31 calls old (watermark.h).
struct Tag {
  std::uint32_t generation = kNoGeneration;
  std::uint32_t epoch = 0;

  // At least `expected`: same generation, and not before its epoch. Never true in generation 0.
  SLIPSTREAM_HD constexpr bool reaches(Tag expected) const {
    if (generation == kNoGeneration) return false;
    if (generation != expected.generation && !mutated(Mutation::kTagCompareIgnoresGeneration))
      return false;
    if (mutated(Mutation::kTagCompareNotWrapSafe)) return epoch >= expected.epoch;
    return static_cast<std::int32_t>(epoch - expected.epoch) >= 0;
  }

  SLIPSTREAM_HD constexpr std::uint64_t packed() const {
    return std::uint64_t{generation} << 32 | epoch;
  }
  SLIPSTREAM_HD static constexpr Tag unpacked(std::uint64_t word) {
    return Tag{static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }

  friend constexpr bool operator==(const Tag&, const Tag&) = default;
};

}  // namespace slipstream::protocol
