// The engine's compiled kernels, as the launcher sees them. One list per dtype, each in a file of
// its own so that they compile side by side.
#pragma once

#include <span>

#include "gemm/sm90_config.h"

namespace slipstream::sm90 {

struct Sm90Kernel {
  Sm90Config config;
  const void* function;  // __global__ void(Sm90Params)
  int num_threads;
  int shared_bytes;
  int cluster_size;
  int weight_rows_per_load;
  int block_columns;  // output columns of a work item
};

template <Sm90Config kConfig>
Sm90Kernel describe_kernel(const void* function) {
  using Layout = Sm90Layout<kConfig>;
  return Sm90Kernel{kConfig,
                    function,
                    Layout::kNumThreads,
                    Layout::kSharedBytes,
                    Layout::kClusterSize,
                    Layout::kWeightRowsPerLoad,
                    Layout::kBlockColumns};
}

std::span<const Sm90Kernel> sm90_kernels_bf16();
std::span<const Sm90Kernel> sm90_kernels_fp16();

}  // namespace slipstream::sm90
