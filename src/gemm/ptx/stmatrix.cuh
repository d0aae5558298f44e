// stmatrix with transposition: 8x8 matrices of 16-bit elements from registers to shared memory.
// cuda::ptx lacks it. Lane 8 * i + r holds the address of row r of matrix i; with .trans a row of
// the stored matrix is a column of the register fragment, that is one token of D^T.
#pragma once

#include <cstdint>

namespace slipstream::sm90 {

__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, std::uint32_t m0,
                                                  std::uint32_t m1, std::uint32_t m2,
                                                  std::uint32_t m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
      : "memory");
}

// Matrices 0 and 1 only: the addresses of lanes 0..15 count.
__device__ __forceinline__ void stmatrix_x2_trans(std::uint32_t address, std::uint32_t m0,
                                                  std::uint32_t m1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(m0), "r"(m1)
               : "memory");
}

}  // namespace slipstream::sm90
