// mbarrier arrive at a block of the cluster, with the default (block) scope. cuda::ptx has the
// cluster-scope forms only, and those cost: a release at cluster scope after every k step took a
// cluster of 2 from 327 to 451 us (H200, gate/up at 16384 rows).
//
// Block scope is enough for handing a stage back: what must be ordered are this warp's own reads of
// shared memory by wgmma, and those are complete once wgmma_wait_all() has returned. Nothing is
// published by this arrival.
#pragma once

#include <cstdint>

namespace slipstream::sm90 {

__device__ __forceinline__ void remote_arrive(std::uint32_t shared_address, std::uint32_t rank) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(shared_address),
      "r"(rank)
      : "memory");
}

}  // namespace slipstream::sm90
