// Problem: the shape of one tensor-parallel MoE layer, the same on every rank.
//
//   layer 0:  y[j,k] = silu(x[j] @ Wgate[e]) * (x[j] @ Wup[e])    e = topk_ids[j,k]
//   layer 1:  out[j] = sum_k w[j,k] * (y[j,k] @ Wdown[e])         summed over ranks on j's owner
#pragma once

#include <cstdint>

#include "slipstream/config.h"
#include "slipstream/status.h"
#include "slipstream/tensor.h"

namespace slipstream {

struct Problem {
  std::int32_t num_ranks = 1;     // W, the TP degree: 1..kMaxRanks
  std::int32_t num_experts = 0;   // E: 1..kMaxExperts; every rank holds a slice of each expert
  std::int32_t hidden = 0;        // H, columns of a token
  std::int32_t intermediate = 0;  // I_full, over all ranks; a rank computes I_full / W columns
  std::int32_t topk = 0;          // K, experts per token: 1..kMaxTopk
  std::int32_t max_tokens = 0;    // most tokens that any rank will ever own in a call
  DType dtype = DType::kBF16;     // tokens, weights and output; accumulation is fp32

  std::int32_t intermediate_per_rank() const { return intermediate / num_ranks; }
  // Most (token, k) pairs of a call over all ranks. 64 bits: validate() bounds it to 31.
  std::int64_t max_routed_rows() const { return std::int64_t{num_ranks} * max_tokens * topk; }
};

// Errors: kInvalidArgument for a dimension outside its range, for I_full not divisible by W (the
// sentence names the nearest width that is), and for more than 2^31 - 1 routed rows.
Status validate(const Problem& problem);

}  // namespace slipstream
