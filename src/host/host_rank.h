// HostRank: what a workspace is on the host backend. One rank's view of all regions, its protocol
// words, its own memory and its threads. Made by Workspace::create; calls of all its layers take
// turns on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host/launcher.h"
#include "host/local_buffers.h"
#include "protocol/protocol.h"
#include "schedule/schedule.h"
#include "slipstream/problem.h"
#include "slipstream/status.h"
#include "symmetric/host_region.h"
#include "symmetric/region_layout.h"
#include "symmetric/rendezvous.h"

namespace slipstream::host {

class SequentialMeeting;

// Fault injection: every block of this launch sleeps before it begins (layer/faults.h). One alone
// would not stall the rank: the others do its work.
struct Stall {
  int launch = -1;  // a Launch of drive.h, or -1 for none
  std::chrono::milliseconds duration{};
};

struct HostRank {
  // Collective over the rendezvous; ends in generation 1, epoch 1. Errors: kOutOfMemory;
  // kInvalidArgument when the ranks' limits differ (names the field and both values); kTimeout.
  static Result<std::shared_ptr<HostRank>> create(const Problem& limits, int rank,
                                                  Rendezvous& rendezvous,
                                                  std::chrono::milliseconds timeout);

  // Local memory of at least this size. Not during a call.
  Status ensure_local(std::int64_t num_bytes);

  // Every wait of the calls and resets that follow.
  void set_timeout(std::chrono::milliseconds timeout);

  // Brings the group into the next generation; see protocol/reset.h. Not during a call.
  Status reset();

  // The sticky group error, or ok.
  Status group_error() const;

  Problem limits;
  PeerTable peers;
  protocol::Endpoint endpoint;
  protocol::RankState state{};
  protocol::WaitRecord record{};

  AlignedBytes local;
  std::int64_t local_size_bytes = 0;

  // Rebuilt by publish_plan in every call, from all ranks' routing.
  std::vector<std::int32_t> topk_ids;  // [S, K]
  std::vector<float> topk_weights;     // [S, K]
  Schedule schedule;

  Launcher launcher;
  Stall stall;
  std::shared_ptr<SequentialMeeting> meeting;  // one for all ranks
  std::mutex call_mutex;

  // Peers' memory stays as long as somebody may read it.
  std::vector<std::shared_ptr<HostRegion>> regions;
};

}  // namespace slipstream::host
