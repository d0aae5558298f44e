// Launcher: a rank's threads, used like a GPU's stream. A call is a sequence of launches; a launch
// is a number of blocks; the next launch starts when every block of the last one has left. Threads
// draw blocks in the order in which they arrive, so a launch needs one thread, profits from more,
// and never waits for one that has not woken up. Used by drive.cc. The roles that the blocks play
// are in publish_plan.h and its neighbours.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "protocol/dispenser.h"
#include "slipstream/status.h"

namespace slipstream::host {

class Launches {
 public:
  virtual ~Launches() = default;
  virtual int num_launches() const = 0;
  virtual std::int64_t num_blocks(int launch) const = 0;
  // By any thread; blocks of one launch run at the same time, or one after another on one thread.
  virtual void run_block(int launch, std::int64_t ticket) = 0;
  // By one thread, when every block of the launch has left and before the next launch starts.
  virtual void launch_done(int launch) = 0;
};

class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  // At least `num_helpers` threads beside the one that calls run(). They live as long as the
  // launcher. Errors: kBackendError when the machine gives no more threads.
  Status ensure_helpers(int num_helpers);

  // Returns when the last launch is done. One call at a time.
  void run(Launches& launches);

 private:
  void help();
  void start_launch();
  void participate(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable work_;     // for helpers: a launch has blocks to draw, or the end
  std::condition_variable changed_;  // for the caller of run(): a launch is done
  std::vector<std::thread> helpers_;
  Launches* current_ = nullptr;
  int launch_ = 0;
  bool has_blocks_ = false;
  bool is_ending_ = false;
  int num_inside_ = 0;  // threads that draw blocks of the current launch
  protocol::ArrivalTicket ticket_{};
};

}  // namespace slipstream::host
