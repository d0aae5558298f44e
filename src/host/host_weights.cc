#include "host/host_weights.h"

#include <cstddef>

#include "core/numeric.h"

namespace slipstream::host {

HostWeights::HostWeights(const Problem& problem, const Weights& weights) {
  const std::int64_t width = problem.intermediate_per_rank();
  if (weights.gate_up.data != nullptr) {
    gate_ = adopt(weights.gate_up);
    up_ = at(gate_, width);
    gate_expert_rows_ = 2 * width;
  } else {
    gate_ = adopt(weights.gate);
    up_ = adopt(weights.up);
    gate_expert_rows_ = width;
  }
  down_ = adopt(weights.down);
  down_expert_rows_ = problem.hidden;
}

WeightRows HostWeights::adopt(const TensorView& view) {
  if (view.dtype == DType::kFP32) return {static_cast<const float*>(view.data), view.row_stride};
  std::vector<float>& rows =
      converted_.emplace_back(static_cast<std::size_t>(view.rows * view.cols));
  for (std::int64_t r = 0; r < view.rows; ++r) {
    const auto* source =
        static_cast<const std::byte*>(view.data) + r * view.row_stride * dtype_bytes(view.dtype);
    to_float(source, view.dtype, view.cols, rows.data() + r * view.cols);
  }
  return {rows.data(), view.cols};
}

}  // namespace slipstream::host
