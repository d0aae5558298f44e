// Ranks as threads, and the exchange among them.
#include "launch/threads.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "launch/verdict.h"
#include "slipstream/config.h"

namespace slipstream {

namespace {

class Meeting {
 public:
  Meeting(int num_ranks, std::chrono::milliseconds timeout)
      : timeout_(timeout), arrived_(num_ranks), has_left_(num_ranks, false), values_(num_ranks) {}

  Result<std::vector<std::string>> gather(int rank, std::string_view tag, std::string_view bytes);
  void leave(int rank, const Status& status);
  // The first error of a body, or ok.
  const Status& first_error() const { return first_error_; }

 private:
  void check_arrival(int rank, std::string_view tag);
  void break_group(Status status);

  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<std::string>> arrived_;  // the tag with which a rank has come
  std::vector<bool> has_left_;
  std::vector<std::string> values_;
  std::shared_ptr<const std::vector<std::string>> finished_;  // of the last complete round
  std::uint64_t round_ = 0;
  Status broken_;
  Status first_error_;
};

void Meeting::break_group(Status status) {
  if (broken_.is_ok()) broken_ = std::move(status);
  changed_.notify_all();
}

void Meeting::check_arrival(int rank, std::string_view tag) {
  for (int other = 0; other < static_cast<int>(arrived_.size()); ++other) {
    if (has_left_[other]) return break_group(error_of_rank_that_left(other, first_error_));
    if (arrived_[other] && *arrived_[other] != tag)
      return break_group(error_of_differing_tags(rank, tag, other, *arrived_[other]));
  }
}

Result<std::vector<std::string>> Meeting::gather(int rank, std::string_view tag,
                                                 std::string_view bytes) {
  std::unique_lock lock(mutex_);
  check_arrival(rank, tag);
  if (!broken_.is_ok()) return broken_;
  arrived_[rank] = std::string(tag);
  values_[rank] = std::string(bytes);
  bool is_complete = true;
  for (const auto& arrival : arrived_) is_complete = is_complete && arrival.has_value();
  if (is_complete) {
    finished_ = std::make_shared<const std::vector<std::string>>(values_);
    for (auto& arrival : arrived_) arrival.reset();
    ++round_;
    changed_.notify_all();
    return *finished_;
  }
  const std::uint64_t my_round = round_;
  const bool came =
      changed_.wait_for(lock, timeout_, [&] { return round_ != my_round || !broken_.is_ok(); });
  // A complete round counts even if the group broke right after. Nobody finishes the next round
  // without this rank, so finished_ is still this round's.
  if (round_ != my_round) return *finished_;
  if (!came) {
    std::vector<RankPresence> presence;
    for (const auto& arrival : arrived_)
      presence.push_back(arrival ? RankPresence::kWaiting : RankPresence::kElsewhere);
    break_group(error_of_missing_ranks(tag, presence));
  }
  return broken_;
}

void Meeting::leave(int rank, const Status& status) {
  const std::lock_guard lock(mutex_);
  has_left_[rank] = true;
  if (first_error_.is_ok() && !status.is_ok()) first_error_ = with_culprit(status, rank);
  for (const auto& arrival : arrived_)
    if (arrival) return break_group(error_of_rank_that_left(rank, first_error_));
}

}  // namespace

Status launch_threads(int num_ranks, const RankBody& body, std::chrono::milliseconds timeout) {
  if (Status s = check_num_ranks(num_ranks); !s.is_ok()) return s;
  Meeting meeting(num_ranks, timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&meeting, &body, rank, num_ranks] {
      const Exchange exchange = [&meeting, rank](std::string_view tag, std::string_view bytes) {
        return meeting.gather(rank, tag, bytes);
      };
      meeting.leave(rank, body(RankContext{rank, num_ranks, rank, exchange}));
    });
  }
  for (auto& thread : threads) thread.join();
  return meeting.first_error();
}

}  // namespace slipstream
