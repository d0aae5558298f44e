// Lanes: what one worker of the table builder computes with. On the GPU a worker is a warp and a
// lane a thread (WarpLanes); on the host a worker is a loop that plays all lanes in turn
// (SerialLanes), of any width. Code written over Lanes runs as both:
//
//   typename Lanes::template Value<int> x;       // one int per lane
//   Lanes::each([&](int lane) { x[lane] = ...; });
//   const int total = Lanes::exclusive_sum(x);   // across lanes, the same on every lane
//
// Plain locals outside each() must be equal on all lanes. All lanes take part in every call.
// Lanes see each other's writes to memory after sync(). Read builder_phases.h next.
#pragma once

#include <cstdint>

#include "slipstream/config.h"

namespace slipstream {

// Where a lane stands among the lanes with its key.
struct EqualKeys {
  std::int32_t rank;   // lower lanes with the same key
  std::int32_t count;  // all lanes with the same key
};

template <int kNumLanes>
struct SerialLanes {
  static constexpr int kWidth = kNumLanes;

  template <class T>
  struct Value {
    T of_lane[kWidth];
    SLIPSTREAM_HD T& operator[](int lane) { return of_lane[lane]; }
    SLIPSTREAM_HD const T& operator[](int lane) const { return of_lane[lane]; }
  };

  template <class Body>
  SLIPSTREAM_HD static void each(Body body) {
    for (int lane = 0; lane < kWidth; ++lane) body(lane);
  }

  SLIPSTREAM_HD static void sync() {}

  SLIPSTREAM_HD static Value<EqualKeys> match(const Value<std::int32_t>& keys) {
    Value<EqualKeys> equal;
    for (int lane = 0; lane < kWidth; ++lane) {
      equal[lane] = EqualKeys{0, 0};
      for (int other = 0; other < kWidth; ++other) {
        if (keys[other] != keys[lane]) continue;
        equal[lane].rank += other < lane ? 1 : 0;
        equal[lane].count += 1;
      }
    }
    return equal;
  }

  // Replaces each lane's value by the sum over lower lanes; returns the sum over all.
  SLIPSTREAM_HD static std::int32_t exclusive_sum(Value<std::int32_t>& values) {
    std::int32_t sum = 0;
    for (int lane = 0; lane < kWidth; ++lane) {
      const std::int32_t value = values[lane];
      values[lane] = sum;
      sum += value;
    }
    return sum;
  }

  SLIPSTREAM_HD static std::int32_t sum(const Value<std::int32_t>& values) {
    std::int32_t result = 0;
    for (int lane = 0; lane < kWidth; ++lane) result += values[lane];
    return result;
  }

  SLIPSTREAM_HD static std::int32_t max(const Value<std::int32_t>& values) {
    std::int32_t result = values[0];
    for (int lane = 1; lane < kWidth; ++lane)
      result = values[lane] > result ? values[lane] : result;
    return result;
  }

  SLIPSTREAM_HD static std::uint32_t min(const Value<std::uint32_t>& values) {
    std::uint32_t result = values[0];
    for (int lane = 1; lane < kWidth; ++lane)
      result = values[lane] < result ? values[lane] : result;
    return result;
  }
};

#if defined(__CUDACC__)
// The bodies exist in device code only: a phase is a host and device template, and its host form
// must not be instantiated with WarpLanes. The block's x dimension must be a multiple of 32.
struct WarpLanes {
  static constexpr int kWidth = 32;
  static constexpr unsigned kAllLanes = 0xffffffffU;

  template <class T>
  struct Value {
    T mine;
    SLIPSTREAM_HD T& operator[](int) { return mine; }
    SLIPSTREAM_HD const T& operator[](int) const { return mine; }
  };

  SLIPSTREAM_HD static int lane() {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(threadIdx.x % kWidth);
#else
    return 0;
#endif
  }

  template <class Body>
  SLIPSTREAM_HD static void each(Body body) {
    body(lane());
  }

  SLIPSTREAM_HD static void sync() {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
  }

  SLIPSTREAM_HD static Value<EqualKeys> match(const Value<std::int32_t>& keys) {
    Value<EqualKeys> equal{};
#if defined(__CUDA_ARCH__)
    const unsigned peers = __match_any_sync(kAllLanes, keys.mine);
    equal.mine.rank = __popc(peers & ((1U << lane()) - 1U));
    equal.mine.count = __popc(peers);
#else
    (void)keys;
#endif
    return equal;
  }

  SLIPSTREAM_HD static std::int32_t exclusive_sum(Value<std::int32_t>& values) {
#if defined(__CUDA_ARCH__)
    std::int32_t inclusive = values.mine;
#pragma unroll
    for (int step = 1; step < kWidth; step *= 2) {
      const std::int32_t below = __shfl_up_sync(kAllLanes, inclusive, step);
      if (lane() >= step) inclusive += below;
    }
    values.mine = inclusive - values.mine;
    return __shfl_sync(kAllLanes, inclusive, kWidth - 1);
#else
    return values.mine;
#endif
  }

  SLIPSTREAM_HD static std::int32_t sum(const Value<std::int32_t>& values) {
#if defined(__CUDA_ARCH__)
    return __reduce_add_sync(kAllLanes, values.mine);
#else
    return values.mine;
#endif
  }

  SLIPSTREAM_HD static std::int32_t max(const Value<std::int32_t>& values) {
#if defined(__CUDA_ARCH__)
    return __reduce_max_sync(kAllLanes, values.mine);
#else
    return values.mine;
#endif
  }

  SLIPSTREAM_HD static std::uint32_t min(const Value<std::uint32_t>& values) {
#if defined(__CUDA_ARCH__)
    return __reduce_min_sync(kAllLanes, values.mine);
#else
    return values.mine;
#endif
  }
};
#endif  // __CUDACC__

}  // namespace slipstream
