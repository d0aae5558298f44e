// wgmma for Hopper: D[64 x N] += A[64 x 16] * B[N x 16]^T, A and B in shared memory with the
// 128-byte swizzle, both K-major, fp32 accumulators. cuda::ptx has none of these instructions.
//
// N is an immediate of the instruction, so every token count needs its own spelling: the table at
// the end lists N = 8, 16, .. 144. Called by sm90_math.cuh only.
#pragma once

#include <cstdint>

#include "slipstream/tensor.h"

namespace slipstream::sm90 {

// Orders this warpgroup's register writes before its next wgmma.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all of this warpgroup's committed wgmma are done: their accumulators are readable and
// their shared-memory operands may be overwritten.
__device__ __forceinline__ void wgmma_wait_all() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Keeps the compiler from moving reads of `acc` above the wait: it does not know that wgmma writes
// its accumulators after the statement that names them.
template <int kCount>
__device__ __forceinline__ void fence_operand(float (&acc)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

// Shared-memory descriptor of a K-major operand of 128-byte rows with the 128-byte swizzle:
// start address / 16 in bits 0-13, stride between groups of 8 rows (1024 bytes) / 16 in bits 32-45,
// swizzle mode 1 in bits 62-63; the leading offset (1) is ignored in this mode.
// Advancing by 16 elements of k adds 2, by 8 rows adds 64.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t shared_address) {
  return static_cast<std::uint64_t>((shared_address >> 4) & 0x3fffU) | (std::uint64_t{1} << 16) |
         (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
}

// D += A * B^T; kTokens is N. acc[4 * j + i] of lane l in warp w of the warpgroup is D's row
// 16 * w + l / 4 + 8 * (i / 2) and column 8 * j + 2 * (l % 4) + i % 2.
template <DType kDType, int kTokens>
__device__ void wgmma_m64k16(float (&acc)[kTokens / 2], std::uint64_t a, std::uint64_t b);

// Operand lists by groups of 4 registers: a shape of N tokens has N / 8 groups.
// clang-format off
#define SLIPSTREAM_REGS_1 "%0,%1,%2,%3"
#define SLIPSTREAM_REGS_2 SLIPSTREAM_REGS_1 "," "%4,%5,%6,%7"
#define SLIPSTREAM_REGS_3 SLIPSTREAM_REGS_2 "," "%8,%9,%10,%11"
#define SLIPSTREAM_REGS_4 SLIPSTREAM_REGS_3 "," "%12,%13,%14,%15"
#define SLIPSTREAM_REGS_5 SLIPSTREAM_REGS_4 "," "%16,%17,%18,%19"
#define SLIPSTREAM_REGS_6 SLIPSTREAM_REGS_5 "," "%20,%21,%22,%23"
#define SLIPSTREAM_REGS_7 SLIPSTREAM_REGS_6 "," "%24,%25,%26,%27"
#define SLIPSTREAM_REGS_8 SLIPSTREAM_REGS_7 "," "%28,%29,%30,%31"
#define SLIPSTREAM_REGS_9 SLIPSTREAM_REGS_8 "," "%32,%33,%34,%35"
#define SLIPSTREAM_REGS_10 SLIPSTREAM_REGS_9 "," "%36,%37,%38,%39"
#define SLIPSTREAM_REGS_11 SLIPSTREAM_REGS_10 "," "%40,%41,%42,%43"
#define SLIPSTREAM_REGS_12 SLIPSTREAM_REGS_11 "," "%44,%45,%46,%47"
#define SLIPSTREAM_REGS_13 SLIPSTREAM_REGS_12 "," "%48,%49,%50,%51"
#define SLIPSTREAM_REGS_14 SLIPSTREAM_REGS_13 "," "%52,%53,%54,%55"
#define SLIPSTREAM_REGS_15 SLIPSTREAM_REGS_14 "," "%56,%57,%58,%59"
#define SLIPSTREAM_REGS_16 SLIPSTREAM_REGS_15 "," "%60,%61,%62,%63"
#define SLIPSTREAM_REGS_17 SLIPSTREAM_REGS_16 "," "%64,%65,%66,%67"
#define SLIPSTREAM_REGS_18 SLIPSTREAM_REGS_17 "," "%68,%69,%70,%71"
#define SLIPSTREAM_ACC_1 "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
#define SLIPSTREAM_ACC_2 SLIPSTREAM_ACC_1, "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7])
#define SLIPSTREAM_ACC_3 SLIPSTREAM_ACC_2, "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11])
#define SLIPSTREAM_ACC_4 SLIPSTREAM_ACC_3, "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15])
#define SLIPSTREAM_ACC_5 SLIPSTREAM_ACC_4, "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19])
#define SLIPSTREAM_ACC_6 SLIPSTREAM_ACC_5, "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23])
#define SLIPSTREAM_ACC_7 SLIPSTREAM_ACC_6, "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27])
#define SLIPSTREAM_ACC_8 SLIPSTREAM_ACC_7, "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
#define SLIPSTREAM_ACC_9 SLIPSTREAM_ACC_8, "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35])
#define SLIPSTREAM_ACC_10 SLIPSTREAM_ACC_9, "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39])
#define SLIPSTREAM_ACC_11 SLIPSTREAM_ACC_10, "+f"(acc[40]), "+f"(acc[41]), "+f"(acc[42]), "+f"(acc[43])
#define SLIPSTREAM_ACC_12 SLIPSTREAM_ACC_11, "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47])
#define SLIPSTREAM_ACC_13 SLIPSTREAM_ACC_12, "+f"(acc[48]), "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51])
#define SLIPSTREAM_ACC_14 SLIPSTREAM_ACC_13, "+f"(acc[52]), "+f"(acc[53]), "+f"(acc[54]), "+f"(acc[55])
#define SLIPSTREAM_ACC_15 SLIPSTREAM_ACC_14, "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59])
#define SLIPSTREAM_ACC_16 SLIPSTREAM_ACC_15, "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]), "+f"(acc[63])
#define SLIPSTREAM_ACC_17 SLIPSTREAM_ACC_16, "+f"(acc[64]), "+f"(acc[65]), "+f"(acc[66]), "+f"(acc[67])
#define SLIPSTREAM_ACC_18 SLIPSTREAM_ACC_17, "+f"(acc[68]), "+f"(acc[69]), "+f"(acc[70]), "+f"(acc[71])
#define SLIPSTREAM_WGMMA_TYPE(DTYPE, TYPE, N, GROUPS, A, B)                                        \
  template <>                                                                                      \
  __device__ __forceinline__ void wgmma_m64k16<DTYPE, N>(float (&acc)[N / 2], std::uint64_t a,     \
                                                         std::uint64_t b) {                        \
    asm volatile("{ .reg .pred accumulate; setp.eq.u32 accumulate, 0, 0;\n"                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                   \
                 " {" SLIPSTREAM_REGS_##GROUPS "}, %" #A ", %" #B ", accumulate, 1, 1, 0, 0; }"    \
                 : SLIPSTREAM_ACC_##GROUPS                                                         \
                 : "l"(a), "l"(b));                                                                \
  }
// N tokens, its groups, and the operand numbers of the descriptors (after N / 2 accumulators).
#define SLIPSTREAM_WGMMA(N, GROUPS, A, B)                                \
  SLIPSTREAM_WGMMA_TYPE(DType::kBF16, "bf16", N, GROUPS, A, B)           \
  SLIPSTREAM_WGMMA_TYPE(DType::kFP16, "f16", N, GROUPS, A, B)

SLIPSTREAM_WGMMA(8, 1, 4, 5)
SLIPSTREAM_WGMMA(16, 2, 8, 9)
SLIPSTREAM_WGMMA(24, 3, 12, 13)
SLIPSTREAM_WGMMA(32, 4, 16, 17)
SLIPSTREAM_WGMMA(40, 5, 20, 21)
SLIPSTREAM_WGMMA(48, 6, 24, 25)
SLIPSTREAM_WGMMA(56, 7, 28, 29)
SLIPSTREAM_WGMMA(64, 8, 32, 33)
SLIPSTREAM_WGMMA(72, 9, 36, 37)
SLIPSTREAM_WGMMA(80, 10, 40, 41)
SLIPSTREAM_WGMMA(88, 11, 44, 45)
SLIPSTREAM_WGMMA(96, 12, 48, 49)
SLIPSTREAM_WGMMA(104, 13, 52, 53)
SLIPSTREAM_WGMMA(112, 14, 56, 57)
SLIPSTREAM_WGMMA(120, 15, 60, 61)
SLIPSTREAM_WGMMA(128, 16, 64, 65)
SLIPSTREAM_WGMMA(136, 17, 68, 69)
SLIPSTREAM_WGMMA(144, 18, 72, 73)
#undef SLIPSTREAM_WGMMA
#undef SLIPSTREAM_WGMMA_TYPE
#undef SLIPSTREAM_REGS_1
#undef SLIPSTREAM_ACC_1
#undef SLIPSTREAM_REGS_2
#undef SLIPSTREAM_ACC_2
#undef SLIPSTREAM_REGS_3
#undef SLIPSTREAM_ACC_3
#undef SLIPSTREAM_REGS_4
#undef SLIPSTREAM_ACC_4
#undef SLIPSTREAM_REGS_5
#undef SLIPSTREAM_ACC_5
#undef SLIPSTREAM_REGS_6
#undef SLIPSTREAM_ACC_6
#undef SLIPSTREAM_REGS_7
#undef SLIPSTREAM_ACC_7
#undef SLIPSTREAM_REGS_8
#undef SLIPSTREAM_ACC_8
#undef SLIPSTREAM_REGS_9
#undef SLIPSTREAM_ACC_9
#undef SLIPSTREAM_REGS_10
#undef SLIPSTREAM_ACC_10
#undef SLIPSTREAM_REGS_11
#undef SLIPSTREAM_ACC_11
#undef SLIPSTREAM_REGS_12
#undef SLIPSTREAM_ACC_12
#undef SLIPSTREAM_REGS_13
#undef SLIPSTREAM_ACC_13
#undef SLIPSTREAM_REGS_14
#undef SLIPSTREAM_ACC_14
#undef SLIPSTREAM_REGS_15
#undef SLIPSTREAM_ACC_15
#undef SLIPSTREAM_REGS_16
#undef SLIPSTREAM_ACC_16
#undef SLIPSTREAM_REGS_17
#undef SLIPSTREAM_ACC_17
#undef SLIPSTREAM_REGS_18
#undef SLIPSTREAM_ACC_18
// clang-format on

}  // namespace slipstream::sm90
