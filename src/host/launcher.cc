#include "host/launcher.h"

#include <fmt/format.h>

#include <system_error>

namespace slipstream::host {

Launcher::~Launcher() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  work_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

Status Launcher::ensure_helpers(int num_helpers) {
  try {
    while (static_cast<int>(helpers_.size()) < num_helpers)
      helpers_.emplace_back([this] { help(); });
  } catch (const std::system_error& error) {
    return Status(StatusCode::kBackendError, Subsystem::kHost,
                  {.what = "threads of this rank",
                   .observed = fmt::format("{} ({})", helpers_.size() + 1, error.what()),
                   .expected = fmt::format("{}", num_helpers + 1),
                   .hint = "lower threads_per_rank or raise the process's limit"});
  }
  return Status::ok();
}

void Launcher::run(Launches& launches) {
  std::unique_lock lock(mutex_);
  current_ = &launches;
  launch_ = 0;
  start_launch();
  while (current_ != nullptr) {
    if (has_blocks_) {
      participate(lock);
    } else {
      changed_.wait(lock);
    }
  }
}

void Launcher::help() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    if (has_blocks_) {
      participate(lock);
    } else {
      work_.wait(lock);
    }
  }
}

void Launcher::start_launch() {
  ticket_.relaxed_seed();
  has_blocks_ = true;
  if (current_->num_blocks(launch_) > 1) work_.notify_all();
}

// The launch ends when its tickets are drawn and nobody is inside: a thread that is inside may
// still run a block, or be about to ask for one, and would otherwise draw from the next launch.
void Launcher::participate(std::unique_lock<std::mutex>& lock) {
  Launches& launches = *current_;
  const int launch = launch_;
  const std::int64_t num_blocks = launches.num_blocks(launch);
  ++num_inside_;
  lock.unlock();
  for (;;) {
    const std::int64_t ticket = ticket_.relaxed_draw(num_blocks);
    if (ticket == protocol::kNoTicket) break;
    launches.run_block(launch, ticket);
  }
  lock.lock();
  has_blocks_ = false;
  if (--num_inside_ > 0) return;

  launches.launch_done(launch);
  if (++launch_ == launches.num_launches()) {
    current_ = nullptr;
  } else {
    start_launch();
  }
  changed_.notify_all();
}

}  // namespace slipstream::host
