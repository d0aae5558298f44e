// setmaxnreg: a warpgroup gives registers back to the block's pool, or takes them from it.
// cuda::ptx lacks it. All four warps execute it together; a sum over warpgroups beyond the pool
// hangs, which Sm90Layout checks at compile time. Called by sm90_engine.cuh only.
#pragma once

namespace slipstream::sm90 {

template <int kRegisters>
__device__ __forceinline__ void give_registers_back() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace slipstream::sm90
