// Between the host part (cuda_probe.cc) and the kernels (cuda_probe_kernels.cu) of the link probe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "protocol/slot_signal.h"

namespace slipstream {

inline constexpr std::uint32_t kProbePieceBytes = 8192;
inline constexpr int kMaxProbeSlots = 24;
inline constexpr std::uint64_t kSignalLost = ~std::uint64_t{0};

// Lets the copy kernels have num_slots slots of shared memory on the current device.
cudaError_t allow_probe_slots(int num_slots);

// Launches are on the current device and return their own error.
struct ProbeCopy {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t pieces_per_block = 0;
  int num_blocks = 0;
  int num_slots = 0;
};
cudaError_t launch_push(const ProbeCopy& copy, cudaStream_t stream);  // `source` is not used
cudaError_t launch_pull(const ProbeCopy& copy, cudaStream_t stream);  // `target` is not used
cudaError_t launch_fetch(const ProbeCopy& copy, cudaStream_t stream);

// One side of the game: the first one serves. *nanoseconds is the time of the rounds after the
// first num_warm ones, or kSignalLost.
struct PingPong {
  protocol::SlotSignal* mine = nullptr;
  protocol::SlotSignal* theirs = nullptr;
  bool is_first = false;
  std::uint32_t num_warm = 0;
  std::uint32_t num_rounds = 0;
  std::uint64_t* nanoseconds = nullptr;
};
cudaError_t launch_ping_pong(const PingPong& game, cudaStream_t stream);

}  // namespace slipstream
