#include "schedule/host_builder.h"

#include <functional>
#include <numeric>
#include <vector>

#include "schedule/builder_phases.h"

namespace slipstream {

namespace {

// Memory as a GPU would hand it over: what a phase forgets to write shows.
constexpr std::int32_t kPoison = -0x5a5a5a5b;

Schedule allocate(const ScheduleShape& shape, const ScheduleCapacity& capacity) {
  Schedule schedule;
  schedule.shape = shape;
  const TokenTile poison_tile{kPoison, kPoison, kPoison};
  schedule.owner_token_begin.assign(shape.num_ranks + 1, kPoison);
  schedule.expert_row_begin.assign(shape.num_groups() + 1, kPoison);
  schedule.expert_tile_begin.assign(shape.num_groups() + 1, kPoison);
  schedule.token_tile.assign(capacity.num_tiles, poison_tile);
  schedule.slack.assign(capacity.num_tiles, kPoison);
  schedule.slots.assign(capacity.num_pairs, kPoison);
  schedule.slot_tile.assign(capacity.num_pairs, kPoison);
  schedule.row_source.assign(capacity.num_rows, kPoison);
  schedule.pull_order.assign(capacity.num_jobs, kPoison);
  schedule.job_order.assign(capacity.num_jobs, kPoison);
  schedule.owner_num_jobs.assign(shape.num_ranks, kPoison);
  return schedule;
}

ScheduleTables tables_of(Schedule& schedule) {
  return ScheduleTables{.counts = &schedule.counts,
                        .owner_token_begin = schedule.owner_token_begin.data(),
                        .expert_row_begin = schedule.expert_row_begin.data(),
                        .expert_tile_begin = schedule.expert_tile_begin.data(),
                        .token_tile = schedule.token_tile.data(),
                        .slack = schedule.slack.data(),
                        .slots = schedule.slots.data(),
                        .slot_tile = schedule.slot_tile.data(),
                        .row_source = schedule.row_source.data(),
                        .pull_order = schedule.pull_order.data(),
                        .job_order = schedule.job_order.data(),
                        .owner_num_jobs = schedule.owner_num_jobs.data()};
}

void run_in_turn(std::int32_t num_shares, const std::function<void(std::int32_t)>& run_share) {
  for (std::int32_t share = 0; share < num_shares; ++share) run_share(share);
}

template <class Team>
void run_phases(const BuilderArgs& args, const HostBuilderOptions& options) {
  const std::int64_t team_bytes = team_scratch_bytes(args.shape, Team::kWarps);
  std::vector<std::vector<unsigned char>> memory(args.num_shares);
  const auto team_of = [&](std::int32_t share) {
    return bind_team_scratch(memory[share].data(), args.shape, Team::kWarps);
  };
  const auto forget = [&] {
    for (auto& bytes : memory) bytes.assign(team_bytes, 0xa5);
  };
  const RunPhase run_phase = options.run_phase ? options.run_phase : run_in_turn;
  forget();
  run_phase(args.num_shares,
            [&](std::int32_t share) { builder::count_share<Team>(args, team_of(share), share); });
  if (options.fresh_teams) forget();
  run_phase(args.num_shares, [&](std::int32_t share) {
    builder::assign_share<Team>(args, team_of(share), share, !options.fresh_teams);
  });
  if (options.fresh_teams) forget();
  run_phase(args.num_shares, [&](std::int32_t share) {
    builder::order_share<Team>(args, team_of(share), share, !options.fresh_teams);
  });
}

void cut_to_counts(Schedule& schedule) {
  schedule.token_tile.resize(schedule.counts.num_tiles);
  schedule.slack.resize(schedule.counts.num_tiles);
  schedule.row_source.resize(schedule.counts.num_rows);
  schedule.pull_order.resize(schedule.counts.num_pull_tokens);
  schedule.job_order.resize(schedule.counts.num_jobs);
}

}  // namespace

Schedule build_on_host(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                       std::span<const std::int32_t> topk_ids, const HostBuilderOptions& options) {
  const std::int64_t num_tokens =
      std::accumulate(tokens_per_rank.begin(), tokens_per_rank.end(), std::int64_t{0});
  const ScheduleCapacity capacity = schedule_capacity(shape, num_tokens);
  Schedule schedule = allocate(shape, capacity);
  const std::int64_t scratch_bytes =
      builder_scratch_bytes(shape, options.num_shares, capacity.num_rows);
  std::vector<unsigned char> scratch(scratch_bytes, 0xa5);

  BuilderArgs args;
  args.shape = shape;
  args.num_shares = options.num_shares;
  args.tokens_per_rank = tokens_per_rank.data();
  args.topk_ids = topk_ids.data();
  args.tables = tables_of(schedule);
  args.scratch = bind_builder_scratch(scratch.data(), shape, options.num_shares, capacity.num_rows);
  switch (options.team_width) {
    case TeamWidth::kOne: run_phases<SerialTeam<1>>(args, options); break;
    case TeamWidth::kWarp: run_phases<SerialTeam<32>>(args, options); break;
    case TeamWidth::kTwoWarps: run_phases<SerialTeam<64>>(args, options); break;
  }
  cut_to_counts(schedule);
  return schedule;
}

}  // namespace slipstream
