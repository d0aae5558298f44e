// Bulk copies between shared and global memory for the self-test and the probe, whose only purpose
// is to drive the copy engine as the fused kernels do. Waits are bounded.
#pragma once

#include <cuda/ptx>
#include <cuda/std/cstdint>

#include "protocol/spin.h"

namespace slipstream::bulk {

namespace ptx = cuda::ptx;

inline constexpr std::uint64_t kWaitLimitNs = 2'000'000'000;

// Shared memory written by ordinary stores becomes readable for the copy engine; each writing
// thread calls it before the barrier that precedes store().
__device__ inline void publish_shared() { ptx::fence_proxy_async(ptx::space_shared); }

// Shared to global. One thread; sources stay untouched until drain_reads() or drain().
__device__ inline void store(void* global, const void* shared, std::uint32_t num_bytes) {
  ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, global, shared, num_bytes);
  ptx::cp_async_bulk_commit_group();
}
template <int kMaxPending>
__device__ inline void drain_reads() {
  ptx::cp_async_bulk_wait_group_read(ptx::n32_t<kMaxPending>());
}
// Complete: the writes are performed, not only their sources read.
__device__ inline void drain() { ptx::cp_async_bulk_wait_group(ptx::n32_t<0>()); }

__device__ inline void init_barrier(std::uint64_t* barrier) {
  ptx::mbarrier_init(barrier, 1);
  ptx::fence_proxy_async(ptx::space_shared);
}

// Global to shared. One thread; `barrier` completes its phase when all bytes are there.
__device__ inline void load(void* shared, const void* global, std::uint32_t num_bytes,
                            std::uint64_t* barrier) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier,
                                 num_bytes);
  ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, shared, global, num_bytes, barrier);
}

// False when nothing came within the limit.
__device__ inline bool wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint64_t last = 0;
  const auto observe = [barrier, parity] {
    return protocol::Observation{ptx::mbarrier_try_wait_parity(barrier, parity), parity};
  };
  return protocol::spin_until(
             observe, [] { return false; }, kWaitLimitNs, last) == protocol::SpinResult::kReady;
}

}  // namespace slipstream::bulk
