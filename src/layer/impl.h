// What stands behind the handles of include/slipstream/layer.h. One backend today, the host's; a
// second one adds its member beside each `host`. Next: workspace.cc, layer.cc.
#pragma once

#include <memory>

#include "host/call.h"
#include "host/host_rank.h"
#include "slipstream/layer.h"
#include "symmetric/rendezvous.h"

namespace slipstream {

struct RankGroup::Impl {
  explicit Impl(int its_num_ranks) : num_ranks(its_num_ranks), rendezvous(its_num_ranks) {}

  const int num_ranks;
  Rendezvous rendezvous;
};

struct Workspace::Impl {
  Problem limits;
  std::shared_ptr<RankGroup::Impl> group;
  int rank = 0;
  Backend backend = Backend::kHost;
  std::shared_ptr<host::HostRank> host;
};

struct Layer::Impl {
  Problem problem;
  Tuning tuning;
  Backend backend = Backend::kHost;
  HostDrive host_drive = HostDrive::kThreads;
  std::chrono::milliseconds timeout{};
  std::shared_ptr<Workspace::Impl> workspace;
  host::HostLayer host;

  Status status;
  PhaseTimes phase_times;
};

// kAuto becomes what this build and machine have. Errors: kUnsupported.
Result<Backend> resolve_backend(Backend backend);

// Of every collective creation: group and problem belong together, the rank is one of it.
Status check_group(const Problem& problem, const RankGroup& group, int rank,
                   std::chrono::milliseconds timeout);

}  // namespace slipstream
