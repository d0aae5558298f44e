// Team: what one share of the table builder is computed with. On a GPU a team is a thread block
// (BlockTeam); on the host a loop that plays all its threads in turn (SerialTeam), of any width.
// Code written over Team runs as both:
//
//   typename Team::template Value<int> x;          // one int per thread
//   Team::each([&](int thread) { x[thread] = ...; });
//   const auto total = Team::exclusive_sum(x);     // over all threads, the same on every thread
//
// Plain locals outside each() must be equal on all threads, and all threads take part in every
// call. Threads see each other's writes to memory after sync(), those of their warp after
// warp_sync(). Read builder_phases.h next.
#pragma once

#include <cstdint>

#include "slipstream/config.h"

// Loops over loads: nvcc keeps `n` of them in flight. Elsewhere the compiler knows best.
#if defined(__CUDA_ARCH__)
#define SLIPSTREAM_PRAGMA(text) _Pragma(#text)
#define SLIPSTREAM_UNROLL(n) SLIPSTREAM_PRAGMA(unroll n)
#else
#define SLIPSTREAM_UNROLL(n)
#endif

namespace slipstream {

// Where a thread stands among the threads of its warp with its key.
struct EqualKeys {
  std::int32_t rank;   // lower threads with the same key
  std::int32_t count;  // all threads with the same key
};

// kNumThreads is below 32, then it is one narrow warp, or a multiple of 32.
template <int kNumThreads>
struct SerialTeam {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarpWidth = kThreads < 32 ? kThreads : 32;
  static constexpr int kWarps = kThreads / kWarpWidth;

  template <class T>
  struct Value {
    T of_thread[kThreads];
    T& operator[](int thread) { return of_thread[thread]; }
    const T& operator[](int thread) const { return of_thread[thread]; }
  };

  template <class Body>
  static void each(Body body) {
    for (int thread = 0; thread < kThreads; ++thread) body(thread);
  }

  static void sync() {}
  static void warp_sync() {}

  // Keys are in 0..2^num_bits - 1.
  static Value<EqualKeys> match(const Value<std::int32_t>& keys, int /*num_bits*/) {
    Value<EqualKeys> equal;
    for (int thread = 0; thread < kThreads; ++thread) {
      const int warp_begin = thread / kWarpWidth * kWarpWidth;
      equal[thread] = EqualKeys{0, 0};
      for (int other = warp_begin; other < warp_begin + kWarpWidth; ++other) {
        if (keys[other] != keys[thread]) continue;
        equal[thread].rank += other < thread ? 1 : 0;
        equal[thread].count += 1;
      }
    }
    return equal;
  }

  // Replaces each thread's value by the sum over lower threads; returns the sum over all.
  static std::int64_t exclusive_sum(Value<std::int64_t>& values) {
    std::int64_t sum = 0;
    for (int thread = 0; thread < kThreads; ++thread) {
      const std::int64_t value = values[thread];
      values[thread] = sum;
      sum += value;
    }
    return sum;
  }

  static std::uint32_t max(const Value<std::uint32_t>& values) {
    std::uint32_t result = values[0];
    for (int thread = 1; thread < kThreads; ++thread)
      result = values[thread] > result ? values[thread] : result;
    return result;
  }

  // Teams of other shares write the same words at the same time.
  static void set_bits(std::uint32_t* word, std::uint32_t bits) {
    __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
  }
  // Within the team only.
  static void add(std::int32_t* word, std::int32_t value) { *word += value; }
};

#if defined(__CUDACC__)
// A block of kNumThreads threads, a multiple of 32, at most 1024. Bodies exist in device code only:
// a phase is a host and device template, and its host form must not be instantiated with BlockTeam.
template <int kNumThreads>
struct BlockTeam {
  static constexpr int kThreads = kNumThreads;
  static constexpr int kWarpWidth = 32;
  static constexpr int kWarps = kThreads / kWarpWidth;
  static constexpr unsigned kAllLanes = 0xffffffffU;

  template <class T>
  struct Value {
    T mine;
    SLIPSTREAM_HD T& operator[](int) { return mine; }
    SLIPSTREAM_HD const T& operator[](int) const { return mine; }
  };

  template <class Body>
  SLIPSTREAM_HD static void each(Body body) {
#if defined(__CUDA_ARCH__)
    body(static_cast<int>(threadIdx.x));
#else
    (void)body;
#endif
  }

  SLIPSTREAM_HD static void sync() {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
  }
  SLIPSTREAM_HD static void warp_sync() {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
  }

  // By ballots, a bit at a time: on an H200 __match_any_sync took some 130 cycles a warp, one warp
  // after the other, and was most of a phase.
  SLIPSTREAM_HD static Value<EqualKeys> match(const Value<std::int32_t>& keys, int num_bits) {
    Value<EqualKeys> equal{};
#if defined(__CUDA_ARCH__)
    unsigned peers = kAllLanes;
#pragma unroll 4
    for (int bit = 0; bit < num_bits; ++bit) {
      const bool is_set = (keys.mine >> bit & 1) != 0;
      const unsigned others = __ballot_sync(kAllLanes, is_set);
      peers &= is_set ? others : ~others;
    }
    const unsigned lower = (1U << (threadIdx.x % 32)) - 1U;
    equal.mine = EqualKeys{__popc(peers & lower), __popc(peers)};
#else
    (void)keys, (void)num_bits;
#endif
    return equal;
  }

  SLIPSTREAM_HD static std::int64_t exclusive_sum(Value<std::int64_t>& values) {
#if defined(__CUDA_ARCH__)
    __shared__ std::int64_t warp_sums[kWarps];
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const std::int64_t inclusive = warp_inclusive_sum(values.mine, lane);
    __syncthreads();  // the last call's sums have been read
    if (lane == 31) warp_sums[warp] = inclusive;
    __syncthreads();
    const std::int64_t sums = warp_inclusive_sum(lane < kWarps ? warp_sums[lane] : 0, lane);
    const std::int64_t earlier = __shfl_sync(kAllLanes, sums, (warp + 31) % 32);
    values.mine = inclusive - values.mine + (warp == 0 ? 0 : earlier);
    return __shfl_sync(kAllLanes, sums, 31);
#else
    return values.mine;
#endif
  }

  SLIPSTREAM_HD static std::uint32_t max(const Value<std::uint32_t>& values) {
#if defined(__CUDA_ARCH__)
    __shared__ std::uint32_t warp_max[kWarps];
    const unsigned lane = threadIdx.x % 32;
    const std::uint32_t mine = __reduce_max_sync(kAllLanes, values.mine);
    __syncthreads();
    if (lane == 0) warp_max[threadIdx.x / 32] = mine;
    __syncthreads();
    return __reduce_max_sync(kAllLanes, lane < kWarps ? warp_max[lane] : 0U);
#else
    return values.mine;
#endif
  }

  SLIPSTREAM_HD static void set_bits(std::uint32_t* word, std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
    atomicOr(word, bits);
#else
    (void)word, (void)bits;
#endif
  }
  SLIPSTREAM_HD static void add(std::int32_t* word, std::int32_t value) {
#if defined(__CUDA_ARCH__)
    atomicAdd(word, value);
#else
    (void)word, (void)value;
#endif
  }

 private:
  SLIPSTREAM_HD static std::int64_t warp_inclusive_sum(std::int64_t value, unsigned lane) {
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
      const std::int64_t below = __shfl_up_sync(kAllLanes, value, step);
      if (lane >= step) value += below;
    }
#else
    (void)lane;
#endif
    return value;
  }
};
#endif  // __CUDACC__

}  // namespace slipstream
