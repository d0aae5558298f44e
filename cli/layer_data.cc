#include "layer_data.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/numeric.h"

namespace slipstream::cli {

namespace {

// Which tensor a random value belongs to.
enum class Stream : std::uint64_t { kTokens = 1, kGate, kUp, kDown };

// Bits of one value by its index (splitmix64's finaliser): no state, so any part of a tensor can be
// made by any thread.
std::uint64_t random_bits(std::uint64_t seed, Stream stream, std::int64_t index) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + (static_cast<std::uint64_t>(stream) << 56) +
                    static_cast<std::uint64_t>(index);
  for (int round = 0; round < 2; ++round) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    x ^= x >> 31;
  }
  return x;
}

// Uniform in [-1, 1).
float random_unit(std::uint64_t seed, Stream stream, std::int64_t index) {
  return static_cast<float>(static_cast<std::int32_t>(random_bits(seed, stream, index) >> 32)) *
         0x1p-31F;
}

// `count` adjacent values of a tensor, from element `begin` on, with standard deviation
// `deviation`.
class RowFiller {
 public:
  RowFiller(std::uint64_t seed, DType dtype) : seed_(seed), dtype_(dtype) {}

  void fill(Stream stream, std::int64_t begin, std::int64_t count, float deviation,
            std::byte* target) {
    const float half_width = std::sqrt(3.0F) * deviation;
    row_.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      row_[static_cast<std::size_t>(i)] = half_width * random_unit(seed_, stream, begin + i);
    from_float(row_.data(), dtype_, count, target);
  }

 private:
  std::uint64_t seed_;
  DType dtype_;
  std::vector<float> row_;
};

// One expert's slices of rank r: rows of the full gate and up, columns of the full down.
void fill_expert(std::uint64_t seed, std::int64_t expert, int r, LayerData* data) {
  const Problem& problem = data->problem();
  const std::int64_t hidden = problem.hidden;
  const std::int64_t width = problem.intermediate_per_rank();
  const std::int64_t full = problem.intermediate;
  const std::int64_t size = dtype_bytes(problem.dtype);
  // gate and up have deviation 1 each, silu(gate) * up has variance 0.356, and the squares of a
  // token's router weights add up to about 1 / K.
  const float gate_deviation = 1 / std::sqrt(static_cast<float>(hidden));
  const float down_deviation =
      std::sqrt(static_cast<float>(problem.topk) / (0.356F * static_cast<float>(full)));
  RowFiller filler(seed, problem.dtype);
  std::byte* gate = data->rank(r).gate_up.data() + expert * 2 * width * hidden * size;
  for (std::int64_t i = 0; i < width; ++i) {
    const std::int64_t row = expert * full + r * width + i;
    filler.fill(Stream::kGate, row * hidden, hidden, gate_deviation, gate + i * hidden * size);
    filler.fill(Stream::kUp, row * hidden, hidden, gate_deviation,
                gate + (width + i) * hidden * size);
  }
  std::byte* down = data->rank(r).down.data() + expert * hidden * width * size;
  for (std::int64_t h = 0; h < hidden; ++h) {
    filler.fill(Stream::kDown, (expert * hidden + h) * full + r * width, width, down_deviation,
                down + h * width * size);
  }
}

}  // namespace

LayerData::LayerData(const Problem& problem, const std::vector<std::int32_t>& tokens_per_rank)
    : problem_(problem) {
  const std::int64_t hidden = problem.hidden;
  const std::int64_t width = problem.intermediate_per_rank();
  const std::int64_t size = dtype_bytes(problem.dtype);
  for (std::int32_t num_tokens : tokens_per_rank) {
    RankData rank;
    rank.num_tokens = num_tokens;
    rank.tokens = Buffer(num_tokens * hidden * size);
    const auto num_pairs = static_cast<std::size_t>(std::int64_t{num_tokens} * problem.topk);
    rank.topk_ids.assign(num_pairs, -1);
    rank.topk_weights.assign(num_pairs, 0.0F);
    rank.gate_up = Buffer(problem.num_experts * 2 * width * hidden * size);
    rank.down = Buffer(problem.num_experts * hidden * width * size);
    ranks_.push_back(std::move(rank));
  }
}

std::vector<LayerInput> LayerData::inputs() const {
  std::vector<LayerInput> inputs;
  for (const RankData& rank : ranks_) {
    inputs.push_back(
        {.tokens = dense_view(rank.tokens.data(), problem_.dtype, rank.num_tokens, problem_.hidden),
         .routing = {.topk_ids = rank.topk_ids.data(),
                     .topk_weights = rank.topk_weights.data(),
                     .num_tokens = rank.num_tokens,
                     .topk = problem_.topk}});
  }
  return inputs;
}

std::vector<Weights> LayerData::weights() const {
  const std::int64_t width = problem_.intermediate_per_rank();
  const std::int64_t experts = problem_.num_experts;
  std::vector<Weights> weights;
  for (const RankData& rank : ranks_) {
    weights.push_back(
        {.gate_up =
             dense_view(rank.gate_up.data(), problem_.dtype, experts * 2 * width, problem_.hidden),
         .down = dense_view(rank.down.data(), problem_.dtype, experts * problem_.hidden, width)});
  }
  return weights;
}

std::int64_t LayerData::weight_bytes(const Problem& problem) {
  return 3 * std::int64_t{problem.num_experts} * problem.hidden * problem.intermediate *
         dtype_bytes(problem.dtype);
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  const std::int64_t num_threads = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1,
                                                            std::max<std::int64_t>(count, 1));
  std::vector<std::thread> threads;
  const auto work = [&](std::int64_t first) {
    for (std::int64_t i = first; i < count; i += num_threads) body(i);
  };
  for (std::int64_t t = 1; t < num_threads; ++t) threads.emplace_back(work, t);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

void set_routing(const Routing& routing, LayerData* data) {
  auto id = routing.topk_ids.begin();
  auto weight = routing.topk_weights.begin();
  for (int r = 0; r < data->num_ranks(); ++r) {
    RankData& rank = data->rank(r);
    const auto count = std::ssize(rank.topk_ids);
    std::copy(id, id + count, rank.topk_ids.begin());
    std::copy(weight, weight + count, rank.topk_weights.begin());
    id += count;
    weight += count;
  }
}

void fill_random(std::uint64_t seed, LayerData* data) {
  const Problem& problem = data->problem();
  const std::int64_t hidden = problem.hidden;
  std::int64_t first_token = 0;
  for (int r = 0; r < data->num_ranks(); ++r) {
    RankData& rank = data->rank(r);
    parallel_for(rank.num_tokens, [&](std::int64_t t) {
      RowFiller(seed, problem.dtype)
          .fill(Stream::kTokens, (first_token + t) * hidden, hidden, 1,
                rank.tokens.data() + t * hidden * dtype_bytes(problem.dtype));
    });
    first_token += rank.num_tokens;
  }
  parallel_for(std::int64_t{problem.num_ranks} * problem.num_experts, [&](std::int64_t i) {
    fill_expert(seed, i / problem.num_ranks, static_cast<int>(i % problem.num_ranks), data);
  });
}

}  // namespace slipstream::cli
