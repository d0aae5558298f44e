// slipstream plan: the schedule tables of a problem, what they cost and when work becomes ready.
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "commands.h"
#include "job.h"
#include "memory.h"
#include "output.h"
#include "presets.h"
#include "schedule/host_builder.h"
#include "schedule/routing_generator.h"
#include "schedule/schedule.h"
#include "schedule/statistics.h"

namespace slipstream::cli {

namespace {

// Rank 0's tables: the row layout is local to a rank, and all ranks' figures are alike.
constexpr std::int32_t kShownRank = 0;

struct Plan {
  ScheduleStatistics in_use;              // with the tuning as it is
  ScheduleStatistics one_chunk;           // the same with one chunk and no segments
  ScheduleStatistics balanced, fixed128;  // both tile policies
};

ScheduleStatistics statistics_of(const Job& job, const Tuning& tuning, const Routing& routing) {
  const Schedule schedule = build_on_host(schedule_shape(job.problem, tuning, kShownRank),
                                          job.tokens_per_rank, routing.topk_ids);
  return schedule_statistics(schedule.view());
}

Plan make_plan(const Job& job, const Routing& routing) {
  Plan plan;
  plan.in_use = statistics_of(job, job.tuning, routing);
  Tuning tuning = job.tuning;
  tuning.chunks = even_chunks(job.problem.hidden, 1);
  tuning.ring_chunks = 1;
  tuning.num_segments = 1;
  plan.one_chunk = statistics_of(job, tuning, routing);
  tuning = job.tuning;
  tuning.tile_policy = TilePolicy::kBalanced;
  plan.balanced = statistics_of(job, tuning, routing);
  tuning.tile_policy = TilePolicy::kFixed128;
  plan.fixed128 = statistics_of(job, tuning, routing);
  return plan;
}

Json policy_json(const ScheduleStatistics& statistics) {
  return {{"padding_tax", statistics.padding_tax},
          {"tiles", statistics.num_tiles},
          {"computed_rows", statistics.num_computed_rows}};
}

Json readiness_json(const ScheduleStatistics& statistics) {
  return {{"half_jobs_ready_at", statistics.jobs_ready.half_after},
          {"jobs_ready", statistics.jobs_ready.share},
          {"half_tokens_needed_at", statistics.tokens_needed.half_after},
          {"tokens_needed", statistics.tokens_needed.share}};
}

void print_plan_json(const Job& job, const Plan& plan, const MemoryNeed& need) {
  const ScheduleStatistics& load = plan.in_use;
  const std::int64_t ranks = job.problem.num_ranks;
  Json json;
  json["command"] = "plan";
  json["preset"] = job.preset;
  json["preset_source"] = find_preset(job.preset)->source;
  json["problem"] = to_json(job.problem);
  json["tokens_per_rank"] = job.tokens_per_rank;
  json["routing"] = to_string(job.distribution);
  json["seed"] = job.seed;
  json["tuning"] = to_json(job.tuning);
  json["rank"] = kShownRank;
  json["routed_rows"] = load.num_real_rows;
  json["rows_per_expert"] = {{"min", load.min_expert_rows},
                             {"mean", load.mean_expert_rows},
                             {"max", load.max_expert_rows},
                             {"stddev", load.stddev_expert_rows}};
  json["tile_policies"] = {{"balanced", policy_json(plan.balanced)},
                           {"fixed128", policy_json(plan.fixed128)}};
  json["padding_tax"] = load.padding_tax;
  json["tiles"] = load.num_tiles;
  json["readiness"] = {{"tuning", readiness_json(plan.in_use)},
                       {"one_chunk_no_segments", readiness_json(plan.one_chunk)}};
  json["workspace_bytes_per_rank"] = {{"symmetric", need.symmetric / ranks},
                                      {"local", need.local / ranks}};
  json["host_memory_bytes"] = need.total();
  print_json(json);
}

std::string curve_text(const ReadinessCurve& curve) {
  std::string text;
  for (double share : curve.share) text += fmt::format("{:>6.0f}", 100 * share);
  return text;
}

void print_plan(const Job& job, const Plan& plan, const MemoryNeed& need) {
  const ScheduleStatistics& load = plan.in_use;
  const std::int64_t ranks = job.problem.num_ranks;
  fmt::print("preset   {}: {}\n", job.preset, find_preset(job.preset)->source);
  fmt::print("layer    {}\n", describe(job.problem));
  fmt::print("tokens   {} ({} by rank), {} routed rows\n", job.num_tokens(),
             fmt::join(job.tokens_per_rank, ", "), load.num_real_rows);
  fmt::print("routing  {}, seed {}; rows per expert {:.0f} to {:.0f}, mean {:.1f} +- {:.1f}\n",
             to_string(job.distribution), job.seed, load.min_expert_rows, load.max_expert_rows,
             load.mean_expert_rows, load.stddev_expert_rows);
  fmt::print("tuning   {}\n", slipstream::describe(job.tuning));
  for (const auto& [name, policy] :
       {std::pair{"balanced", &plan.balanced}, std::pair{"fixed128", &plan.fixed128}}) {
    fmt::print("tiles    {:<9} {} tiles, {} rows computed, padding tax {:.1f}%\n", name,
               policy->num_tiles, policy->num_computed_rows, 100 * policy->padding_tax);
  }
  fmt::print(
      "ready    % of the GEMM done             10    20    30    40    50    60    70    80"
      "    90   100   half at\n");
  const auto line = [](const char* name, const ReadinessCurve& curve) {
    fmt::print("         {:<26}{}   {:.2f}\n", name, curve_text(curve), curve.half_after);
  };
  line("% of tokens needed", plan.in_use.tokens_needed);
  line("% of jobs ready", plan.in_use.jobs_ready);
  line("  one chunk, no segments", plan.one_chunk.jobs_ready);
  fmt::print("memory   a rank: {} symmetric, {} local; host backend, all ranks: {} with weights\n",
             human_bytes(need.symmetric / ranks), human_bytes(need.local / ranks),
             human_bytes(need.total()));
}

}  // namespace

Result<int> cmd_plan(const OptionValues& options) {
  const Result<Job> resolved = resolve_job(options, nullptr);
  if (!resolved.is_ok()) return resolved.status();
  const Job& job = resolved.value();
  const MemoryNeed need = memory_need(job, /*with_check=*/false);
  if (Status s = check_memory(need.tables, "the tables"); !s.is_ok()) return s;
  const Result<Routing> routing =
      generate_routing(job.distribution, static_cast<std::int32_t>(job.num_tokens()),
                       job.problem.num_experts, job.problem.topk, job.seed);
  if (!routing.is_ok()) return routing.status();
  const Plan plan = make_plan(job, routing.value());
  if (options.flag("json")) {
    print_plan_json(job, plan, need);
  } else {
    print_plan(job, plan, need);
  }
  return kExitOk;
}

}  // namespace slipstream::cli
