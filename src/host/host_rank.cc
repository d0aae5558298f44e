#include "host/host_rank.h"

#include <fmt/format.h>

#include "host/drive.h"
#include "protocol/report.h"
#include "symmetric/call_signature.h"

namespace slipstream::host {

namespace {

struct Offer {
  Problem limits;
  std::shared_ptr<HostRegion> region;
  std::shared_ptr<SequentialMeeting> meeting;
};

CallSignature signature_of(const Problem& limits) {
  return make_signature(limits, Tuning{}, 0, region_shape(limits).plane_bytes(), Transfer::kPush,
                        Path::kFused);
}

Status check_equal_limits(const std::vector<std::shared_ptr<void>>& offers) {
  const auto limits_of = [&](std::size_t rank) {
    return signature_of(static_cast<const Offer*>(offers[rank].get())->limits);
  };
  const CallSignature first = limits_of(0);
  for (std::size_t rank = 1; rank < offers.size(); ++rank) {
    const CallSignature other = limits_of(rank);
    const std::int32_t field = first_difference(other.values, first.values);
    if (field < 0) continue;
    StatusDetail detail = signature_mismatch(field, static_cast<std::int32_t>(rank),
                                             other.values[field], first.values[field])
                              .detail();
    detail.what = fmt::format("workspace limit {}", detail.what);
    detail.hint = "create the workspace with the same limits on every rank";
    return invalid_argument(Subsystem::kLayer, std::move(detail));
  }
  return Status::ok();
}

}  // namespace

Result<std::shared_ptr<HostRank>> HostRank::create(const Problem& limits, int rank,
                                                   Rendezvous& rendezvous,
                                                   std::chrono::milliseconds timeout) {
  auto region = HostRegion::create(region_shape(limits));
  if (!region.is_ok()) return region.status();
  auto offer = std::make_shared<Offer>(
      Offer{limits, region.value(), std::make_shared<SequentialMeeting>(limits.num_ranks)});
  const auto offers = rendezvous.exchange(rank, offer, timeout, "Workspace::create");
  if (!offers.is_ok()) return offers.status();
  if (Status status = check_equal_limits(offers.value()); !status.is_ok()) return status;

  auto host_rank = std::make_shared<HostRank>();
  host_rank->limits = limits;
  host_rank->meeting = static_cast<const Offer*>(offers.value()[0].get())->meeting;
  PeerTable& peers = host_rank->peers;
  peers.shape = region.value()->shape();
  peers.rank = rank;
  protocol::Endpoint& endpoint = host_rank->endpoint;
  endpoint.rank = rank;
  endpoint.num_ranks = limits.num_ranks;
  endpoint.state = &host_rank->state;
  endpoint.record = &host_rank->record;
  for (std::int32_t peer = 0; peer < limits.num_ranks; ++peer) {
    const auto& offered =
        static_cast<const Offer*>(offers.value()[static_cast<std::size_t>(peer)].get());
    host_rank->regions.push_back(offered->region);
    peers.base[peer] = offered->region->base();
    endpoint.signals[peer] = peers.region(peer).signals;
  }
  host_rank->set_timeout(timeout);
  if (Status status = host_rank->reset(); !status.is_ok()) return status;
  return host_rank;
}

Status HostRank::ensure_local(std::int64_t num_bytes) {
  if (num_bytes <= local_size_bytes) return Status::ok();
  AlignedBytes memory = allocate_zeroed(num_bytes);
  if (memory == nullptr) {
    return Status(StatusCode::kOutOfMemory, Subsystem::kHost,
                  {.what = fmt::format("local memory of rank {}", peers.rank),
                   .observed = fmt::format("{} bytes", num_bytes),
                   .expected = "what the machine can give",
                   .hint = "lower max_tokens, or ring_chunks"});
  }
  // A group failure opens the last call's gates: they are gone.
  endpoint.num_token_gates = 0;
  endpoint.num_tile_done = 0;
  local = std::move(memory);
  local_size_bytes = num_bytes;
  return Status::ok();
}

void HostRank::set_timeout(std::chrono::milliseconds timeout) {
  const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
  endpoint.set_limit(static_cast<std::uint64_t>(limit));
}

Status HostRank::reset() {
  const protocol::ResetOutcome outcome = protocol::collective_reset(endpoint);
  if (outcome.result == protocol::SpinResult::kReady) return Status::ok();
  protocol::WaitReport report;
  record.read(outcome.tag.generation, report);
  return protocol::to_status(report);
}

Status HostRank::group_error() const {
  return protocol::group_status(state.failure.relaxed_read(), record, state.clock.now().generation);
}

}  // namespace slipstream::host
