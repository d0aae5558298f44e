// Between the litmus test (symmetric_litmus_test.cc) and its kernel (symmetric_litmus_kernels.cu).
//
// Each of two ranks sends messages to the other. A message is written by bulk stores of several
// blocks, signalled by whichever of them is last (a local election), read by blocks of the receiver
// that wait for the signal themselves, and acknowledged by the last reader. Meanwhile other blocks
// fill the link. If any order of the protocol were too weak, a reader would see old words.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "protocol/election.h"
#include "protocol/slot_signal.h"

namespace slipstream::testing {

inline constexpr int kNumWriters = 8;
inline constexpr int kNumReaders = 4;
inline constexpr int kNumLoaders = 8;
inline constexpr int kPieceBytes = 2048;  // of one writer
inline constexpr int kNumSlots = 4;       // messages under way
inline constexpr int kMessageBytes = kNumWriters * kPieceBytes;
inline constexpr int kLoadBytes = 1 << 20;

// What a rank shares: the other one writes all of it, except its own signals' receivers.
struct LitmusPage {
  std::byte inbox[kNumSlots][kMessageBytes];
  alignas(128) protocol::SlotSignal sent;  // by the sender: round n is in inbox[n % kNumSlots]
  alignas(128) protocol::SlotSignal read;  // by the receiver: round n has been read
  alignas(128) std::byte load[kLoadBytes];
};

// What a rank keeps for itself, zeroed.
struct LitmusState {
  protocol::Election written[kNumSlots];
  protocol::Election checked[kNumSlots];
  unsigned int num_readers_done;
  unsigned int num_failed_waits;
  unsigned long long num_stale_words;
  unsigned long long first_stale;  // round << 32 | word index in the message, ~0 when there is none
};

// Planted faults, each of which the test must notice.
enum class LitmusFault {
  kNone,
  kOneWriterSignals,          // does not wait for the other blocks
  kArriveBeforeData,          // blocks arrive at the election before they have stored
  kReadersAskForRoundBefore,  // a reader takes the round before for this one
};

struct LitmusParams {
  LitmusPage* mine = nullptr;
  LitmusPage* theirs = nullptr;
  LitmusState* state = nullptr;
  std::uint32_t num_rounds = 0;
  std::uint32_t seed_mine = 0;    // of the messages that this rank sends
  std::uint32_t seed_theirs = 0;  // of those that it receives
  LitmusFault fault = LitmusFault::kNone;
  bool with_load = true;
};

// Every wait ends after this, and then the whole kernel.
inline constexpr std::uint64_t kLitmusWaitNs = 2'000'000'000;

void launch_litmus(const LitmusParams& params, cudaStream_t stream);

}  // namespace slipstream::testing
