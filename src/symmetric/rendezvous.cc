#include "symmetric/rendezvous.h"

#include <fmt/format.h>

namespace slipstream {

Result<std::vector<std::shared_ptr<void>>> Rendezvous::exchange(int rank,
                                                                std::shared_ptr<void> offer,
                                                                std::chrono::milliseconds timeout,
                                                                std::string_view purpose) {
  std::unique_lock lock(mutex_);
  const auto me = static_cast<std::size_t>(rank);
  const std::int64_t visit = num_visits_[me]++;
  Round& round = rounds_[visit];
  round.offers.resize(static_cast<std::size_t>(num_ranks_));
  round.has_come.resize(static_cast<std::size_t>(num_ranks_), false);
  round.offers[me] = std::move(offer);
  round.has_come[me] = true;
  ++round.num_come;
  changed_.notify_all();

  const bool is_over = changed_.wait_for(
      lock, timeout, [&] { return round.num_come == num_ranks_ || round.gave_up_rank >= 0; });
  Status status;
  if (!is_over) {
    std::size_t missing = 0;
    while (round.has_come[missing]) ++missing;
    round.gave_up_rank = rank;
    changed_.notify_all();
    status = Status(StatusCode::kTimeout, Subsystem::kSymmetric,
                    {.what = fmt::format("rank {} in {}", missing, purpose),
                     .observed = fmt::format("missing after {} ms", timeout.count()),
                     .expected = fmt::format("a call from each of the {} ranks", num_ranks_),
                     .hint = "call it on every rank, each from a thread of its own",
                     .culprit_rank = static_cast<int>(missing)});
  } else if (round.gave_up_rank >= 0) {
    std::size_t missing = me;
    for (std::size_t r = 0; r < round.has_come.size(); ++r)
      if (!round.has_come[r]) missing = r;
    status = Status(StatusCode::kTimeout, Subsystem::kSymmetric,
                    {.what = fmt::format("{} of rank {}", purpose, rank),
                     .observed = fmt::format("given up by rank {}", round.gave_up_rank),
                     .expected = fmt::format("all {} ranks in time", num_ranks_),
                     .hint = "call it again on every rank",
                     .culprit_rank = static_cast<int>(missing)});
  }
  std::vector<std::shared_ptr<void>> offers = round.offers;
  if (++round.num_left == num_ranks_) rounds_.erase(visit);
  if (!status.is_ok()) return status;
  return offers;
}

}  // namespace slipstream
