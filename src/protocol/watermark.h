// WatermarkRow: the signals of one writing rank at one owner, a slot per column chunk. Slot c of
// call n says: all of the writer's partial rows of chunk c for this owner are in its staging plane.
#pragma once

#include <cstdint>

#include "protocol/slot_signal.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

// Calls may use different numbers of chunks, so a slot can rest for long. Its epoch must not become
// 2^31 calls old, or it would compare as one of the future; so every 2^20 calls the writer carries
// all slots along that the call does not use. (8 days of 3000 calls a second reach 2^31.)
inline constexpr std::uint32_t kRefreshPeriod = 1U << 20;

SLIPSTREAM_HD constexpr bool refreshes_unused_slots(Tag tag) {
  return tag.epoch % kRefreshPeriod == 0 && !mutated(Mutation::kWatermarkWithoutRefresh);
}

// Writers: the rank whose row it is; per call and chunk the thread that the election of (owner,
//   chunk) chose. Slots that the call does not use belong to the one elected for the last chunk.
// Readers: the owner's threads in the final reduce.
// Order and scope: SlotSignal.
// Reset: never.
// Wrap: as said above; right after a new generation all slots are invisible anyway.
// Timeout: SlotSignal.
class WatermarkRow {
 public:
  SLIPSTREAM_HD void publish(Tag tag, std::int32_t chunk, std::int32_t num_chunks) {
    slot_[chunk].publish(tag);
    if (chunk + 1 != num_chunks || !refreshes_unused_slots(tag)) return;
    for (std::int32_t unused = num_chunks; unused < kMaxChunks; ++unused)
      slot_[unused].publish(tag);
  }
  SLIPSTREAM_HD bool poll(Tag tag, std::int32_t chunk) const { return slot_[chunk].poll(tag); }

  template <class Spin>
  SLIPSTREAM_HD SpinResult wait(Tag tag, const Spin& spin, std::int32_t writer,
                                std::int32_t chunk) {
    return slot_[chunk].wait(tag, spin, Primitive::kWatermark, writer, chunk);
  }

 private:
  SlotSignal slot_[kMaxChunks];
};

}  // namespace slipstream::protocol
