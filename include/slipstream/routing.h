// Routing: which experts each token of one rank goes to, and with which weight.
#pragma once

#include <cstdint>

#include "slipstream/config.h"
#include "slipstream/status.h"

namespace slipstream {

// topk_ids     [num_tokens, topk] int32, row-major: 0..E-1, or -1 for "no expert" (skipped).
//              The same expert twice in a token is two rows. Any other id is treated like -1 and
//              reported as kInvalidRouting by every rank of that call.
// topk_weights [num_tokens, topk] fp32: any value, not normalised by the layer.
struct RoutingView {
  const std::int32_t* topk_ids = nullptr;
  const float* topk_weights = nullptr;
  std::int32_t num_tokens = 0;
  std::int32_t topk = 0;
};

// Errors: kInvalidArgument for a negative count or a null pointer with tokens.
Status validate(const RoutingView& routing);

// -1 for "skipped", E for "outside": what the tables make of an id. Host and device.
SLIPSTREAM_HD inline bool is_routed(std::int32_t expert_id, std::int32_t num_experts) {
  return expert_id >= 0 && expert_id < num_experts;
}
SLIPSTREAM_HD inline bool is_invalid_id(std::int32_t expert_id, std::int32_t num_experts) {
  return expert_id < -1 || expert_id >= num_experts;
}

}  // namespace slipstream
