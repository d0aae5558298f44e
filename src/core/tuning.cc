// Tuning: names, checks and the heuristic. One branch per regime; each says which.
#include "slipstream/tuning.h"

#include <fmt/format.h>

#include <algorithm>

namespace slipstream {

namespace {

template <class Enum>
struct Name {
  Enum value;
  std::string_view text;
};

constexpr Name<TilePolicy> kTilePolicies[] = {{TilePolicy::kBalanced, "balanced"},
                                              {TilePolicy::kFixed128, "fixed128"}};
constexpr Name<RowOrder> kRowOrders[] = {{RowOrder::kLocalFirst, "local-first"},
                                         {RowOrder::kAscending, "ascending"}};
constexpr Name<Delivery> kDeliveries[] = {{Delivery::kGather, "gather"},
                                          {Delivery::kScatter, "scatter"}};

template <class Enum, std::size_t N>
std::string_view name_of(const Name<Enum> (&names)[N], Enum value) {
  for (const auto& name : names)
    if (name.value == value) return name.text;
  return "unknown";
}

template <class Enum, std::size_t N>
Result<Enum> parse_name(const Name<Enum> (&names)[N], const char* what, std::string_view text) {
  std::string expected;
  for (const auto& name : names) {
    if (name.text == text) return name.value;
    expected += fmt::format("{}{}", expected.empty() ? "" : " or ", name.text);
  }
  return invalid_argument(
      Subsystem::kTuning,
      {.what = what, .observed = fmt::format("'{}'", text), .expected = expected, .hint = {}});
}

Status out_of_range(const char* name, std::int64_t value, std::string expected) {
  return invalid_argument(Subsystem::kTuning, {.what = name,
                                               .observed = fmt::format("{}", value),
                                               .expected = std::move(expected),
                                               .hint = {}});
}

Status check_chunks(const ColumnChunks& chunks, std::int32_t hidden) {
  if (chunks.num_chunks < 1 || chunks.num_chunks > kMaxChunks)
    return out_of_range("num_chunks", chunks.num_chunks, fmt::format("1..{}", kMaxChunks));
  if (chunks.begin[0] != 0) return out_of_range("chunk begin[0]", chunks.begin[0], "0");
  for (std::int32_t c = 0; c < chunks.num_chunks; ++c) {
    if (chunks.width(c) <= 0)
      return out_of_range("width of a column chunk", chunks.width(c), "at least 1");
  }
  if (chunks.begin[chunks.num_chunks] != hidden) {
    return out_of_range("end of the last column chunk", chunks.begin[chunks.num_chunks],
                        fmt::format("hidden, {}", hidden));
  }
  return Status::ok();
}

}  // namespace

std::string_view to_string(TilePolicy policy) { return name_of(kTilePolicies, policy); }
std::string_view to_string(RowOrder order) { return name_of(kRowOrders, order); }
std::string_view to_string(Delivery delivery) { return name_of(kDeliveries, delivery); }

Result<TilePolicy> parse_tile_policy(std::string_view text) {
  return parse_name(kTilePolicies, "tile policy", text);
}
Result<RowOrder> parse_row_order(std::string_view text) {
  return parse_name(kRowOrders, "row order", text);
}
Result<Delivery> parse_delivery(std::string_view text) {
  return parse_name(kDeliveries, "delivery", text);
}

ColumnChunks even_chunks(std::int32_t hidden, std::int32_t num_chunks, std::int32_t granule) {
  const std::int32_t granules = (hidden + granule - 1) / granule;
  ColumnChunks chunks;
  chunks.num_chunks = std::clamp(num_chunks, 1, std::min(kMaxChunks, granules));
  for (std::int32_t c = 0; c <= chunks.num_chunks; ++c) {
    const std::int64_t granule_begin = std::int64_t{granules} * c / chunks.num_chunks;
    chunks.begin[c] =
        static_cast<std::int32_t>(std::min<std::int64_t>(hidden, granule_begin * granule));
  }
  return chunks;
}

Tuning default_tuning(const Problem& problem, std::int64_t tokens_per_call) {
  Tuning tuning;
  if (tokens_per_call <= 256) {
    // Decode: weights dominate; two chunks let the first half's jobs run under the second half.
    tuning.chunks = even_chunks(problem.hidden, 2);
    tuning.ring_chunks = tuning.chunks.num_chunks;
  } else {
    // Prefill: without chunks, uniform routing leaves half of the jobs to the last 9% of the GEMM.
    tuning.chunks = even_chunks(problem.hidden, 8);
    tuning.ring_chunks = std::min(3, tuning.chunks.num_chunks);
  }
  return tuning;
}

Status validate(const Tuning& tuning, const Problem& problem) {
  if (tuning.tile_max_rows < 8 || tuning.tile_max_rows > 1024 || tuning.tile_max_rows % 8 != 0)
    return out_of_range("tile_max_rows", tuning.tile_max_rows, "a multiple of 8 in 8..1024");
  if (tuning.num_segments < 1 || tuning.num_segments > kMaxSegments)
    return out_of_range("num_segments", tuning.num_segments, fmt::format("1..{}", kMaxSegments));
  if (tuning.num_segments * problem.num_experts > kMaxGroups) {
    return out_of_range("num_segments", tuning.num_segments,
                        fmt::format("1..{} with {} experts", kMaxGroups / problem.num_experts,
                                    problem.num_experts));
  }
  if (Status s = check_chunks(tuning.chunks, problem.hidden); !s.is_ok()) return s;
  if (tuning.ring_chunks < 1 || tuning.ring_chunks > tuning.chunks.num_chunks) {
    return out_of_range("ring_chunks", tuning.ring_chunks,
                        fmt::format("1..{}, the number of chunks", tuning.chunks.num_chunks));
  }
  if (tuning.partial_dtype != DType::kFP32 && tuning.partial_dtype != DType::kBF16) {
    return invalid_argument(Subsystem::kTuning,
                            {.what = "partial_dtype",
                             .observed = std::string(to_string(tuning.partial_dtype)),
                             .expected = "fp32 or bf16",
                             .hint = "fp16 overflows at 65504 before the weights scale it"});
  }
  return Status::ok();
}

std::string describe(const Tuning& tuning) {
  const ColumnChunks& chunks = tuning.chunks;
  std::string widths;
  for (std::int32_t c = 0; c < chunks.num_chunks; ++c) {
    if (c > 0 && chunks.width(c) == chunks.width(0)) continue;
    widths += fmt::format("{}{}", widths.empty() ? "" : "/", chunks.width(c));
  }
  const std::string tiles = tuning.tile_policy == TilePolicy::kBalanced
                                ? fmt::format("balanced<={}", tuning.tile_max_rows)
                                : std::string(to_string(tuning.tile_policy));
  return fmt::format("tiles {} {} {}, chunks {} x {} ring {}, segments {}, partial {}", tiles,
                     to_string(tuning.row_order), to_string(tuning.delivery), chunks.num_chunks,
                     widths, tuning.ring_chunks, tuning.num_segments,
                     to_string(tuning.partial_dtype));
}

}  // namespace slipstream
