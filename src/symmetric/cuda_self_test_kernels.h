// Between the host part (cuda_self_test.cc) and the kernels (cuda_self_test_kernels.cu) of the
// self-test: which words are written, and what they must hold.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slipstream/config.h"

namespace slipstream {

inline constexpr std::int64_t kWordBytes = sizeof(std::uint32_t);

// A writer's share of one region: bytes [begin, end), multiples of kRegionAlignment.
struct Share {
  std::byte* base = nullptr;  // of the region
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t seed = 0;
};

// What the word at `word_idx` of the region must hold: an integer hash, so that neighbours, shares
// and methods all differ in many bits.
SLIPSTREAM_HD inline std::uint32_t pattern(std::uint32_t seed, std::int64_t word_idx) {
  std::uint32_t x = static_cast<std::uint32_t>(word_idx) * 0x9e3779b1U + seed;
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

// The first mismatch: the smallest word index, from the share's begin, in the upper half (shares
// stay below 16 GB), what was seen in the lower.
inline constexpr unsigned long long kNoMismatch = ~0ULL;
inline constexpr unsigned long long kNothingCame = kNoMismatch - 1;

// On the current device; they return the launch's own error. Checks lower *first.
cudaError_t launch_store_pattern(const Share& share, cudaStream_t stream);
cudaError_t launch_bulk_store_pattern(const Share& share, cudaStream_t stream);
cudaError_t launch_load_and_check(const Share& share, unsigned long long* first,
                                  cudaStream_t stream);
cudaError_t launch_bulk_load_and_check(const Share& share, unsigned long long* first,
                                       cudaStream_t stream);

}  // namespace slipstream
