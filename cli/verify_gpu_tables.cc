// Anchor 1 on GPUs: ranks that share the GPUs there are call publish_plan, and every rank's tables
// must be golden's, element for element.
#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "machine.h"
#include "schedule/golden.h"
#include "schedule/invariants.h"
#include "schedule/routing_generator.h"
#include "verify.h"
#if defined(SLIPSTREAM_HAS_CUDA)
#include "bench/device/plan_ranks.h"
#include "symmetric/cuda_topology.h"
#endif

namespace slipstream::cli {

namespace {

AnchorPart skipped(std::string why) {
  return {.name = "GPU builder", .state = AnchorState::kSkipped, .detail = std::move(why)};
}

#if defined(SLIPSTREAM_HAS_CUDA)

constexpr std::int32_t kMaxTokens = 200;  // a rank
constexpr double kLimitSeconds = 10;      // of a rank's wait for its peers

using Random = std::mt19937_64;

testing::PlanCall make_call(const Problem& problem, const char* distribution, Random& random) {
  testing::PlanCall call;
  std::int32_t num_tokens = 0;
  for (std::int32_t r = 0; r < problem.num_ranks; ++r) {
    // Every fourth rank has none or one.
    const auto count =
        static_cast<std::int32_t>(random() % 4 == 0 ? random() % 2 : random() % (kMaxTokens + 1));
    call.tokens_per_rank.push_back(count);
    num_tokens += count;
  }
  const std::uint64_t seed = random();
  Result<Routing> routing = generate_routing(parse_routing_distribution(distribution).value(),
                                             num_tokens, problem.num_experts, problem.topk, seed);
  // A spread that so few experts cannot have: the same shape, uniform.
  if (!routing.is_ok())
    routing = generate_routing({}, num_tokens, problem.num_experts, problem.topk, seed);
  call.topk_ids = std::move(routing.value().topk_ids);
  call.topk_weights = std::move(routing.value().topk_weights);
  for (std::int32_t& id : call.topk_ids)
    if (random() % 16 == 0) id = -1;
  call.in_place = random() % 2 == 0;
  return call;
}

// One call of all ranks on poisoned tables. `ranks` keeps its counters and epochs between calls.
Status check_call(testing::PlanRanks& ranks, const testing::PlanCall& call) {
  for (int r = 0; r < ranks.num_ranks(); ++r) ranks.poison(r);
  ranks.run(call);
  for (int r = 0; r < ranks.num_ranks(); ++r) {
    const testing::PlanOutcome outcome = ranks.download(r);
    const auto differs = [r](std::string what, std::string observed, std::string expected) {
      return Status(StatusCode::kInternal, Subsystem::kSchedule,
                    {.what = fmt::format("{} of rank {}", what, r),
                     .observed = std::move(observed),
                     .expected = std::move(expected),
                     .hint = {}});
    };
    if (outcome.verdict.code != fused::VerdictCode::kGood)
      return differs("verdict", fmt::format("{}", static_cast<int>(outcome.verdict.code)), "good");
    const Schedule golden =
        build_golden(outcome.schedule.shape, call.tokens_per_rank, call.topk_ids);
    if (Status s = compare_schedules(outcome.schedule.view(), golden.view()); !s.is_ok()) return s;
    if (outcome.weights != call.topk_weights)
      return differs("gathered topk_weights", "other ones", "those of the call");
    if (outcome.tokens != ranks.uploaded_tokens(r))
      return differs("published tokens", "other ones", "those of the call");
  }
  return Status::ok();
}

// Why this machine cannot run the GPU builder; empty when it can.
std::string why_not(const GpuList& list) {
  if (list.gpus.empty()) return "no GPU: " + list.why_none;
  const Result<CudaTopology> topology = query_cuda_topology();
  if (!topology.is_ok()) return topology.status().message();
  if (!topology.value().all_reachable()) return "the GPUs do not reach each other's memory";
  return {};
}

#endif

}  // namespace

#if defined(SLIPSTREAM_HAS_CUDA)

AnchorPart verify_gpu_tables(const VerifyOptions& options) {
  if (options.backend == Backend::kHost) return skipped("--backend is host");
  // Ranks that share a GPU need a queue each. The driver reads this when it starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const GpuList list = list_gpus();
  if (std::string why = why_not(list); !why.empty()) return skipped(std::move(why));
  AnchorPart part{.name = "GPU builder"};
  if (Status s = fused::prepare_publish_plan(); !s.is_ok()) {
    part.state = AnchorState::kFail;
    part.detail = s.message();
    return part;
  }
  Random random(options.seed);
  const std::vector<std::int32_t> rank_counts =
      options.num_ranks > 0 ? std::vector{options.num_ranks} : std::vector{1, 2, 3, 4, 8};
  constexpr std::pair<std::int32_t, std::int32_t> kExpertsAndTopk[] = {
      {1, 1}, {8, 2}, {60, 6}, {64, 8}, {512, 10}};
  for (const std::int32_t num_ranks : rank_counts) {
    for (const auto& [num_experts, topk] : kExpertsAndTopk) {
      for (const TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128}) {
        const Problem problem = {.num_ranks = num_ranks,
                                 .num_experts = num_experts,
                                 .hidden = 512,
                                 .intermediate = 64 * num_ranks,
                                 .topk = topk,
                                 .max_tokens = kMaxTokens,
                                 .dtype = DType::kBF16};
        Tuning tuning;
        tuning.tile_policy = policy;
        tuning.row_order = random() % 2 == 0 ? RowOrder::kLocalFirst : RowOrder::kAscending;
        tuning.tile_max_rows = 8 * (1 + static_cast<std::int32_t>(random() % 36));
        tuning.num_segments = 1 + static_cast<std::int32_t>(random() % 4);
        tuning.chunks = even_chunks(problem.hidden, 1 + static_cast<std::int32_t>(random() % 4));
        testing::PlanRanks ranks(problem, tuning, kLimitSeconds);
        for (const char* distribution : {"balanced", "uniform", "zipf:1.2", "stddev:0.5", "one"}) {
          const testing::PlanCall call = make_call(problem, distribution, random);
          const Status status = check_call(ranks, call);
          ++part.num_cases;
          if (status.is_ok()) continue;
          part.state = AnchorState::kFail;
          part.detail = fmt::format("{}; {}, {} tokens by rank, E {}, K {}, {}", status.message(),
                                    distribution, fmt::join(call.tokens_per_rank, "/"), num_experts,
                                    topk, describe(tuning));
          return part;
        }
      }
    }
  }
  part.detail =
      fmt::format("publish_plan's tables = golden, element for element; {} ranks on {} GPU{}",
                  fmt::join(rank_counts, "/"), list.gpus.size(), list.gpus.size() == 1 ? "" : "s");
  return part;
}

#else

AnchorPart verify_gpu_tables(const VerifyOptions& options) {
  return skipped(options.backend == Backend::kHost ? "--backend is host"
                                                   : "no GPU: " + list_gpus().why_none);
}

#endif

}  // namespace slipstream::cli
