#include "reference/reference_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "core/numeric.h"

namespace slipstream {

namespace {

// One (token, k) pair that goes to the expert at hand.
struct RoutedRow {
  std::size_t owner;
  std::int64_t token;  // local to the owner
  float weight;
};

template <class T>
void load_rows(const TensorView& view, std::int64_t first_row, std::int64_t num_rows, T* target) {
  std::vector<float> row(static_cast<std::size_t>(view.cols));
  for (std::int64_t r = 0; r < num_rows; ++r) {
    const auto* source = static_cast<const std::byte*>(view.data) +
                         (first_row + r) * view.row_stride * dtype_bytes(view.dtype);
    to_float(source, view.dtype, view.cols, row.data());
    std::copy(row.begin(), row.end(), target + r * view.cols);
  }
}

// Eight partial sums, so that the compiler may use vector registers without reordering anything.
template <class T>
T dot(const T* a, const T* b, std::int64_t count) {
  T sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// One rank's slice of one expert, in T.
template <class T>
struct ExpertSlice {
  std::int64_t hidden;
  std::int64_t width;  // I
  std::vector<T> gate, up, down;

  ExpertSlice(const Problem& problem, const Weights& weights, std::int64_t expert)
      : hidden(problem.hidden), width(problem.intermediate_per_rank()) {
    const auto size = static_cast<std::size_t>(width * hidden);
    gate.resize(size);
    up.resize(size);
    down.resize(size);
    if (weights.gate_up.data != nullptr) {
      load_rows(weights.gate_up, expert * 2 * width, width, gate.data());
      load_rows(weights.gate_up, expert * 2 * width + width, width, up.data());
    } else {
      load_rows(weights.gate, expert * width, width, gate.data());
      load_rows(weights.up, expert * width, width, up.data());
    }
    load_rows(weights.down, expert * hidden, hidden, down.data());
  }

  // result[h] += (silu(x @ gate) * (x @ up)) @ down
  void add_row(const T* x, T* result) const {
    std::vector<T> y(static_cast<std::size_t>(width));
    for (std::int64_t i = 0; i < width; ++i) {
      const T g = dot(x, &gate[i * hidden], hidden);
      const T u = dot(x, &up[i * hidden], hidden);
      y[i] = g / (T{1} + std::exp(-g)) * u;
    }
    for (std::int64_t h = 0; h < hidden; ++h) result[h] += dot(y.data(), &down[h * width], width);
  }
};

// body(i) for every i < count, on all cores. Which thread takes which i changes no result.
template <class Body>
void parallel_for(std::size_t count, const Body& body) {
  const std::size_t num_threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1,
                                                          std::max<std::size_t>(count, 1));
  auto work = [&](std::size_t first) {
    for (std::size_t i = first; i < count; i += num_threads) body(i);
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < num_threads; ++t) threads.emplace_back(work, t);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

template <class T>
std::vector<std::vector<T>> reference_layer(const Problem& problem,
                                            std::span<const LayerInput> inputs,
                                            std::span<const Weights> weights) {
  const std::int64_t hidden = problem.hidden;
  std::vector<std::vector<T>> tokens, outs;
  std::vector<std::vector<RoutedRow>> rows_of_expert(static_cast<std::size_t>(problem.num_experts));
  for (std::size_t owner = 0; owner < inputs.size(); ++owner) {
    const RoutingView& routing = inputs[owner].routing;
    const auto size = static_cast<std::size_t>(routing.num_tokens * hidden);
    tokens.emplace_back(size);
    outs.emplace_back(size, T{0});
    if (routing.num_tokens > 0)
      load_rows(inputs[owner].tokens, 0, routing.num_tokens, tokens.back().data());
    for (std::int64_t t = 0; t < routing.num_tokens; ++t) {
      for (std::int64_t k = 0; k < routing.topk; ++k) {
        const std::int64_t pair = t * routing.topk + k;
        const std::int32_t expert = routing.topk_ids[pair];
        if (!is_routed(expert, problem.num_experts)) continue;
        rows_of_expert[static_cast<std::size_t>(expert)].push_back(
            {owner, t, routing.topk_weights[pair]});
      }
    }
  }

  for (std::size_t expert = 0; expert < rows_of_expert.size(); ++expert) {
    const std::vector<RoutedRow>& rows = rows_of_expert[expert];
    if (rows.empty()) continue;
    std::vector<T> results(rows.size() * static_cast<std::size_t>(hidden), T{0});
    for (const Weights& rank_weights : weights) {
      const ExpertSlice<T> slice(problem, rank_weights, static_cast<std::int64_t>(expert));
      parallel_for(rows.size(), [&](std::size_t i) {
        slice.add_row(&tokens[rows[i].owner][rows[i].token * hidden], &results[i * hidden]);
      });
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      T* out = &outs[rows[i].owner][rows[i].token * hidden];
      for (std::int64_t h = 0; h < hidden; ++h)
        out[h] += T{rows[i].weight} * results[i * hidden + h];
    }
  }
  return outs;
}

template std::vector<std::vector<double>> reference_layer<double>(const Problem&,
                                                                  std::span<const LayerInput>,
                                                                  std::span<const Weights>);
template std::vector<std::vector<float>> reference_layer<float>(const Problem&,
                                                                std::span<const LayerInput>,
                                                                std::span<const Weights>);

}  // namespace slipstream
