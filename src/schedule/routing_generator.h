// Routings with a seed: what tests, benchmarks and the CLI feed the layer with. The same seed gives
// the same routing on every machine, and token j's experts depend on the seed and j alone, not on
// the number of tokens or ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slipstream/routing.h"
#include "slipstream/status.h"

namespace slipstream {

// How tokens choose among E experts. K experts of a token are distinct as long as K <= E; with
// K > E a token goes round: every expert once before any comes again (stddev: as the loads say).
enum class RoutingKind : std::int32_t {
  // "balanced": token j takes K neighbouring experts, starting at j * K mod E. Hides the readiness
  // collapse of real routing: never tune on it alone.
  kBalanced = 0,
  // "uniform": K distinct experts, all sets equally likely.
  kUniform = 1,
  // "zipf:S": experts drawn one after the other without replacement, with weights 1 / rank^S; the
  // seed decides which expert has which rank. zipf:0 is uniform.
  kZipf = 2,
  // "stddev:R": expected rows per expert have a standard deviation of R times their mean. The
  // seed draws the loads (lognormal in shape, at most one row a token and expert).
  kStddev = 3,
  // "one": expert 0 takes every row. A token has K slots but one expert, so its other ids are -1:
  // anything else would give rows to other experts.
  kOne = 4,
};

struct RoutingDistribution {
  RoutingKind kind = RoutingKind::kUniform;
  double parameter = 0;  // S or R, where the kind has one
};

// Errors: kInvalidArgument with the text and the accepted forms.
Result<RoutingDistribution> parse_routing_distribution(std::string_view text);
std::string to_string(const RoutingDistribution& distribution);  // parses back to the same

// Tokens of all ranks, rank 0's first. view(begin, count) is the routing of one rank's tokens.
struct Routing {
  std::vector<std::int32_t> topk_ids;  // [num_tokens, topk]
  std::vector<float> topk_weights;     // [num_tokens, topk], positive, a token's sum is about 1
  std::int32_t num_tokens = 0;
  std::int32_t topk = 1;

  RoutingView view(std::int32_t token_begin, std::int32_t count) const;
};

// num_tokens >= 0, num_experts and topk >= 1. Errors: kInvalidArgument where no routing has such a
// standard deviation: distinct experts keep it below sqrt(E / K - 1); the sentence has the bound.
Result<Routing> generate_routing(const RoutingDistribution& distribution, std::int32_t num_tokens,
                                 std::int32_t num_experts, std::int32_t topk, std::uint64_t seed);

}  // namespace slipstream
