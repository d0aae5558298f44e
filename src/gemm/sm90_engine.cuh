// The Hopper grouped GEMM's kernel body: it assigns roles and nothing else.
//
//   warps 0-7    math (sm90_math.cuh) and epilogue (sm90_epilogue.cuh): two warpgroups
//   gather only: four warps of token producers (sm90_producer_x.cuh)
//   one warp each: weight producer (sm90_producer_w.cuh), scheduler (sm90_work.cuh),
//                storer (sm90_storer.cuh), and rows by TMA (sm90_producer_x.cuh)
//
// Persistent: each block, or pair of blocks, takes work items until there are none. Instantiated in
// sm90_kernels_*.cu; launched by grouped_gemm.cc. A fused operator calls run_engine() with its own
// Work, Gate and Done policies.
#pragma once

#include "gemm/ptx/setmaxnreg.cuh"
#include "gemm/sm90_gate.cuh"
#include "gemm/sm90_math.cuh"
#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"
#include "gemm/sm90_producer_w.cuh"
#include "gemm/sm90_producer_x.cuh"
#include "gemm/sm90_storer.cuh"
#include "gemm/sm90_work.cuh"

namespace slipstream::sm90 {

// Every thread of the block calls it, once. `work` is used by the cluster's first block only.
template <Sm90Config kConfig, class Work, class Gate, class Done>
__device__ __forceinline__ void run_engine(std::uint8_t* shared_base, const Sm90Params& params,
                                           Work work, Gate gate, Done done) {
  using Layout = Sm90Layout<kConfig>;
  const Shared<kConfig> shared{shared_base};
  const int warp = warp_idx();
  const std::uint32_t rank = Layout::kPair ? cuda::ptx::get_sreg_cluster_ctarank() : 0;

  if (threadIdx.x == 0) shared.init_barriers();
  if constexpr (Layout::kPair) {
    // The peer's barriers must be ready before anything is sent there.
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }

  if (warp < kNumMathWarps) {
    take_registers<Layout::kMathRegisters>();
    run_math(shared, params, rank);
  } else if (Layout::kGather && warp < Layout::kFirstSingleWarp) {
    give_registers_back<Layout::kGatherRegisters>();
    if constexpr (Layout::kGather) run_producer_gather(shared, params, gate, rank);
  } else {
    give_registers_back<Layout::kSingleRegisters>();
    if (lane_idx() == 0) {
      if (warp == Layout::kProducerWWarp) {
        run_producer_w(shared, params, rank);
      } else if (warp == Layout::kSchedulerWarp) {
        if (rank == 0) run_scheduler(shared, work);
      } else if (warp == Layout::kStorerWarp) {
        run_storer(shared, params, done, rank);
      } else if (warp == Layout::kProducerRowsWarp) {
        if constexpr (!Layout::kGather) run_producer_rows(shared, params, gate, rank);
      }
    }
    __syncwarp();
  }

  if constexpr (Layout::kPair) {
    // A block must not leave while its peer still multicasts into it or arrives at its barriers.
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  }
}

// The grouped GEMM on its own: work from the tables, gates and counts where the host gave some.
// Kernel::kConfig is the configuration: nvcc 13.0 cannot spell a structural value in a kernel's
// name.
template <class Kernel>
__global__ void __launch_bounds__(Sm90Layout<Kernel::kConfig>::kNumThreads, 1)
    sm90_grouped_gemm(const __grid_constant__ Sm90Params params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::uint8_t shared_base[];
  constexpr Sm90Config kConfig = Kernel::kConfig;
  constexpr int kClusterSize = Sm90Layout<kConfig>::kClusterSize;
  run_engine<kConfig>(
      shared_base, params,
      TableWork<kConfig>(params.work, blockIdx.x / kClusterSize, gridDim.x / kClusterSize),
      CounterGate(params.gate), CounterDone(params.done));
#endif
}

}  // namespace slipstream::sm90
