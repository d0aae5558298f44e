// Drives the table builder's phases (builder_phases.h) on the host: as the host backend's builder,
// and as the check that the phases give the golden tables for any number of workers, in any order.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/schedule.h"

namespace slipstream {

enum class LaneWidth : std::int32_t { kOne = 1, kWarp = 32 };

// In which order a phase's workers run. The tables are the same for all of them.
enum class WorkerOrder : std::int32_t {
  kForward = 0,
  kReversed = 1,
  kShuffled = 2,  // another order in every phase
  kThreads = 3,   // a thread per worker, joined between phases: for ThreadSanitizer to watch
};

struct HostBuilderOptions {
  std::int32_t num_workers = 1;  // at least 1
  LaneWidth lane_width = LaneWidth::kOne;
  WorkerOrder worker_order = WorkerOrder::kForward;
  std::uint32_t shuffle_seed = 1;
};

// Same inputs and same result as build_golden().
Schedule build_on_host(const ScheduleShape& shape, std::span<const std::int32_t> tokens_per_rank,
                       std::span<const std::int32_t> topk_ids,
                       const HostBuilderOptions& options = {});

}  // namespace slipstream
