// Loads and popularities are computed in floating point once per routing and then rounded to
// integers; drawing uses integers only. So a last-digit difference of pow() or exp() between two
// machines does not reach the ids.
#include "schedule/routing_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "schedule/random.h"

namespace slipstream {

namespace {

// Streams of a seed: tokens use theirs from 0 upwards.
constexpr std::uint64_t kExpertStream = ~std::uint64_t{0};
constexpr std::uint64_t kWeightStreams = std::uint64_t{1} << 32;

constexpr const char* kAcceptedForms =
    "balanced, uniform, zipf:EXPONENT, stddev:RATIO or one, with a number of 0 or more after the "
    "colon";

constexpr std::pair<RoutingKind, std::string_view> kNames[] = {{RoutingKind::kBalanced, "balanced"},
                                                               {RoutingKind::kUniform, "uniform"},
                                                               {RoutingKind::kZipf, "zipf"},
                                                               {RoutingKind::kStddev, "stddev"},
                                                               {RoutingKind::kOne, "one"}};

bool has_parameter(RoutingKind kind) {
  return kind == RoutingKind::kZipf || kind == RoutingKind::kStddev;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

void shuffle(std::vector<std::int32_t>& values, Random& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

// Draws experts without replacement, with chances in proportion to their weights: a Fenwick tree,
// so that a draw costs O(log E).
class WeightedDraw {
 public:
  explicit WeightedDraw(std::vector<std::uint64_t> weights)
      : weights_(std::move(weights)), tree_(weights_.size() + 1, 0) {
    for (std::size_t expert = 0; expert < weights_.size(); ++expert) add(expert, weights_[expert]);
    while (top_step_ * 2 <= weights_.size()) top_step_ *= 2;
  }

  // K ids of one token. All weights are positive, so E draws take every expert once.
  void draw_token(Random& random, std::int32_t topk, std::int32_t* ids) {
    std::int32_t taken_from = 0;
    for (std::int32_t k = 0; k < topk; ++k) {
      if (total_ == 0) {
        put_back(ids + taken_from, ids + k);
        taken_from = k;
      }
      ids[k] = find(random.below(total_));
      add(ids[k], -weights_[ids[k]]);
    }
    put_back(ids + taken_from, ids + topk);
  }

 private:
  // `amount` may be a negative number modulo 2^64.
  void add(std::size_t expert, std::uint64_t amount) {
    total_ += amount;
    for (std::size_t i = expert + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] += amount;
  }

  void put_back(const std::int32_t* begin, const std::int32_t* end) {
    for (; begin != end; ++begin) add(*begin, weights_[*begin]);
  }

  // The expert whose range of the running sum of weights has `point`.
  std::int32_t find(std::uint64_t point) const {
    std::size_t node = 0;
    for (std::size_t step = top_step_; step > 0; step /= 2) {
      if (node + step >= tree_.size() || tree_[node + step] > point) continue;
      node += step;
      point -= tree_[node];
    }
    return static_cast<std::int32_t>(node);
  }

  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> tree_;
  std::uint64_t total_ = 0;
  std::size_t top_step_ = 1;
};

std::vector<std::uint64_t> zipf_weights(double exponent, std::int32_t num_experts, Random& random) {
  std::vector<std::int32_t> experts(num_experts);
  std::iota(experts.begin(), experts.end(), 0);
  shuffle(experts, random);
  std::vector<std::uint64_t> weights(num_experts);
  for (std::int32_t rank = 0; rank < num_experts; ++rank) {
    const double weight = std::pow(rank + 1.0, -exponent) * 0x1p40;
    weights[experts[rank]] = std::max<std::uint64_t>(1, std::llround(weight));
  }
  return weights;
}

double relative_stddev(const std::vector<double>& values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / values.size();
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean);
  return std::sqrt(square / values.size()) / mean;
}

// K rows of a token spread over experts in proportion to exp(spread * z), at most `cap` each; what
// is cut off goes to the experts after it. `z` descends. Sums run from the smallest upwards and
// relative to the expert at hand, so that no spread is too large.
std::vector<double> capped_loads(const std::vector<double>& z, double spread, double topk,
                                 double cap) {
  std::vector<double> loads(z.size());
  double rest = 0;  // of this and the later experts, relative to this one
  for (std::size_t i = z.size(); i > 0; --i) {
    rest = 1 + (i < z.size() ? rest * std::exp(spread * (z[i] - z[i - 1])) : 0);
    loads[i - 1] = 1 / rest;
  }
  double left = topk;
  for (double& load : loads) {
    load = std::min(left * load, cap);
    left -= load;
  }
  return loads;
}

// Expected rows of each expert per token, K in total, with the given relative standard deviation:
// normal z, and the spread found by bisection. Nothing if no spread reaches it.
std::optional<std::vector<double>> expected_loads(double stddev, std::int32_t num_experts,
                                                  std::int32_t topk, Random& random) {
  std::vector<double> z(num_experts);
  for (double& value : z) {
    value = -6;
    for (int i = 0; i < 12; ++i) value += random.unit();
  }
  std::ranges::sort(z, std::greater<>{});
  const double cap = topk <= num_experts ? 1 : topk;
  double low = 0;
  double high = 1;
  while (relative_stddev(capped_loads(z, high, topk, cap)) < stddev) {
    if (high > 1e6) return std::nullopt;
    high *= 2;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (relative_stddev(capped_loads(z, middle, topk, cap)) < stddev ? low : high) = middle;
  }
  const std::vector<double> sorted = capped_loads(z, low, topk, cap);
  std::vector<std::int32_t> experts(num_experts);
  std::iota(experts.begin(), experts.end(), 0);
  shuffle(experts, random);
  std::vector<double> loads(num_experts);
  for (std::int32_t i = 0; i < num_experts; ++i) loads[experts[i]] = sorted[i];
  return loads;
}

// sqrt(E / K - 1) with distinct experts, sqrt(E - 1) with duplicates, cut to three digits so that
// the number printed is one that works.
double largest_stddev(std::int32_t num_experts, std::int32_t topk) {
  const double experts_per_row =
      topk <= num_experts ? static_cast<double>(num_experts) / topk : num_experts;
  return std::floor(std::sqrt(experts_per_row - 1) * 1000) / 1000;
}

// Draws K experts with exactly the given expected loads: experts in random order side by side on a
// line of length K, each as long as its load; K pins one apart mark the experts (systematic
// sampling). Loads of at most 1 give distinct experts.
class SystematicDraw {
 public:
  SystematicDraw(const std::vector<double>& loads, std::int32_t topk)
      : order_(loads.size()), lengths_(loads.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    // Whole ticks that add up to exactly K pins; rounding goes to experts with room for it.
    std::int64_t left = topk * kPin;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      lengths_[e] = std::llround(loads[e] * static_cast<double>(kPin));
      left -= lengths_[e];
    }
    const std::int64_t cap = topk <= static_cast<std::int64_t>(loads.size()) ? kPin : topk * kPin;
    for (std::int64_t& length : lengths_) {
      const std::int64_t moved = std::clamp(left, -length, cap - length);
      length += moved;
      left -= moved;
    }
  }

  void draw_token(Random& random, std::int32_t* ids) {
    std::iota(order_.begin(), order_.end(), 0);
    shuffle(order_, random);
    auto pin = static_cast<std::int64_t>(random.below(kPin));
    for (const std::int32_t expert : order_) {
      for (; pin < lengths_[expert]; pin += kPin) *ids++ = expert;
      pin -= lengths_[expert];
    }
  }

 private:
  static constexpr std::int64_t kPin = std::int64_t{1} << 40;
  std::vector<std::int32_t> order_;
  std::vector<std::int64_t> lengths_;
};

void fill_weights(std::uint64_t seed, Routing& routing) {
  for (std::int32_t token = 0; token < routing.num_tokens; ++token) {
    Random random(seed, kWeightStreams + token);
    float* const weights = routing.topk_weights.data() + std::int64_t{token} * routing.topk;
    float sum = 0;
    for (std::int32_t k = 0; k < routing.topk; ++k) {
      weights[k] = static_cast<float>(random.unit()) + 0.0625F;
      sum += weights[k];
    }
    for (std::int32_t k = 0; k < routing.topk; ++k) weights[k] /= sum;
  }
}

}  // namespace

Result<RoutingDistribution> parse_routing_distribution(std::string_view text) {
  const std::size_t colon = text.find(':');
  for (const auto& [kind, name] : kNames) {
    if (text.substr(0, colon) != name) continue;
    if (!has_parameter(kind) && colon == text.npos) return RoutingDistribution{kind, 0};
    if (!has_parameter(kind) || colon == text.npos) break;
    if (const auto number = parse_number(text.substr(colon + 1)))
      return RoutingDistribution{kind, *number};
  }
  return invalid_argument(Subsystem::kRouting, {.what = "distribution",
                                                .observed = fmt::format("'{}'", text),
                                                .expected = kAcceptedForms,
                                                .hint = {}});
}

std::string to_string(const RoutingDistribution& distribution) {
  for (const auto& [kind, name] : kNames) {
    if (kind != distribution.kind) continue;
    if (has_parameter(kind)) return fmt::format("{}:{}", name, distribution.parameter);
    return std::string(name);
  }
  return "unknown";
}

RoutingView Routing::view(std::int32_t token_begin, std::int32_t count) const {
  const std::int64_t first = std::int64_t{token_begin} * topk;
  return RoutingView{topk_ids.data() + first, topk_weights.data() + first, count, topk};
}

Result<Routing> generate_routing(const RoutingDistribution& distribution, std::int32_t num_tokens,
                                 std::int32_t num_experts, std::int32_t topk, std::uint64_t seed) {
  Routing routing;
  routing.num_tokens = num_tokens;
  routing.topk = topk;
  routing.topk_ids.assign(std::int64_t{num_tokens} * topk, -1);
  routing.topk_weights.assign(std::int64_t{num_tokens} * topk, 0);
  fill_weights(seed, routing);

  const auto each_token = [&](auto fill) {
    for (std::int32_t token = 0; token < num_tokens; ++token) {
      Random random(seed, token);
      fill(token, random, routing.topk_ids.data() + std::int64_t{token} * topk);
    }
  };
  Random random(seed, kExpertStream);
  switch (distribution.kind) {
    case RoutingKind::kBalanced:
      each_token([&](std::int64_t token, Random&, std::int32_t* ids) {
        for (std::int32_t k = 0; k < topk; ++k)
          ids[k] = static_cast<std::int32_t>((token * topk + k) % num_experts);
      });
      break;
    case RoutingKind::kUniform:
    case RoutingKind::kZipf: {
      const double exponent = distribution.kind == RoutingKind::kZipf ? distribution.parameter : 0;
      WeightedDraw draw(zipf_weights(exponent, num_experts, random));
      each_token([&](std::int64_t, Random& token_random, std::int32_t* ids) {
        draw.draw_token(token_random, topk, ids);
      });
      break;
    }
    case RoutingKind::kStddev: {
      const auto loads = expected_loads(distribution.parameter, num_experts, topk, random);
      if (!loads) {
        return invalid_argument(
            Subsystem::kRouting,
            {.what = "stddev",
             .observed = fmt::format("{}", distribution.parameter),
             .expected = fmt::format("at most {} with top {} of {} experts",
                                     largest_stddev(num_experts, topk), topk, num_experts),
             .hint = "zipf:EXPONENT takes any value"});
      }
      SystematicDraw draw(*loads, topk);
      each_token([&](std::int64_t, Random& token_random, std::int32_t* ids) {
        draw.draw_token(token_random, ids);
      });
      break;
    }
    case RoutingKind::kOne:
      each_token([](std::int64_t, Random&, std::int32_t* ids) { ids[0] = 0; });
      break;
  }
  return routing;
}

}  // namespace slipstream
