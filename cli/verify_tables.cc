// Anchor 1: schedule tables. Every distribution with random shapes, from no token at all to experts
// of many tiles.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <random>
#include <vector>

#include "schedule/golden.h"
#include "schedule/host_builder.h"
#include "schedule/invariants.h"
#include "schedule/routing_generator.h"
#include "schedule/schedule.h"
#include "verify.h"

namespace slipstream::cli {

namespace {

constexpr int kCasesPerDistribution = 60;

struct TableCase {
  Problem problem;
  Tuning tuning;
  std::vector<std::int32_t> tokens_per_rank;
  std::vector<std::int32_t> topk_ids;
  std::int32_t rank = 0;
  std::string description;
};

class CaseMaker {
 public:
  explicit CaseMaker(const VerifyOptions& options)
      : num_ranks_(options.num_ranks), random_(options.seed) {}

  Result<TableCase> make(const char* distribution_text) {
    const Result<RoutingDistribution> distribution = parse_routing_distribution(distribution_text);
    if (!distribution.is_ok()) return distribution.status();
    TableCase table;
    Problem& problem = table.problem;
    problem.num_ranks = num_ranks_ > 0 ? num_ranks_ : pick({1, 2, 3, 4, 8});
    problem.num_experts = pick({1, 2, 8, 60, 64, 128, 384});
    problem.topk = std::min(pick({1, 2, 3, 5, 8, 10}), problem.num_experts);
    problem.hidden = pick({96, 512, 2880});
    problem.intermediate = 64 * problem.num_ranks;
    std::int32_t num_tokens = 0;
    const std::int32_t most = pick({0, 1, 7, 64, 400});
    for (std::int32_t r = 0; r < problem.num_ranks; ++r) {
      table.tokens_per_rank.push_back(pick({0, 1, most, most / 2, most}));
      num_tokens += table.tokens_per_rank.back();
      problem.max_tokens = std::max(problem.max_tokens, table.tokens_per_rank.back());
    }
    table.rank = static_cast<std::int32_t>(random_() % problem.num_ranks);

    Tuning& tuning = table.tuning;
    tuning.tile_policy = pick({TilePolicy::kBalanced, TilePolicy::kFixed128});
    tuning.row_order = pick({RowOrder::kLocalFirst, RowOrder::kAscending});
    tuning.tile_max_rows = pick({8, 64, 128, 288});
    tuning.num_segments = pick({1, 1, 2, 5, 16});
    tuning.chunks = even_chunks(problem.hidden, pick({1, 2, 3, 8}));

    const std::uint64_t seed = random_();
    Result<Routing> routing =
        generate_routing(distribution.value(), num_tokens, problem.num_experts, problem.topk, seed);
    // A spread that so few experts cannot have: the same shape, uniform.
    if (!routing.is_ok())
      routing = generate_routing({}, num_tokens, problem.num_experts, problem.topk, seed);
    if (!routing.is_ok()) return routing.status();
    table.topk_ids = std::move(routing.value().topk_ids);
    spoil_some_ids(&table);
    table.description =
        fmt::format("{}, {} tokens by rank, E {}, K {}, rank {}, {}", distribution_text,
                    fmt::join(table.tokens_per_rank, "/"), problem.num_experts, problem.topk,
                    table.rank, describe(tuning));
    return table;
  }

  std::mt19937_64& random() { return random_; }

  template <class T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + random_() % choices.size());
  }

 private:
  // In a third of the cases: skipped ids, ids from outside, an expert twice in a token.
  void spoil_some_ids(TableCase* table) {
    if (random_() % 3 != 0 || table->topk_ids.empty()) return;
    for (std::size_t i = 0; i < table->topk_ids.size(); i += 1 + random_() % 9) {
      const std::int32_t previous = table->topk_ids[i == 0 ? 0 : i - 1];
      table->topk_ids[i] = pick({-1, -7, table->problem.num_experts, previous});
    }
  }

  std::int32_t num_ranks_;
  std::mt19937_64 random_;
};

template <class Visit, class At>
Status compare_order(const char* name, const std::vector<Visit>& golden, At at) {
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const auto found = at(static_cast<std::int64_t>(i));
    if (std::memcmp(&found, &golden[i], sizeof(Visit)) == 0) continue;
    return Status(StatusCode::kInternal, Subsystem::kSchedule,
                  {.what = fmt::format("{}[{}]", name, i),
                   .observed = "another visit",
                   .expected = "the one of the golden order",
                   .hint = {}});
  }
  return Status::ok();
}

Status check_case(const TableCase& table, CaseMaker* maker) {
  const ScheduleShape shape = schedule_shape(table.problem, table.tuning, table.rank);
  const Schedule golden = build_golden(shape, table.tokens_per_rank, table.topk_ids);
  HostBuilderOptions options;
  options.num_shares = maker->pick({1, 2, 5, 16});
  options.team_width = maker->pick({TeamWidth::kOne, TeamWidth::kWarp, TeamWidth::kTwoWarps});
  // Shares of a phase are independent: their order must not matter.
  options.run_phase = [maker](std::int32_t num_shares, const auto& run_share) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(num_shares));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), maker->random());
    for (std::int32_t share : order) run_share(share);
  };
  const Schedule built = build_on_host(shape, table.tokens_per_rank, table.topk_ids, options);
  const ScheduleView view = built.view();
  if (Status s = compare_schedules(view, golden.view()); !s.is_ok()) return s;
  if (Status s = check_invariants(view, table.tokens_per_rank, table.topk_ids); !s.is_ok())
    return s;
  if (Status s = compare_order("tile_order", golden_tile_order(golden),
                               [&](std::int64_t i) { return tile_order_at(view, i); });
      !s.is_ok())
    return s;
  return compare_order("job_order", golden_job_order(golden),
                       [&](std::int64_t i) { return job_order_at(view, i); });
}

}  // namespace

AnchorPart verify_host_tables(const VerifyOptions& options) {
  AnchorPart result{.name = "host builder"};
  CaseMaker maker(options);
  for (const char* distribution : {"balanced", "uniform", "zipf:1.2", "stddev:0.5", "one"}) {
    for (int i = 0; i < kCasesPerDistribution; ++i) {
      const Result<TableCase> table = maker.make(distribution);
      Status status = table.is_ok() ? check_case(table.value(), &maker) : table.status();
      ++result.num_cases;
      if (status.is_ok()) continue;
      result.state = AnchorState::kFail;
      result.detail = fmt::format("{}; case {}: {}", status.message(), result.num_cases,
                                  table.is_ok() ? table.value().description : distribution);
      return result;
    }
  }
  result.detail = "golden = builder's phases, element for element; invariants hold";
  return result;
}

AnchorResult verify_tables(const VerifyOptions& options) {
  AnchorResult result;
  result.parts = {verify_host_tables(options), verify_gpu_tables(options)};
  for (const AnchorPart& part : result.parts) {
    result.num_cases += part.num_cases;
    // A builder that could not run here takes nothing from the one that did.
    if (part.state == AnchorState::kFail) result.state = AnchorState::kFail;
  }
  result.detail = "golden tables against every builder there is here";
  return result;
}

}  // namespace slipstream::cli
