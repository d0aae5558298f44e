// cp.async: one 16-byte copy a thread from global to shared memory, past L1. cuda::ptx lacks it.
#pragma once

#include <cstdint>

namespace slipstream::sm90 {

// Copies `bytes` (0..16) and fills the rest of the 16 bytes with zeros. With 0 the source is not
// read.
__device__ __forceinline__ void cp_async_16(std::uint32_t shared_address, const void* global,
                                            std::uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

}  // namespace slipstream::sm90
