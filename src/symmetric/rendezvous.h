// Rendezvous: where the ranks of one process meet outside of calls, to exchange what they
// allocated. Used by Workspace::create; calls themselves meet in symmetric memory only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "slipstream/status.h"

namespace slipstream {

class Rendezvous {
 public:
  explicit Rendezvous(int num_ranks)
      : num_ranks_(num_ranks), num_visits_(static_cast<std::size_t>(num_ranks), 0) {}

  // A rank's n-th exchange meets every other rank's n-th. Returns all ranks' offers, by rank.
  // Errors: kTimeout, naming the lowest rank that did not come within `timeout`, or, for one that
  // comes after that, the rank that gave up on it. A failed exchange does not spoil the next.
  // `purpose` is for the sentence: "Workspace::create".
  Result<std::vector<std::shared_ptr<void>>> exchange(int rank, std::shared_ptr<void> offer,
                                                      std::chrono::milliseconds timeout,
                                                      std::string_view purpose);

 private:
  struct Round {
    std::vector<std::shared_ptr<void>> offers;
    std::vector<bool> has_come;
    int num_come = 0;
    int num_left = 0;
    int gave_up_rank = -1;
  };

  const int num_ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> num_visits_;
  std::map<std::int64_t, Round> rounds_;
};

}  // namespace slipstream
