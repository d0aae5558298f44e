// Cost of the schedule tables on the host: golden and the host-driven builder, per row. Flat from
// 4k to 1M rows is the bar; `cpu_per_row` is the figure.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "schedule/golden.h"
#include "schedule/host_builder.h"
#include "schedule/routing_generator.h"

namespace slipstream {
namespace {

constexpr std::int32_t kTopk = 8;
constexpr std::int32_t kNumRanks = 4;

struct Input {
  ScheduleShape shape;
  std::vector<std::int32_t> tokens_per_rank;
  Routing routing;
};

// range(0) rows over range(1) experts: 4 ranks, top 8, uniform routing.
Input make_input(const benchmark::State& state) {
  const auto num_tokens = static_cast<std::int32_t>(state.range(0) / kTopk);
  const auto num_experts = static_cast<std::int32_t>(state.range(1));
  Input input;
  input.shape = ScheduleShape{.num_ranks = kNumRanks,
                              .rank = 1,
                              .num_experts = num_experts,
                              .topk = kTopk,
                              .chunks = even_chunks(4096, 8)};
  input.tokens_per_rank.assign(kNumRanks, num_tokens / kNumRanks);
  input.routing =
      generate_routing({RoutingKind::kUniform, 0}, num_tokens, num_experts, kTopk, 1).value();
  return input;
}

// Prints as "30ns"; in JSON it is seconds.
void report_per_row(benchmark::State& state) {
  state.counters["cpu_per_row"] =
      benchmark::Counter(static_cast<double>(state.range(0) * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void golden(benchmark::State& state) {
  const Input input = make_input(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        build_golden(input.shape, input.tokens_per_rank, input.routing.topk_ids));
  }
  report_per_row(state);
}

void host_builder(benchmark::State& state) {
  const Input input = make_input(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        build_on_host(input.shape, input.tokens_per_rank, input.routing.topk_ids));
  }
  report_per_row(state);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "E"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t num_experts : {64, 512}) {
    for (std::int64_t num_rows = 1 << 12; num_rows <= 1 << 20; num_rows *= 4)
      bench->Args({num_rows, num_experts});
  }
}

BENCHMARK(golden)->Apply(sizes);
BENCHMARK(host_builder)->Apply(sizes);

}  // namespace
}  // namespace slipstream

BENCHMARK_MAIN();
