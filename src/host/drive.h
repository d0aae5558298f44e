// How a call gets through its launches: each rank with its own threads, or all ranks by one thread
// in a legal order. The roles and the bits are the same. Called by Layer::run.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "host/call.h"
#include "slipstream/layer.h"
#include "slipstream/status.h"

namespace slipstream::host {

// The launches of a call, in order.
enum Launch : int { kPublishPlan, kGatherGateUp, kDownReducePush, kFinalReduce, kNumLaunches };

// The call's result: a group error, else a call error, else ok. Fills `times` but for `total`.
Status run_with_threads(HostCall& call, PhaseTimes& times);

// Where the ranks of a group meet for a call that one of them drives.
class SequentialMeeting {
 public:
  explicit SequentialMeeting(int num_ranks) : calls_(static_cast<std::size_t>(num_ranks)) {}

  // Blocks until all ranks have come and the last one has driven all, or until the rank's limit has
  // passed, which is a group error of all that came.
  Status run(HostCall& call, PhaseTimes& times);

 private:
  struct Guest {
    HostCall* call = nullptr;
    PhaseTimes* times = nullptr;
  };

  void drive();
  void give_up(std::uint64_t limit_ns);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Guest> calls_;
  int num_come_ = 0;
  std::int64_t meeting_idx_ = 0;
};

}  // namespace slipstream::host
