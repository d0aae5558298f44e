// The output of a run against the fp64 reference. Used by `run`; `verify` has its own small layers.
#pragma once

#include <cstdint>
#include <vector>

#include "layer_data.h"
#include "slipstream/tensor.h"
#include "slipstream/tuning.h"

namespace slipstream::cli {

struct CheckResult {
  bool is_passed = false;
  std::int64_t num_tokens = 0;    // checked
  std::int64_t total_tokens = 0;  // there are
  double relative_error = 0;      // ||out - reference|| / ||reference|| over all checked tokens
  double worst_row_error = 0;     // the same of the worst token
  std::int64_t worst_token = -1;  // its index over all ranks
  double tolerance = 0;
  double row_tolerance = 0;
};

// Largest relative error that rounding explains: of the output's dtype, or of coarser partial sums.
double error_tolerance(DType dtype, DType partial_dtype);

// outs[r] is [T_r, H] of the problem's dtype. All tokens when the reference takes seconds for them,
// else as many as that allows, of every rank the first, the last and others between.
CheckResult check_outputs(const LayerData& data, const Tuning& tuning,
                          const std::vector<TensorView>& outs);

}  // namespace slipstream::cli
