#include "schedule/host_builder.h"

#include <functional>
#include <numeric>
#include <vector>

#include "schedule/builder_phases.h"

namespace slipstream {

namespace {

using Phase = void (*)(const BuilderArgs&, std::int32_t worker);

template <class Lanes>
constexpr Phase kPhases[6] = {builder::count_groups<Lanes>, builder::scan_workers<Lanes>,
                              builder::place_groups<Lanes>, builder::assign_slots<Lanes>,
                              builder::count_flags<Lanes>,  builder::write_orders<Lanes>};

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

void run_in_turn(std::int32_t num_workers, const std::function<void(std::int32_t)>& run_worker) {
  for (std::int32_t worker = 0; worker < num_workers; ++worker) run_worker(worker);
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
      builder_scratch_bytes(shape, options.num_workers, capacity.num_rows);
  std::vector<unsigned char> scratch(scratch_bytes, 0xa5);

  BuilderArgs args;
  args.shape = shape;
  args.num_workers = options.num_workers;
  args.tokens_per_rank = tokens_per_rank.data();
  args.topk_ids = topk_ids.data();
  args.tables = tables_of(schedule);
  args.scratch =
      bind_builder_scratch(scratch.data(), shape, options.num_workers, capacity.num_rows);

  const RunPhase run_phase = options.run_phase ? options.run_phase : run_in_turn;
  const auto& phases =
      options.lane_width == LaneWidth::kWarp ? kPhases<SerialLanes<32>> : kPhases<SerialLanes<1>>;
  for (const Phase phase : phases)
    run_phase(options.num_workers, [&](std::int32_t worker) { phase(args, worker); });
  cut_to_counts(schedule);
  return schedule;
}

}  // namespace slipstream
