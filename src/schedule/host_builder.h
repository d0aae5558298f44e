// Drives the table builder's phases (builder_phases.h) on the host: for the host backend, and to
// check that they give the golden tables for any number of workers, in any order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "schedule/schedule.h"

namespace slipstream {

enum class LaneWidth : std::int32_t { kOne = 1, kWarp = 32 };

// Runs run_worker(w) once for every worker w of a phase, in any order or at once, and returns when
// all are done: the barrier between phases.
using RunPhase = std::function<void(std::int32_t num_workers,
                                    const std::function<void(std::int32_t worker)>& run_worker)>;

struct HostBuilderOptions {
  std::int32_t num_workers = 1;  // at least 1
  LaneWidth lane_width = LaneWidth::kOne;
  RunPhase run_phase;  // one worker after the other where empty
};

// Same inputs and same result as build_golden().
Schedule build_on_host(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                       std::span<const std::int32_t> topk_ids,
                       const HostBuilderOptions& options = {});

}  // namespace slipstream
