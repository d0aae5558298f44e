// Epilogue of a math warpgroup: accumulators to 16-bit, transposed into shared-memory staging in
// the layout that a TMA store of boxes {64 columns, rows} with the 128-byte swizzle reads. The
// storer copies it out (sm90_storer.cuh), so the warpgroup goes on with the next tile at once.
//
// Fragments: acc[m][4 * j + i] of lane l in warp w is weight row 64 * m + 16 * w + l / 4 + 8 * (i /
// 2) of the warpgroup and token 8 * j + 2 * (l % 4) + i % 2. For SwiGLU the weight map alternates 8
// gate and 8 up rows, so that gate (i = 0, 1) and up (i = 2, 3) of a column and token are in one
// thread.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gemm/ptx/stmatrix.cuh"
#include "gemm/sm90_pipeline.cuh"

namespace slipstream::sm90 {

// Two values to 16 bits each, the first in the low half; rounds to nearest even.
template <DType kDType>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (kDType == DType::kBF16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}

// silu(gate) * up in fp32. exp(-gate) overflows to infinity for gate < -88: then the result is
// zero. Two special-function operations a result are what this epilogue costs, but sharing a
// reciprocal between two results (1 / a = b / (a * b)) was slower: 311.5 against 309.9 us, gather
// 334 against 330.
__device__ __forceinline__ float swiglu(float gate, float up) {
  return __fdividef(gate, 1.0F + __expf(-gate)) * up;
}

// One 8x8 matrix of the output, two tokens of a column a lane: token unit j, in the left (side 0)
// or right (1) column chunk of the warp. kStore: m64 block `box`, weight rows 0-7 or 8-15 of the
// warp's
// 16. kSwiGlu: m64 block `side`. Inlined by force: a call between wgmmas serialises them (C7510).
template <Sm90Config kConfig, int kTokens>
__device__ __forceinline__ std::uint32_t output_matrix(const float (&acc)[2][kTokens / 2], int box,
                                                       int j, int side) {
  if constexpr (Sm90Layout<kConfig>::kSwiGlu) {
    const float* a = &acc[side][4 * j];
    return pack<kConfig.dtype>(swiglu(a[0], a[2]), swiglu(a[1], a[3]));
  } else {
    return pack<kConfig.dtype>(acc[box][4 * j + 2 * side], acc[box][4 * j + 2 * side + 1]);
  }
}

// For weights whose up rows lie below their gate rows in memory, so that up comes first in the map.
// A branch of its own: choosing in the arithmetic doubled the code and cost 10% (342 against
// 310 us).
template <int kTokens>
__device__ __forceinline__ void swap_gate_and_up(float (&acc)[2][kTokens / 2]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float up = acc[m][4 * j + i];
        acc[m][4 * j + i] = acc[m][4 * j + i + 2];
        acc[m][4 * j + i + 2] = up;
      }
    }
  }
}

// Writes token units [kFirst, kLast) to the staging buffer, two units a step. The four matrices of
// a step are (left, unit), (right, unit), (left, unit + 1), (right, unit + 1), where left and right
// are two 16-byte column chunks of the same box.
template <Sm90Config kConfig, int kTokens, int kFirst, int kLast>
__device__ __forceinline__ void stage_units(const float (&acc)[2][kTokens / 2],
                                            std::uint32_t staging, int warp) {
  using Layout = Sm90Layout<kConfig>;
  const int row_in_unit = lane_idx() % 8;
  const int right = lane_idx() / 8 % 2;     // which of the two chunks this lane addresses
  const int second_unit = lane_idx() / 16;  // which of the two units
#pragma unroll
  for (int box = 0; box < Layout::kStoreBoxes; ++box) {
    // kStore: the warp's 16 columns in m64 block `box` are chunks 2w and 2w + 1 of that box.
    // kSwiGlu: its 8 columns of m64 block 0 are chunk w, of block 1 chunk w + 4, of the only box.
    const int chunk = Layout::kSwiGlu ? warp + 4 * right : 2 * warp + right;
    const std::uint32_t lane_address = staging + box * Layout::kStagingBoxBytes +
                                       (second_unit * 8 + row_in_unit) * kRowBytes +
                                       ((chunk ^ row_in_unit) * 16);
#pragma unroll
    for (int j = kFirst; j < kLast; j += 2) {
      const std::uint32_t address = lane_address + (j - kFirst) * 8 * kRowBytes;
      if (j + 1 < kLast)
        stmatrix_x4_trans(address, output_matrix<kConfig, kTokens>(acc, box, j, 0),
                          output_matrix<kConfig, kTokens>(acc, box, j, 1),
                          output_matrix<kConfig, kTokens>(acc, box, j + 1, 0),
                          output_matrix<kConfig, kTokens>(acc, box, j + 1, 1));
      else
        stmatrix_x2_trans(address, output_matrix<kConfig, kTokens>(acc, box, j, 0),
                          output_matrix<kConfig, kTokens>(acc, box, j, 1));
    }
  }
}

// All tokens of a tile, staging_rows at a time: waits until the storer has read the buffer, fills
// it, hands it over.
template <Sm90Config kConfig, int kTokens, int kFirst = 0>
__device__ __forceinline__ void run_epilogue(const Shared<kConfig>& shared,
                                             const float (&acc)[2][kTokens / 2],
                                             RingCursor<1>& staging, int warpgroup, int warp) {
  constexpr int kUnits = kTokens / 8;
  constexpr int kLast =
      kFirst + kConfig.staging_rows / 8 < kUnits ? kFirst + kConfig.staging_rows / 8 : kUnits;
  auto& b = shared.barriers();
  wait_parity(&b.free[warpgroup], staging.parity ^ 1);
  stage_units<kConfig, kTokens, kFirst, kLast>(acc, shared_address(shared.staging(warpgroup)),
                                               warp);
  // Generic stores above, TMA reads below: each writer fences, then the warp arrives.
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  __syncwarp();
  if (lane_idx() == 0) cuda::ptx::mbarrier_arrive(&b.staged[warpgroup]);
  staging.advance();
  if constexpr (kLast < kUnits)
    run_epilogue<kConfig, kTokens, kLast>(shared, acc, staging, warpgroup, warp);
}

}  // namespace slipstream::sm90
