// Ranks as processes: forked, and as torchrun starts them.
#include "launch/processes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "launch/fd_exchange.h"
#include "launch/tcp_exchange.h"

namespace slipstream {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Status broken(std::string what) {
  return Status(StatusCode::kBackendError, Subsystem::kNone, {.what = std::move(what)});
}

ProcessOptions options_of(int num_ranks) {
  ProcessOptions options;
  options.num_ranks = num_ranks;
  options.timeout = milliseconds(5000);
  options.grace = milliseconds(200);
  return options;
}

// What a child checks comes back as its Status: EXPECT in a child would be lost.
Status exchange_rounds(const RankContext& context) {
  for (int round = 0; round < 20; ++round) {
    // Sizes differ by rank and round, up to pieces that do not fit a socket buffer.
    const auto text_of = [&](int rank) {
      return std::string(round == 7 ? 500'000 + rank : rank * round, static_cast<char>('a' + rank));
    };
    auto all = context.exchange(fmt::format("round {}", round), text_of(context.rank));
    if (!all.is_ok()) return all.status();
    for (int peer = 0; peer < context.num_ranks; ++peer)
      if (all.value()[peer] != text_of(peer)) return broken(fmt::format("bytes of rank {}", peer));
  }
  return Status::ok();
}

TEST(LaunchProcesses, ExchangesAmongOneToEightRanks) {
  for (const int num_ranks : {1, 2, 3, 8}) {
    const Status status = launch_processes(options_of(num_ranks), exchange_rounds);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
}

TEST(LaunchProcesses, FileDescriptorsReachOtherProcesses) {
  const Status status = launch_processes(options_of(3), [](const RankContext& context) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return broken("pipe");
    auto fds = exchange_fds(context.exchange, context.rank, 3, pipe_ends[1], milliseconds(2000));
    if (!fds.is_ok()) return fds.status();
    // Everybody writes a byte into everybody's pipe.
    for (const UniqueFd& fd : fds.value())
      if (write(fd.get(), "x", 1) != 1) return broken("write");
    char bytes[3];
    for (char& byte : bytes)
      if (read(pipe_ends[0], &byte, 1) != 1) return broken("read");
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(LaunchProcesses, AKilledChildEndsTheOthersAndIsNamed) {
  const Status status = launch_processes(options_of(4), [](const RankContext& context) {
    if (context.rank == 2) raise(SIGKILL);
    return context.exchange("never", {}).status();
  });
  EXPECT_EQ(status.code(), StatusCode::kPeerFailed);
  EXPECT_EQ(status.culprit_rank(), 2);
  EXPECT_THAT(status.message(), HasSubstr("signal 9"));
}

TEST(LaunchProcesses, AChildThatExitsIsNamedWithItsCode) {
  const Status status = launch_processes(options_of(2), [](const RankContext& context) {
    if (context.rank == 1) _exit(3);
    return context.exchange("never", {}).status();
  });
  EXPECT_EQ(status.code(), StatusCode::kPeerFailed);
  EXPECT_EQ(status.culprit_rank(), 1);
  EXPECT_THAT(status.message(), HasSubstr("code 3"));
}

TEST(LaunchProcesses, ExitCodeZeroBeforeTheEndIsAnError) {
  const Status status = launch_processes(options_of(2), [](const RankContext& context) {
    if (context.rank == 0) _exit(0);
    return Status::ok();
  });
  EXPECT_EQ(status.culprit_rank(), 0);
  EXPECT_THAT(status.message(), HasSubstr("code 0"));
}

TEST(LaunchProcesses, AnErrorOfABodyComesBackWhole) {
  const Status status = launch_processes(options_of(3), [](const RankContext& context) {
    if (context.rank != 1) return context.exchange("never", {}).status();
    return invalid_argument(Subsystem::kProblem, {.what = "hidden",
                                                  .observed = "7",
                                                  .expected = "a multiple of 8",
                                                  .hint = std::string(100'000, 'h')});
  });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.subsystem(), Subsystem::kProblem);
  EXPECT_EQ(status.culprit_rank(), 1);
  EXPECT_EQ(status.detail().hint.size(), 100'000U);
}

// Others neither come to the exchange nor listen to SIGTERM.
TEST(LaunchProcesses, OthersThatHangAreKilled) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = launch_processes(options_of(3), [](const RankContext& context) {
    if (context.rank == 0) return broken("gpu");
    signal(SIGTERM, SIG_IGN);
    if (context.rank == 1)
      while (true) pause();
    std::this_thread::sleep_for(std::chrono::hours(1));
    return Status::ok();
  });
  EXPECT_EQ(status.code(), StatusCode::kBackendError);
  EXPECT_EQ(status.culprit_rank(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(LaunchProcesses, ARankThatNeverComesIsNamed) {
  ProcessOptions options = options_of(3);
  options.timeout = milliseconds(300);
  const Status status = launch_processes(options, [](const RankContext& context) {
    if (context.rank == 1)
      while (true) pause();
    return context.exchange("handles", {}).status();
  });
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(status.culprit_rank(), 1);
  EXPECT_THAT(status.message(), HasSubstr("handles"));
}

TEST(LaunchProcesses, ABusyPortIsAnErrorThatNamesIt) {
  auto busy = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(busy.is_ok());
  ProcessOptions options = options_of(2);
  options.port = busy.value().bound_port;
  const Status status = launch_processes(options, [](const RankContext&) { return Status::ok(); });
  EXPECT_EQ(status.code(), StatusCode::kBackendError);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(options.port)));
}

TEST(LaunchProcesses, LeavesNoChildBehind) {
  (void)launch_processes(options_of(2), [](const RankContext& context) {
    if (context.rank == 1) raise(SIGKILL);
    return Status::ok();
  });
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// Sets variables for the life of the object. Tests run one after the other.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<std::string, std::string>> values)
      : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

TEST(RankEnvironment, ReadsWhatTorchrunSets) {
  const Environment environment({{"RANK", "3"},
                                 {"WORLD_SIZE", "4"},
                                 {"LOCAL_RANK", "1"},
                                 {"MASTER_ADDR", "node7"},
                                 {"MASTER_PORT", "29501"}});
  auto env = rank_environment();
  ASSERT_TRUE(env.is_ok()) << env.status().message();
  ASSERT_TRUE(env.value().has_value());
  EXPECT_EQ(env.value()->rank, 3);
  EXPECT_EQ(env.value()->num_ranks, 4);
  EXPECT_EQ(env.value()->local_rank, 1);
  EXPECT_EQ(env.value()->master_addr, "node7");
  EXPECT_EQ(env.value()->master_port, 29501);
}

TEST(RankEnvironment, IsEmptyWithoutTheVariablesAndRefusesHalfOfThem) {
  ASSERT_TRUE(rank_environment().is_ok());
  EXPECT_FALSE(rank_environment().value().has_value());
  const std::vector<std::vector<std::pair<std::string, std::string>>> bad = {
      {{"RANK", "0"}},
      {{"WORLD_SIZE", "2"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
      {{"RANK", "x"}, {"WORLD_SIZE", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "9"}},
      {{"RANK", ""}, {"WORLD_SIZE", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}};
  for (const auto& values : bad) {
    const Environment environment(values);
    EXPECT_EQ(rank_environment().status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(RankEnvironment, AnotherNumberOfRanksIsRefusedWithBoth) {
  const Environment environment({{"RANK", "0"}, {"WORLD_SIZE", "4"}});
  const Status status =
      launch_processes(options_of(2), [](const RankContext&) { return Status::ok(); });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("2"));
  EXPECT_THAT(status.message(), HasSubstr("4"));
}

// Forks what torchrun would start, with an agent that holds MASTER_PORT and never answers.
TEST(LaunchProcesses, TakesItsPlaceAmongRanksThatTorchrunStarted) {
  for (const bool agent_store : {false, true}) {
    auto agent = listen_tcp("127.0.0.1", 0);
    ASSERT_TRUE(agent.is_ok());
    const std::string port = std::to_string(agent.value().bound_port);
    if (!agent_store) agent.value().fd.reset();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        const Environment environment(
            {{"RANK", std::to_string(rank)},
             {"WORLD_SIZE", "3"},
             {"LOCAL_RANK", std::to_string(rank)},
             {"MASTER_ADDR", "localhost"},
             {"MASTER_PORT", port},
             {"TORCHELASTIC_USE_AGENT_STORE", agent_store ? "True" : "False"}});
        // Rank 0 comes last: the others must retry.
        if (rank == 0) std::this_thread::sleep_for(milliseconds(100));
        const Status status = launch_processes(options_of(3), exchange_rounds);
        if (!status.is_ok()) fmt::print(stderr, "rank {}: {}\n", rank, status.message());
        _exit(status.is_ok() ? 0 : 1);
      }
      pids.push_back(pid);
    }
    for (const pid_t pid : pids) {
      int wait_status = 0;
      waitpid(pid, &wait_status, 0);
      EXPECT_EQ(wait_status, 0) << "agent store " << agent_store;
    }
  }
}

}  // namespace
}  // namespace slipstream
