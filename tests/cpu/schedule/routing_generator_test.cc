#include "schedule/routing_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "schedule/random.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Routing generate(std::string_view text, std::int32_t num_tokens, std::int32_t num_experts,
                 std::int32_t topk, std::uint64_t seed) {
  const auto distribution = parse_routing_distribution(text);
  EXPECT_TRUE(distribution.is_ok()) << text;
  auto routing = generate_routing(distribution.value(), num_tokens, num_experts, topk, seed);
  EXPECT_TRUE(routing.is_ok()) << routing.status().message();
  return std::move(routing).value();
}

std::vector<double> rows_per_expert(const Routing& routing, std::int32_t num_experts) {
  std::vector<double> rows(num_experts);
  for (const std::int32_t id : routing.topk_ids) {
    if (id >= 0) rows[id] += 1;
  }
  return rows;
}

double relative_stddev(const std::vector<double>& values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / values.size();
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean);
  return std::sqrt(square / values.size()) / mean;
}

// The numbers every machine must give: SplitMix64 by its definition, worked out apart.
TEST(Random, GivesTheSameNumbersOnEveryMachine) {
  Random random(2026);
  EXPECT_EQ(random.bits(), 0x7ee67ef05b0a01cbULL);
  EXPECT_EQ(random.bits(), 0xad81540ad9430047ULL);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(random.below(7), 7U);
    const double unit = random.unit();
    EXPECT_GT(unit, 0);
    EXPECT_LT(unit, 1);
  }
}

TEST(RoutingDistribution, TextRoundTrips) {
  for (const char* text : {"balanced", "uniform", "zipf:1.2", "zipf:0", "stddev:0.3", "one"}) {
    const auto distribution = parse_routing_distribution(text);
    ASSERT_TRUE(distribution.is_ok()) << text;
    EXPECT_EQ(to_string(distribution.value()), text);
  }
}

TEST(RoutingDistribution, RefusalsHaveTheTextAndTheForms) {
  for (const char* text : {"", "zipf", "zipf:", "zipf:-1", "zipf:1x", "zipf:nan", "stddev:inf",
                           "uniform:1", "one:", "Uniform", " uniform", "balanced "}) {
    const auto distribution = parse_routing_distribution(text);
    ASSERT_FALSE(distribution.is_ok()) << text;
    EXPECT_THAT(distribution.status().message(), HasSubstr("'" + std::string(text) + "'"));
    EXPECT_THAT(distribution.status().message(), HasSubstr("zipf:EXPONENT"));
  }
}

TEST(RoutingGenerator, BalancedTakesNeighbours) {
  EXPECT_THAT(generate("balanced", 4, 5, 2, 1).topk_ids, ElementsAre(0, 1, 2, 3, 4, 0, 1, 2));
}

TEST(RoutingGenerator, OneExpertHasEveryRow) {
  EXPECT_THAT(generate("one", 2, 5, 3, 1).topk_ids, ElementsAre(0, -1, -1, 0, -1, -1));
}

TEST(RoutingGenerator, ExpertsAreInRangeAndDistinctUpToE) {
  for (const char* text : {"balanced", "uniform", "zipf:1.2", "zipf:30", "stddev:0.1"}) {
    for (const auto& [num_experts, topk] : {std::pair{1, 1},
                                            {2, 1},
                                            {3, 2},
                                            {8, 6},
                                            {60, 10},
                                            {64, 64},
                                            {1024, 8},
                                            {3, 8},
                                            {2, 64}}) {
      const bool reachable = topk < num_experts || topk > num_experts;
      if (std::string_view(text) == "stddev:0.1" && (!reachable || num_experts == 1)) continue;
      SCOPED_TRACE(testing::Message() << text << " E " << num_experts << " K " << topk);
      const Routing routing = generate(text, 100, num_experts, topk, 7);
      for (std::int32_t token = 0; token < routing.num_tokens; ++token) {
        const auto ids = routing.topk_ids.begin() + token * topk;
        EXPECT_GE(*std::min_element(ids, ids + topk), 0);
        EXPECT_LT(*std::max_element(ids, ids + topk), num_experts);
        // With K > E every expert comes once before any comes again; stddev follows its loads.
        const std::int32_t num_first = std::min(topk, num_experts);
        const std::set<std::int32_t> first(ids, ids + num_first);
        if (topk > num_experts && std::string_view(text) == "stddev:0.1") continue;
        EXPECT_EQ(first.size(), static_cast<std::size_t>(num_first));
      }
    }
  }
}

TEST(RoutingGenerator, TokensDependOnSeedAndIndexOnly) {
  for (const char* text : {"uniform", "zipf:1.2", "stddev:0.5"}) {
    const Routing few = generate(text, 10, 64, 8, 3);
    const Routing many = generate(text, 1000, 64, 8, 3);
    EXPECT_TRUE(std::equal(few.topk_ids.begin(), few.topk_ids.end(), many.topk_ids.begin()));
    EXPECT_TRUE(
        std::equal(few.topk_weights.begin(), few.topk_weights.end(), many.topk_weights.begin()));
    EXPECT_NE(generate(text, 10, 64, 8, 4).topk_ids, few.topk_ids);
  }
}

TEST(RoutingGenerator, WeightsArePositiveAndSumToOne) {
  const Routing routing = generate("uniform", 500, 16, 6, 5);
  for (std::int32_t token = 0; token < routing.num_tokens; ++token) {
    const auto weights = routing.topk_weights.begin() + token * 6;
    EXPECT_GT(*std::min_element(weights, weights + 6), 0);
    EXPECT_NEAR(std::accumulate(weights, weights + 6, 0.0), 1, 1e-6);
  }
  const RoutingView view = routing.view(2, 3);
  EXPECT_EQ(view.topk_ids, routing.topk_ids.data() + 12);
  EXPECT_EQ(view.topk_weights, routing.topk_weights.data() + 12);
  EXPECT_EQ(view.num_tokens, 3);
}

// Binomial noise at 40000 tokens: sqrt(E / (K * tokens)) = 0.014 of the mean for uniform.
TEST(RoutingGenerator, UniformIsUniform) {
  const auto rows = rows_per_expert(generate("uniform", 40000, 64, 8, 11), 64);
  EXPECT_LT(relative_stddev(rows), 0.02);
}

TEST(RoutingGenerator, ZipfFollowsTheExponentForOneExpertPerToken) {
  auto rows = rows_per_expert(generate("zipf:1.2", 400000, 32, 1, 12), 32);
  std::ranges::sort(rows, std::greater<>{});
  double all = 0;
  for (int rank = 1; rank <= 32; ++rank) all += std::pow(rank, -1.2);
  for (int rank = 1; rank <= 32; ++rank) {
    const double expected = 400000 * std::pow(rank, -1.2) / all;
    EXPECT_NEAR(rows[rank - 1], expected, 5 * std::sqrt(expected)) << rank;
  }
}

TEST(RoutingGenerator, ZipfOfTwoIsDrawnWithoutReplacement) {
  // E 3, K 2, weights 1, 1/2, 1/3: the last rank is left out with the chance of drawing the others.
  const auto rows_in_order = [&] {
    auto rows = rows_per_expert(generate("zipf:1", 300000, 3, 2, 13), 3);
    std::ranges::sort(rows, std::greater<>{});
    return rows;
  }();
  const double p[] = {6.0 / 11, 3.0 / 11, 2.0 / 11};
  const double without_last = p[0] * p[1] / (1 - p[0]) + p[1] * p[0] / (1 - p[1]);
  EXPECT_NEAR(rows_in_order[2] / 300000, 1 - without_last, 0.005);
}

TEST(RoutingGenerator, StddevIsMetOnLargeSizes) {
  struct Case {
    double stddev;
    std::int32_t num_experts;
    std::int32_t topk;
  };
  for (const Case& c : {Case{0, 64, 8},
                        {0.1, 64, 8},
                        {0.3, 64, 8},
                        {1, 64, 8},
                        {2.5, 64, 8},
                        {0.3, 8, 2},
                        {0.3, 512, 10},
                        {0.5, 256, 1},
                        {0.5, 4, 9}}) {
    SCOPED_TRACE(testing::Message() << c.stddev << " E " << c.num_experts << " K " << c.topk);
    for (const std::uint64_t seed : {21, 22}) {
      const Routing routing =
          generate(to_string({RoutingKind::kStddev, c.stddev}), 40000, c.num_experts, c.topk, seed);
      // Sampling adds at most binomial noise, in squares.
      const double noise = std::sqrt(c.num_experts / (4e4 * c.topk));
      const double seen = relative_stddev(rows_per_expert(routing, c.num_experts));
      EXPECT_NEAR(seen, c.stddev, std::min(2 * noise, noise * noise / (c.stddev + 1e-9) + 0.01));
    }
  }
}

TEST(RoutingGenerator, UnreachableStddevIsRefusedWithTheBound) {
  const auto refused = generate_routing({RoutingKind::kStddev, 3}, 10, 64, 8, 1);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("stddev is 3, expected at most 2.645"));
  EXPECT_TRUE(generate_routing({RoutingKind::kStddev, 2.645}, 10, 64, 8, 1).is_ok());
  EXPECT_FALSE(generate_routing({RoutingKind::kStddev, 0.1}, 10, 8, 8, 1).is_ok());
  EXPECT_TRUE(generate_routing({RoutingKind::kStddev, 0}, 10, 8, 8, 1).is_ok());
  EXPECT_TRUE(generate_routing({RoutingKind::kStddev, 0}, 10, 1, 1, 1).is_ok());
}

TEST(RoutingGenerator, NoTokensIsFine) {
  EXPECT_TRUE(generate("zipf:1.2", 0, 64, 8, 1).topk_ids.empty());
}

}  // namespace
}  // namespace slipstream
