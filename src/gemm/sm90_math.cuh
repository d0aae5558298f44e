// Math role: two warpgroups multiply what the producers load and hand the result to the epilogue.
// Each has 128 weight rows (two m64 blocks) and up to 144 tokens of a tile: 144 accumulators a
// thread.
#pragma once

#include "gemm/ptx/wgmma.cuh"
#include "gemm/sm90_epilogue.cuh"
#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"
#include "gemm/sm90_work.cuh"

namespace slipstream::sm90 {

template <Sm90Config kConfig>
__device__ __forceinline__ void wait_full(const Shared<kConfig>& shared,
                                          const RingCursor<kConfig.num_stages>& stage) {
  wait_parity(&shared.barriers().full[stage.slot], stage.parity);
  // Gathered rows were written through the generic proxy. No test sees it when this is missing: it
  // is right by argument (sm90_producer_x.cuh).
  if constexpr (Sm90Layout<kConfig>::kGather) cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

// One tile of kTokens tokens for this warpgroup. Waiting for all wgmma in every step costs nothing:
// the other warpgroup's keep the tensor cores busy (measured equal to one group in flight).
template <Sm90Config kConfig, int kTokens>
__device__ __forceinline__ void run_tile(const Shared<kConfig>& shared, const Sm90Params& params,
                                         RingCursor<kConfig.num_stages>& stage,
                                         RingCursor<1>& staging, const MathShare& share,
                                         int warpgroup, int warp) {
  constexpr int kDescriptorPerStep = 16 * 2 / 16;           // 16 elements of k
  constexpr int kDescriptorPerBlock = 64 * kRowBytes / 16;  // 64 weight rows
  const int weight_row = Sm90Layout<kConfig>::kPair ? warpgroup * kMathWeightRows : 0;
  // Zeroed here and not by wgmma's scale-d: left alone they are live over all token counts' code,
  // which costs 5 KB of stack and serialises wgmma (C7512).
  float acc[2][kTokens / 2] = {};
  for (std::int32_t k = 0; k < params.num_k; k += kStepK, stage.advance()) {
    wait_full(shared, stage);
    const std::uint64_t a =
        wgmma_descriptor(shared_address(shared.weights(stage.slot)) + weight_row * kRowBytes);
    const std::uint64_t b =
        wgmma_descriptor(shared_address(shared.tokens(stage.slot)) + share.first_row * kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kStepK / 16; ++step) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        wgmma_m64k16<kConfig.dtype, kTokens>(
            acc[m], a + step * kDescriptorPerStep + m * kDescriptorPerBlock,
            b + step * kDescriptorPerStep);
      }
    }
    wgmma_commit();
    wgmma_wait_all();
    shared.free_stage(stage.slot);
  }
  fence_operand(acc[0]);
  fence_operand(acc[1]);
  if constexpr (Sm90Layout<kConfig>::kSwiGlu) {
    if (params.up_first != 0) swap_gate_and_up<kTokens>(acc);
  }
  run_epilogue<kConfig, kTokens>(shared, acc, staging, warpgroup, warp);
}

// A warpgroup without tokens still hands every stage back.
template <Sm90Config kConfig>
__device__ __forceinline__ void drain_tile(const Shared<kConfig>& shared, const Sm90Params& params,
                                           RingCursor<kConfig.num_stages>& stage) {
  for (std::int32_t k = 0; k < params.num_k; k += kStepK, stage.advance()) {
    wait_parity(&shared.barriers().full[stage.slot], stage.parity);
    shared.free_stage(stage.slot);
  }
}

// wgmma's N is an immediate: one copy of run_tile per token count, tried from kTokens downwards.
template <Sm90Config kConfig, int kTokens>
__device__ __forceinline__ void dispatch_tile(const Shared<kConfig>& shared,
                                              const Sm90Params& params,
                                              RingCursor<kConfig.num_stages>& stage,
                                              RingCursor<1>& staging, const MathShare& share,
                                              int warpgroup, int warp) {
  if constexpr (kTokens == 0) {
    drain_tile(shared, params, stage);
  } else if (share.units == kTokens / 8) {
    run_tile<kConfig, kTokens>(shared, params, stage, staging, share, warpgroup, warp);
  } else {
    dispatch_tile<kConfig, kTokens - 8>(shared, params, stage, staging, share, warpgroup, warp);
  }
}

template <Sm90Config kConfig>
__device__ void run_math(const Shared<kConfig>& shared, const Sm90Params& params,
                         std::uint32_t rank) {
  const int warpgroup = warp_idx() / 4;
  const int warp = warp_idx() % 4;
  WorkReader<kConfig, true> reader(shared);
  RingCursor<kConfig.num_stages> stage;
  RingCursor<1> staging;
  WorkItem item;
  while (reader.next(item)) {
    const MathShare share = math_share<kConfig>(block_rows<kConfig>(item, rank), warpgroup);
    dispatch_tile<kConfig, Sm90Layout<kConfig>::kMathTokens>(shared, params, stage, staging, share,
                                                             warpgroup, warp);
  }
}

}  // namespace slipstream::sm90
