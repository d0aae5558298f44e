// The host layer against the same GEMMs alone: the same products, tile by tile and chunk by chunk,
// on the same weights and with the same library and one thread, but nothing else: no tables, no
// copies, no SwiGLU, no combine. What the layer takes beyond that is its own overhead.
//
//   layer_bench [--benchmark_filter=demo]
//
// Both are timed in turns inside one loop and by the CPU time of the process, so that others on the
// machine hurt little and both alike. Counters are medians over the iterations: layer_ms, gemms_ms,
// overhead (0.1 = the layer takes 10% more). Phases are wall time of rank 0's last call.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "host/host_gemm.h"
#include "schedule/golden.h"
#include "schedule/routing_generator.h"
#include "schedule/schedule.h"
#include "slipstream/layer.h"

namespace slipstream {
namespace {

struct Shape {
  const char* name;
  Problem problem;
  std::int32_t tokens_per_rank;
};

Problem problem_of(std::int32_t experts, std::int32_t hidden, std::int32_t intermediate,
                   std::int32_t topk, std::int32_t tokens) {
  return {.num_ranks = 2,
          .num_experts = experts,
          .hidden = hidden,
          .intermediate = intermediate,
          .topk = topk,
          .max_tokens = tokens,
          .dtype = DType::kFP32};
}

const Shape kShapes[] = {
    {"decode", problem_of(8, 512, 1024, 2, 16), 16},
    {"demo", problem_of(8, 512, 1024, 2, 256), 256},
    {"demo_x4_tokens", problem_of(8, 512, 1024, 2, 1024), 1024},
    {"demo_x2_width", problem_of(8, 1024, 2048, 2, 256), 256},
    {"demo_x2_width_x4_tokens", problem_of(8, 1024, 2048, 2, 1024), 1024},
    {"many_experts", problem_of(64, 1024, 768, 8, 256), 256},
};

std::vector<float> random_values(std::int64_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-0.05F, 0.05F);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(generator);
  return values;
}

// Everything of one case. Rank r's weights are gate_up[r], down[r].
struct Setup {
  explicit Setup(const Shape& shape) : problem(shape.problem), num_tokens(shape.tokens_per_rank) {
    const std::int64_t experts = problem.num_experts;
    const std::int64_t hidden = problem.hidden;
    const std::int64_t width = problem.intermediate_per_rank();
    routing = generate_routing({.kind = RoutingKind::kUniform}, 2 * num_tokens, problem.num_experts,
                               problem.topk, 1)
                  .value();
    for (std::uint32_t r = 0; r < 2; ++r) {
      gate_up.push_back(random_values(experts * 2 * width * hidden, 10 + r));
      down.push_back(random_values(experts * hidden * width, 20 + r));
      tokens.push_back(random_values(num_tokens * hidden, 30 + r));
      outs.emplace_back(static_cast<std::size_t>(num_tokens * hidden));
    }
    make_layers();
    make_schedules();
  }

  void make_layers() {
    const RankGroup group = RankGroup::in_process(2).value();
    std::optional<Layer> created[2];
    const auto create = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      const std::int64_t rows = problem.num_experts * std::int64_t{problem.hidden};
      const std::int64_t width = problem.intermediate_per_rank();
      const Weights weights{.gate_up = dense_view(gate_up[r].data(), DType::kFP32,
                                                  problem.num_experts * 2 * width, problem.hidden),
                            .down = dense_view(down[r].data(), DType::kFP32, rows, width)};
      LayerOptions options;
      options.host_drive = HostDrive::kSequential;  // one thread for both ranks, like the GEMMs
      created[r] = Layer::create(problem, group, rank, weights, options).value();
    };
    std::thread peer(create, 1);
    create(0);
    peer.join();
    for (auto& layer : created) layers.push_back(std::move(*layer));
  }

  void make_schedules() {
    const std::int32_t tokens_per_rank[] = {num_tokens, num_tokens};
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      schedules.push_back(build_golden(schedule_shape(problem, layers[0].tuning(), rank),
                                       tokens_per_rank, routing.topk_ids));
    }
    const auto num_rows = static_cast<std::size_t>(schedules[0].counts.num_rows);
    x = random_values(std::int64_t{schedules[0].counts.num_rows} * problem.hidden, 3);
    y = random_values(std::int64_t{schedules[0].counts.num_rows} * problem.intermediate_per_rank(),
                      4);
    product.resize(num_rows * static_cast<std::size_t>(
                                  std::max(problem.hidden, problem.intermediate_per_rank())));
  }

  Status run_layer() {
    std::vector<LayerInput> inputs;
    std::vector<TensorView> out_views;
    for (std::int32_t r = 0; r < 2; ++r) {
      inputs.push_back({dense_view(tokens[r].data(), DType::kFP32, num_tokens, problem.hidden),
                        routing.view(r * num_tokens, num_tokens)});
      out_views.push_back(dense_view(outs[r].data(), DType::kFP32, num_tokens, problem.hidden));
    }
    return run_all_ranks(layers, inputs, out_views);
  }

  void run_gemms() {
    const std::int64_t hidden = problem.hidden;
    const std::int64_t width = problem.intermediate_per_rank();
    const ColumnChunks& chunks = layers[0].tuning().chunks;
    for (std::size_t r = 0; r < 2; ++r) {
      for (const TokenTile& tile : schedules[r].token_tile) {
        for (const std::int64_t half : {0, 1}) {
          const float* weights = gate_up[r].data() + (tile.expert * 2 + half) * width * hidden;
          host::gemm_nt(tile.num_rows, width, hidden, x.data() + tile.row_begin * hidden, hidden,
                        weights, hidden, product.data() + tile.row_begin * width, width);
        }
      }
      for (std::int32_t c = 0; c < chunks.num_chunks; ++c) {
        for (const TokenTile& tile : schedules[r].token_tile) {
          const float* weights = down[r].data() + (tile.expert * hidden + chunks.begin[c]) * width;
          host::gemm_nt(tile.num_rows, chunks.width(c), width, y.data() + tile.row_begin * width,
                        width, weights, width, product.data() + tile.row_begin * hidden, hidden);
        }
      }
    }
  }

  Problem problem;
  std::int32_t num_tokens;
  Routing routing;
  std::vector<std::vector<float>> gate_up, down, tokens, outs;
  std::vector<Layer> layers;
  std::vector<Schedule> schedules;
  std::vector<float> x, y, product;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Body>
double cpu_seconds_of(const Body& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void host_layer(benchmark::State& state, const Shape& shape) {
  Setup setup(shape);
  std::vector<double> layer_seconds, gemm_seconds;
  if (const Status status = setup.run_layer(); !status.is_ok()) {
    state.SkipWithError(status.message().c_str());
    return;
  }
  for ([[maybe_unused]] auto _ : state) {
    layer_seconds.push_back(cpu_seconds_of([&] { benchmark::DoNotOptimize(setup.run_layer()); }));
    gemm_seconds.push_back(cpu_seconds_of([&] { setup.run_gemms(); }));
    state.SetIterationTime(layer_seconds.back());
  }
  const double layer = median(layer_seconds);
  const double gemms = median(gemm_seconds);
  state.counters["layer_ms"] = layer * 1e3;
  state.counters["gemms_ms"] = gemms * 1e3;
  state.counters["overhead"] = layer / gemms - 1;
  const double rows = setup.schedules[0].counts.num_real_rows;
  state.counters["gemm_gflops"] =
      2 * rows * 3 * setup.problem.hidden * setup.problem.intermediate / gemms * 1e-9;
  const PhaseTimes& times = setup.layers[0].phase_times();
  state.counters["plan_ms"] = times.publish_plan * 1e3;
  state.counters["gate_up_ms"] = times.gather_gate_up * 1e3;
  state.counters["down_ms"] = times.down_reduce_push * 1e3;
  state.counters["reduce_ms"] = times.final_reduce * 1e3;
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
  for (const slipstream::Shape& shape : slipstream::kShapes) {
    benchmark::RegisterBenchmark(
        (std::string("host_layer/") + shape.name).c_str(),
        [&shape](benchmark::State& state) { slipstream::host_layer(state, shape); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.5);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
