#include "host/launcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace slipstream::host {
namespace {

// Notes which blocks ran, and that no launch began before the one before it was done.
class Notes : public Launches {
 public:
  Notes(int num_launches, std::int64_t num_blocks)
      : num_blocks_(num_blocks), tickets_(static_cast<std::size_t>(num_launches)) {}

  int num_launches() const override { return static_cast<int>(tickets_.size()); }
  std::int64_t num_blocks(int launch) const override { return launch == 0 ? 1 : num_blocks_; }

  void run_block(int launch, std::int64_t ticket) override {
    {
      const std::lock_guard lock(mutex_);
      EXPECT_EQ(launch, num_done_);
      EXPECT_TRUE(tickets_[static_cast<std::size_t>(launch)].insert(ticket).second) << ticket;
      threads_.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  void launch_done(int launch) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(launch, num_done_);
    const auto& tickets = tickets_[static_cast<std::size_t>(launch)];
    EXPECT_EQ(static_cast<std::int64_t>(tickets.size()), num_blocks(launch));
    EXPECT_EQ(*tickets.rbegin() + 1, num_blocks(launch));
    ++num_done_;
  }

  int num_done() const { return num_done_; }
  std::size_t num_threads() const { return threads_.size(); }

 private:
  const std::int64_t num_blocks_;
  std::mutex mutex_;
  std::vector<std::set<std::int64_t>> tickets_;
  std::set<std::thread::id> threads_;
  int num_done_ = 0;
};

TEST(Launcher, RunsEveryBlockOnceWithAnyNumberOfThreads) {
  for (const int num_helpers : {0, 1, 2, 7}) {
    Launcher launcher;
    ASSERT_TRUE(launcher.ensure_helpers(num_helpers).is_ok());
    for (int call = 0; call < 50; ++call) {
      Notes notes(4, 1 + call % 9);
      launcher.run(notes);
      EXPECT_EQ(notes.num_done(), 4);
      EXPECT_LE(notes.num_threads(), static_cast<std::size_t>(num_helpers) + 1);
    }
  }
}

TEST(Launcher, HelpersTakePart) {
  Launcher launcher;
  ASSERT_TRUE(launcher.ensure_helpers(2).is_ok());
  ASSERT_TRUE(launcher.ensure_helpers(1).is_ok()) << "there are more already";
  std::size_t most = 0;
  for (int call = 0; call < 200 && most < 3; ++call) {
    Notes notes(2, 40);
    launcher.run(notes);
    most = std::max(most, notes.num_threads());
  }
  EXPECT_EQ(most, 3U);
}

}  // namespace
}  // namespace slipstream::host
