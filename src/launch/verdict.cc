// The sentences of verdict.h.
#include "launch/verdict.h"

#include <fmt/format.h>

#include "slipstream/config.h"

namespace slipstream {

Status check_num_ranks(int num_ranks) {
  if (num_ranks >= 1 && num_ranks <= kMaxRanks) return Status::ok();
  return invalid_argument(Subsystem::kLaunch, {.what = "number of ranks",
                                               .observed = fmt::format("{}", num_ranks),
                                               .expected = fmt::format("1..{}", kMaxRanks),
                                               .hint = {}});
}

Status with_culprit(const Status& status, int rank) {
  if (status.is_ok() || status.culprit_rank() >= 0) return status;
  StatusDetail detail = status.detail();
  detail.culprit_rank = rank;
  return Status(status.code(), status.subsystem(), std::move(detail));
}

Status error_of_missing_ranks(std::string_view tag, const std::vector<RankPresence>& presence) {
  std::string missing;
  int culprit = -1;
  for (int rank = 0; rank < static_cast<int>(presence.size()); ++rank) {
    if (presence[rank] == RankPresence::kWaiting) continue;
    if (culprit < 0) culprit = rank;
    missing +=
        fmt::format("{}rank {} {}", missing.empty() ? "" : ", ", rank,
                    presence[rank] == RankPresence::kNeverJoined ? "never joined" : "has not come");
  }
  StatusDetail detail{.what = fmt::format("exchange '{}'", tag),
                      .observed = fmt::format("incomplete at the deadline: {}", missing),
                      .expected = fmt::format("all {} ranks", presence.size()),
                      .hint = "look at that rank's output, or raise the timeout"};
  detail.culprit_rank = culprit;
  return Status(StatusCode::kTimeout, Subsystem::kLaunch, std::move(detail));
}

Status error_of_differing_tags(int rank, std::string_view tag, int other,
                               std::string_view other_tag) {
  StatusDetail detail{.what = fmt::format("exchange of rank {}", rank),
                      .observed = fmt::format("'{}'", tag),
                      .expected = fmt::format("'{}', as rank {} calls", other_tag, other),
                      .hint = "all ranks must make the same calls in the same order"};
  detail.culprit_rank = rank;
  return invalid_argument(Subsystem::kLaunch, std::move(detail));
}

Status error_of_rank_that_left(int rank, const Status& why) {
  const bool is_known = !why.is_ok() && why.culprit_rank() == rank;
  StatusDetail detail{
      .what = fmt::format("rank {}", rank),
      .observed = "gone before the others were done",
      .expected = "to stay until all ranks are done",
      .hint = is_known ? fmt::format("it said '{}'", why.message()) : "its own output says why"};
  detail.culprit_rank = rank;
  return Status(StatusCode::kPeerFailed, Subsystem::kLaunch, std::move(detail));
}

}  // namespace slipstream
