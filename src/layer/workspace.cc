// RankGroup and Workspace: where ranks meet and what they share.
#include <fmt/format.h>

#include "layer/impl.h"

namespace slipstream {

Result<RankGroup> RankGroup::in_process(int num_ranks) {
  if (num_ranks < 1 || num_ranks > kMaxRanks) {
    return invalid_argument(Subsystem::kLayer, {.what = "num_ranks",
                                                .observed = fmt::format("{}", num_ranks),
                                                .expected = fmt::format("1..{}", kMaxRanks),
                                                .hint = {}});
  }
  return RankGroup(std::make_shared<Impl>(num_ranks));
}

int RankGroup::num_ranks() const { return impl_->num_ranks; }

// Twice as many nanoseconds fit 64 bits by far, and nobody waits longer for a peer.
constexpr std::chrono::hours kMaxTimeout{24};

Status check_group(const Problem& problem, const RankGroup& group, int rank,
                   std::chrono::milliseconds timeout) {
  if (problem.num_ranks != group.num_ranks()) {
    return invalid_argument(Subsystem::kLayer,
                            {.what = "num_ranks of the problem",
                             .observed = fmt::format("{}", problem.num_ranks),
                             .expected = fmt::format("{}, the group's", group.num_ranks()),
                             .hint = "create the group with as many ranks as the problem has"});
  }
  if (rank < 0 || rank >= group.num_ranks()) {
    return invalid_argument(Subsystem::kLayer,
                            {.what = "rank",
                             .observed = fmt::format("{}", rank),
                             .expected = fmt::format("0..{}", group.num_ranks() - 1),
                             .hint = {}});
  }
  if (timeout < std::chrono::milliseconds(1) || timeout > kMaxTimeout) {
    return invalid_argument(
        Subsystem::kLayer,
        {.what = "timeout",
         .observed = fmt::format("{} ms", timeout.count()),
         .expected = fmt::format("1..{} ms", std::chrono::milliseconds(kMaxTimeout).count()),
         .hint = {}});
  }
  return Status::ok();
}

Result<Workspace> Workspace::create(const Problem& limits, const RankGroup& group, int rank,
                                    Backend backend, std::chrono::milliseconds timeout) {
  if (Status status = validate(limits); !status.is_ok()) return status;
  if (Status status = check_group(limits, group, rank, timeout); !status.is_ok()) return status;
  const Result<Backend> resolved = resolve_backend(backend);
  if (!resolved.is_ok()) return resolved.status();

  auto host_rank = host::HostRank::create(limits, rank, group.impl()->rendezvous, timeout);
  if (!host_rank.is_ok()) return host_rank.status();
  auto impl = std::make_shared<Impl>();
  impl->limits = limits;
  impl->group = group.impl();
  impl->rank = rank;
  impl->backend = resolved.value();
  impl->host = std::move(host_rank).value();
  return Workspace(std::move(impl));
}

std::int64_t Workspace::symmetric_bytes(const Problem& limits) {
  return region_bytes(region_shape(limits));
}

}  // namespace slipstream
