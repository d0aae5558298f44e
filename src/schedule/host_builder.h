// Drives the table builder's phases (builder_phases.h) on the host: for the host backend, and to
// check that they give the golden tables for any number of shares and any team, in any order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "schedule/schedule.h"

namespace slipstream {

// Threads that a team plays.
enum class TeamWidth : std::int32_t { kOne = 1, kWarp = 32, kTwoWarps = 64 };

// Runs run_share(s) once for every share s of a phase, in any order or at once, and returns when
// all are done: the barrier between phases.
using RunPhase = std::function<void(std::int32_t num_shares,
                                    const std::function<void(std::int32_t share)>& run_share)>;

struct HostBuilderOptions {
  std::int32_t num_shares = 1;  // at least 1
  TeamWidth team_width = TeamWidth::kOne;
  // Each phase's shares meet a team that has seen nothing, as on a GPU where other blocks took the
  // earlier phases.
  bool fresh_teams = false;
  RunPhase run_phase;  // one share after the other where empty
};

// Same inputs and same result as build_golden().
Schedule build_on_host(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                       std::span<const std::int32_t> topk_ids,
                       const HostBuilderOptions& options = {});

}  // namespace slipstream
