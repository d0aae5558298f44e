// Random schedule problems for the tests of this folder: routings as users bring them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "schedule/random.h"
#include "schedule/routing_generator.h"
#include "schedule/schedule.h"

namespace slipstream {

struct ScheduleProblem {
  std::string name;
  ScheduleShape shape;
  std::vector<std::int32_t> tokens_per_rank;
  std::vector<std::int32_t> topk_ids;
};

// Column chunks of unequal widths.
inline ColumnChunks uneven_chunks(std::int32_t num_chunks) {
  ColumnChunks chunks;
  chunks.num_chunks = num_chunks;
  for (std::int32_t c = 0; c < num_chunks; ++c)
    chunks.begin[c + 1] = chunks.begin[c] + 64 * (c + 1);
  return chunks;
}

// Ids of one of the generator's distributions ("stddev:0.3" becomes "uniform" where no routing has
// it), or of the users' own kinds: "mixed" has skipped, invalid and repeated ids among good ones,
// "skipped" no expert at all.
inline std::vector<std::int32_t> ids_for(const std::string& kind, std::int32_t num_tokens,
                                         std::int32_t num_experts, std::int32_t topk,
                                         std::uint64_t seed) {
  if (kind == "skipped") return std::vector<std::int32_t>(std::int64_t{num_tokens} * topk, -1);
  if (kind != "mixed") {
    auto distribution = parse_routing_distribution(kind).value();
    auto routing = generate_routing(distribution, num_tokens, num_experts, topk, seed);
    if (!routing.is_ok())
      routing = generate_routing({RoutingKind::kUniform, 0}, num_tokens, num_experts, topk, seed);
    return std::move(routing).value().topk_ids;
  }
  Random random(seed);
  std::vector<std::int32_t> ids(std::int64_t{num_tokens} * topk);
  for (std::int32_t& id : ids) {
    switch (random.below(8)) {
      case 0: id = -1; break;
      case 1: id = num_experts + static_cast<std::int32_t>(random.below(3)); break;
      case 2: id = random.below(2) == 0 ? -2 : INT32_MIN; break;
      case 3: id = 0; break;
      default: id = static_cast<std::int32_t>(random.below(num_experts));
    }
  }
  return ids;
}

inline std::ostream& operator<<(std::ostream& out, const ScheduleProblem& problem) {
  const ScheduleShape& shape = problem.shape;
  out << problem.name << ": W " << shape.num_ranks << " rank " << shape.rank << " E "
      << shape.num_experts << " K " << shape.topk << " " << to_string(shape.tile_policy)
      << "<=" << shape.tile_max_rows << " " << to_string(shape.row_order) << " segments "
      << shape.num_segments << " chunks " << shape.chunks.num_chunks << " tokens";
  for (const std::int32_t tokens : problem.tokens_per_rank) out << " " << tokens;
  return out;
}

// Any shape that validate() lets pass, small.
inline ScheduleProblem random_problem(std::uint64_t seed) {
  Random random(seed, 99);
  const auto pick = [&](std::initializer_list<std::int32_t> values) {
    return values.begin()[random.below(values.size())];
  };
  ScheduleProblem problem;
  ScheduleShape& shape = problem.shape;
  shape.num_ranks = static_cast<std::int32_t>(1 + random.below(8));
  shape.rank = static_cast<std::int32_t>(random.below(shape.num_ranks));
  shape.num_experts = pick({1, 2, 3, 5, 8, 17, 60, 64, 256});
  shape.topk = pick({1, 2, 3, 5, 6, 8, 10, 33, 64});
  shape.tile_policy = random.below(2) == 0 ? TilePolicy::kBalanced : TilePolicy::kFixed128;
  shape.row_order = random.below(2) == 0 ? RowOrder::kLocalFirst : RowOrder::kAscending;
  shape.tile_max_rows = pick({8, 16, 24, 40, 136, 288});
  shape.num_segments = pick({1, 1, 2, 3, 16});
  shape.chunks = uneven_chunks(pick({1, 2, 3, 5}));
  for (std::int32_t rank = 0; rank < shape.num_ranks; ++rank)
    problem.tokens_per_rank.push_back(
        random.below(3) == 0 ? 0 : static_cast<std::int32_t>(random.below(60)));
  const char* kinds[] = {"balanced", "uniform", "zipf:1.2", "stddev:0.3",
                         "one",      "mixed",   "skipped"};
  problem.name = "seed " + std::to_string(seed) + " " + kinds[seed % std::size(kinds)];
  const std::int32_t num_tokens =
      std::accumulate(problem.tokens_per_rank.begin(), problem.tokens_per_rank.end(), 0);
  problem.topk_ids =
      ids_for(kinds[seed % std::size(kinds)], num_tokens, shape.num_experts, shape.topk, seed);
  return problem;
}

}  // namespace slipstream
