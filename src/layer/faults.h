// Fault scenarios: ranks that come late, stall, never come, disagree or forget to reset, played out
// on the host backend with threads as ranks. For `slipstream faults` and for tests: what a user of
// a broken group would see, beside what he should see.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "slipstream/status.h"

namespace slipstream {

struct FaultOptions {
  int num_ranks = 3;                       // 2..kMaxRanks; the faulty one is rank 1
  int threads_per_rank = 2;                // >= 1
  std::chrono::milliseconds timeout{300};  // the group's limit; at least 50 ms
};

struct FaultOutcome {
  std::string scenario;  // "stalled_before_down_reduce_push"
  std::string expected;  // a sentence
  std::string observed;  // the first thing that differs, or what all ranks reported
  bool passed = false;
  double seconds = 0;
};

// Runs every scenario, each on a group of its own. Takes some 10 times the timeout. Errors:
// kInvalidArgument for options outside their ranges; a scenario that goes wrong is an outcome.
Result<std::vector<FaultOutcome>> run_fault_scenarios(const FaultOptions& options);

}  // namespace slipstream
