// Anchor 2: the host backend with the real tables against the naive reference, in fp32, so that a
// lost row or a wrong order cannot hide behind rounding. Anchor 3's place until there is a backend
// that it can run on.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "layer_data.h"
#include "layer_run.h"
#include "machine.h"
#include "schedule/routing_generator.h"
#include "verify.h"

namespace slipstream::cli {

namespace {

struct DataflowCase {
  Problem problem;
  std::vector<std::int32_t> tokens_per_rank;
  const char* distribution;
  int threads_per_rank = 1;
};

Problem make_problem(int ranks, int experts, int hidden, int intermediate, int topk) {
  return {.num_ranks = ranks,
          .num_experts = experts,
          .hidden = hidden,
          .intermediate = intermediate,
          .topk = topk,
          .dtype = DType::kFP32};
}

// Ranks 1 to 8; even, uneven, single and no tokens; every kind of routing; widths that are
// multiples of nothing.
std::vector<DataflowCase> dataflow_cases() {
  return {
      {make_problem(1, 4, 64, 48, 2), {33}, "uniform"},
      {make_problem(2, 8, 96, 64, 3), {40, 40}, "balanced"},
      {make_problem(2, 8, 96, 64, 2), {200, 1}, "one"},
      {make_problem(3, 5, 77, 33, 5), {0, 17, 4}, "zipf:1.2"},
      {make_problem(4, 16, 128, 64, 2), {7, 0, 129, 1}, "zipf:1.2", 2},
      {make_problem(4, 64, 128, 32, 8), {64, 64, 64, 64}, "uniform"},
      {make_problem(4, 1, 65, 20, 1), {3, 5, 0, 2}, "uniform"},
      {make_problem(5, 12, 200, 15, 6), {1, 0, 0, 0, 0}, "stddev:0.3"},
      {make_problem(8, 32, 160, 64, 4), {9, 0, 30, 1, 0, 77, 2, 5}, "stddev:0.5"},
      {make_problem(8, 8, 64, 16, 10), {6, 6, 6, 6, 6, 6, 6, 6}, "uniform"},
      {make_problem(2, 8, 64, 32, 2), {0, 0}, "uniform"},
  };
}

// The same case on another number of ranks: slices keep their width, counts repeat or end early.
void set_ranks(std::int32_t num_ranks, DataflowCase* flow) {
  const std::vector<std::int32_t> counts = flow->tokens_per_rank;
  flow->problem.intermediate = flow->problem.intermediate_per_rank() * num_ranks;
  flow->problem.num_ranks = num_ranks;
  flow->tokens_per_rank.clear();
  for (std::int32_t r = 0; r < num_ranks; ++r)
    flow->tokens_per_rank.push_back(counts[static_cast<std::size_t>(r) % counts.size()]);
}

Status run_case(const DataflowCase& flow, std::uint64_t seed, const Tuning& tuning, double* error) {
  const Result<RoutingDistribution> distribution = parse_routing_distribution(flow.distribution);
  if (!distribution.is_ok()) return distribution.status();
  LayerData data(flow.problem, flow.tokens_per_rank);
  std::int32_t num_tokens = 0;
  for (std::int32_t count : flow.tokens_per_rank) num_tokens += count;
  const Result<Routing> routing = generate_routing(
      distribution.value(), num_tokens, flow.problem.num_experts, flow.problem.topk, seed);
  if (!routing.is_ok()) return routing.status();
  set_routing(routing.value(), &data);
  fill_random(seed, &data);

  LayerOptions options;
  options.backend = Backend::kHost;
  options.tuning = tuning;
  options.threads_per_rank = flow.threads_per_rank;
  Result<std::vector<Layer>> layers = create_layers(data, options);
  if (!layers.is_ok()) return layers.status();
  Outputs first(data);
  Outputs second(data);
  for (Outputs* outputs : {&first, &second}) {
    outputs->poison();
    if (Status s = run_all_ranks(layers.value(), data.inputs(), outputs->views()); !s.is_ok())
      return s;
  }
  const CheckResult check = check_outputs(data, tuning, first.views());
  *error = check.relative_error;
  const auto wrong = [](const char* what, std::string observed, std::string expected) {
    return Status(StatusCode::kInternal, Subsystem::kHost,
                  {.what = what, .observed = std::move(observed), .expected = std::move(expected)});
  };
  if (!check.is_passed) {
    return wrong("relative error",
                 fmt::format("{:.1e}, of token {} {:.1e}", check.relative_error, check.worst_token,
                             check.worst_row_error),
                 fmt::format("at most {:.0e}", check.tolerance));
  }
  if (!first.equals(second)) return wrong("second call", "different", "the same bits");
  return Status::ok();
}

}  // namespace

AnchorResult verify_dataflow(const VerifyOptions& options) {
  AnchorResult result;
  std::mt19937_64 random(options.seed);
  double worst = 0;
  for (DataflowCase& flow : dataflow_cases()) {
    if (options.num_ranks > 0) set_ranks(options.num_ranks, &flow);
    flow.problem.max_tokens =
        *std::max_element(flow.tokens_per_rank.begin(), flow.tokens_per_rank.end());
    for (TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128}) {
      Tuning tuning;
      tuning.tile_policy = policy;
      tuning.tile_max_rows = random() % 2 == 0 ? 288 : 16;
      tuning.row_order = random() % 2 == 0 ? RowOrder::kLocalFirst : RowOrder::kAscending;
      tuning.delivery = policy == TilePolicy::kBalanced ? Delivery::kGather : Delivery::kScatter;
      tuning.num_segments = 1 + static_cast<std::int32_t>(random() % 3);
      tuning.chunks = even_chunks(flow.problem.hidden, 1 + static_cast<std::int32_t>(random() % 4),
                                  /*granule=*/16);
      tuning.ring_chunks = std::min(2, tuning.chunks.num_chunks);
      double error = 0;
      const Status status = run_case(flow, random(), tuning, &error);
      ++result.num_cases;
      worst = std::max(worst, error);
      if (status.is_ok()) continue;
      result.state = AnchorState::kFail;
      result.detail =
          fmt::format("{}; W {}, E {}, K {}, tokens {}, {}, {}", status.message(),
                      flow.problem.num_ranks, flow.problem.num_experts, flow.problem.topk,
                      fmt::join(flow.tokens_per_rank, "/"), flow.distribution, describe(tuning));
      return result;
    }
  }
  result.detail = fmt::format(
      "host backend against the fp64 reference, fp32: relative error at most {:.1e}, same bits "
      "again",
      worst);
  return result;
}

AnchorResult verify_end_to_end(Backend backend) {
  AnchorResult result;
  result.state = AnchorState::kSkipped;
  const GpuList list = list_gpus();
  if (backend == Backend::kHost) {
    result.detail = "--backend is host";
  } else if (list.gpus.empty()) {
    result.detail = "no GPU: " + list.why_none;
  } else {
    result.detail = "this build has no CUDA backend";
  }
  return result;
}

}  // namespace slipstream::cli
