// From a spec to what a kernel of the engine takes. grouped_gemm.cc uses it for the stock kernels;
// a fused operator fills the same Sm90Params for its own.
#pragma once

#include "gemm/grouped_gemm.h"
#include "gemm/sm90_kernels.h"
#include "gemm/sm90_params.h"

namespace slipstream::sm90 {

// Checks everything that does not need a device.
Status check_spec(const GroupedGemmSpec& spec);

// The stock kernel for the spec's policies. Errors: kUnsupported.
Result<Sm90Kernel> find_kernel(const GroupedGemmSpec& spec);

// Tensor maps and tables for a kernel of this configuration.
Status make_params(const GroupedGemmSpec& spec, const Sm90Config& config, int weight_rows_per_load,
                   Sm90Params& params);

}  // namespace slipstream::sm90
