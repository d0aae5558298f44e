// The engine's fp16 kernels. The list is in sm90_kernels.cuh.
#include "gemm/sm90_kernels.cuh"

namespace slipstream::sm90 {

std::span<const Sm90Kernel> sm90_kernels_fp16() { return list_kernels<DType::kFP16>(); }

}  // namespace slipstream::sm90
