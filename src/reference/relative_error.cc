#include "reference/relative_error.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/numeric.h"

namespace slipstream {

namespace {

template <class T>
double relative_error_of(const TensorView& out, std::span<const T> reference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (out.rows * out.cols != static_cast<std::int64_t>(reference.size())) return kInfinity;
  double difference = 0;
  double norm = 0;
  for (std::int64_t r = 0; r < out.rows; ++r) {
    for (std::int64_t c = 0; c < out.cols; ++c) {
      const double want = reference[static_cast<std::size_t>(r * out.cols + c)];
      const double got = load_as_float(out.data, out.dtype, r * out.row_stride + c);
      difference += (got - want) * (got - want);
      norm += want * want;
    }
  }
  if (!std::isfinite(difference) || !std::isfinite(norm)) return kInfinity;
  if (difference == 0) return 0;
  return norm == 0 ? kInfinity : std::sqrt(difference / norm);
}

}  // namespace

double relative_error(const TensorView& out, std::span<const double> reference) {
  return relative_error_of(out, reference);
}

double relative_error(const TensorView& out, std::span<const float> reference) {
  return relative_error_of(out, reference);
}

}  // namespace slipstream
