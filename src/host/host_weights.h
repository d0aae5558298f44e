// One rank's weights as the host's GEMMs read them: fp32, borrowed where the caller has fp32 and
// converted once, at creation, where he has bf16 or fp16. Made by Layer::create, read by compute
// roles.
#pragma once

#include <cstdint>
#include <vector>

#include "slipstream/layer.h"
#include "slipstream/problem.h"

namespace slipstream::host {

// Rows of one matrix of all experts, `row_stride` floats apart.
struct WeightRows {
  const float* data = nullptr;
  std::int64_t row_stride = 0;

  const float* row(std::int64_t row_idx) const { return data + row_idx * row_stride; }
};

class HostWeights {
 public:
  // `weights` has been checked against `problem`. May throw std::bad_alloc: the caller turns it
  // into kOutOfMemory.
  HostWeights() = default;
  HostWeights(HostWeights&&) = default;
  HostWeights& operator=(HostWeights&&) = default;

  HostWeights(const Problem& problem, const Weights& weights);

  // [I, H] of the gate and of the up projection of an expert, [H, I] of the down projection.
  WeightRows gate(std::int64_t expert) const { return at(gate_, expert * gate_expert_rows_); }
  WeightRows up(std::int64_t expert) const { return at(up_, expert * gate_expert_rows_); }
  WeightRows down(std::int64_t expert) const { return at(down_, expert * down_expert_rows_); }

 private:
  static WeightRows at(WeightRows rows, std::int64_t row_idx) {
    return {rows.row(row_idx), rows.row_stride};
  }
  WeightRows adopt(const TensorView& view);

  WeightRows gate_, up_, down_;
  std::int64_t gate_expert_rows_ = 0;
  std::int64_t down_expert_rows_ = 0;
  std::vector<std::vector<float>> converted_;
};

}  // namespace slipstream::host
