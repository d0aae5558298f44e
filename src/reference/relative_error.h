// How far an output is from the reference: one number that tests and the CLI compare with a bound.
#pragma once

#include <span>

#include "slipstream/tensor.h"

namespace slipstream {

// ||out - reference|| / ||reference|| over a whole tensor; out [rows, cols] of any dtype and row
// stride, reference dense. Infinity where either holds a NaN or an infinity, where the sizes
// differ, and for a non-zero `out` against a zero reference: an error that cannot be measured never
// passes.
double relative_error(const TensorView& out, std::span<const double> reference);
double relative_error(const TensorView& out, std::span<const float> reference);

}  // namespace slipstream
