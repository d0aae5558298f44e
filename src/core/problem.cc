// Checks of what a caller describes: Problem, RoutingView, element types.
#include "slipstream/problem.h"

#include <fmt/format.h>

#include <limits>

#include "slipstream/routing.h"

namespace slipstream {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bf16";
    case DType::kFP16: return "fp16";
    case DType::kFP32: return "fp32";
  }
  return "unknown";
}

Result<DType> parse_dtype(std::string_view text) {
  if (text == "bf16") return DType::kBF16;
  if (text == "fp16") return DType::kFP16;
  if (text == "fp32") return DType::kFP32;
  return invalid_argument(Subsystem::kProblem, {.what = "dtype",
                                                .observed = fmt::format("'{}'", text),
                                                .expected = "bf16, fp16 or fp32",
                                                .hint = {}});
}

namespace {

Status check_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return Status::ok();
  return invalid_argument(Subsystem::kProblem, {.what = name,
                                                .observed = fmt::format("{}", value),
                                                .expected = fmt::format("{}..{}", low, high),
                                                .hint = {}});
}

Status check_divisible(const Problem& problem) {
  const std::int32_t rest = problem.intermediate % problem.num_ranks;
  if (rest == 0) return Status::ok();
  // The nearest multiple of W, never 0; the lower one wins a tie.
  const std::int64_t below = std::int64_t{problem.intermediate} - rest;
  const std::int64_t above = below + problem.num_ranks;
  const bool take_below = below > 0 && rest <= problem.num_ranks - rest;
  return invalid_argument(
      Subsystem::kProblem,
      {.what = "intermediate",
       .observed = fmt::format("{}", problem.intermediate),
       .expected = fmt::format("a multiple of the {} ranks", problem.num_ranks),
       .hint = fmt::format("the nearest width that does is {}", take_below ? below : above)});
}

}  // namespace

Status validate(const Problem& problem) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kMaxWidth = 1 << 20;
  if (Status s = check_range("num_ranks", problem.num_ranks, 1, kMaxRanks); !s.is_ok()) return s;
  if (Status s = check_range("num_experts", problem.num_experts, 1, kMaxExperts); !s.is_ok())
    return s;
  if (Status s = check_range("hidden", problem.hidden, 1, kMaxWidth); !s.is_ok()) return s;
  if (Status s = check_range("intermediate", problem.intermediate, 1, kMaxWidth); !s.is_ok())
    return s;
  if (Status s = check_range("topk", problem.topk, 1, kMaxTopk); !s.is_ok()) return s;
  if (Status s = check_range("max_tokens", problem.max_tokens, 0, kMax); !s.is_ok()) return s;
  if (Status s = check_divisible(problem); !s.is_ok()) return s;
  // Slots are 32-bit. Padding of fixed128 adds at most 127 rows an expert and segment.
  const std::int64_t padding = std::int64_t{kMaxSegments} * problem.num_experts * 127;
  if (problem.max_routed_rows() > kMax - padding) {
    return invalid_argument(Subsystem::kProblem,
                            {.what = "num_ranks * max_tokens * topk",
                             .observed = fmt::format("{}", problem.max_routed_rows()),
                             .expected = fmt::format("at most {}", kMax - padding),
                             .hint = "run the tokens in several calls"});
  }
  return Status::ok();
}

Status validate(const RoutingView& routing) {
  if (routing.num_tokens < 0) {
    return invalid_argument(Subsystem::kRouting, {.what = "num_tokens",
                                                  .observed = fmt::format("{}", routing.num_tokens),
                                                  .expected = "0 or more",
                                                  .hint = {}});
  }
  if (routing.num_tokens > 0 && (routing.topk_ids == nullptr || routing.topk_weights == nullptr)) {
    return invalid_argument(
        Subsystem::kRouting,
        {.what = routing.topk_ids == nullptr ? "topk_ids" : "topk_weights",
         .observed = "null",
         .expected = fmt::format("{} x {} values", routing.num_tokens, routing.topk),
         .hint = "a null pointer is fine for 0 tokens only"});
  }
  return Status::ok();
}

}  // namespace slipstream
