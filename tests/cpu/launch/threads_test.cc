// Ranks as threads.
#include "launch/threads.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace slipstream {
namespace {

using testing::HasSubstr;

Status broken(const char* what) {
  return Status(StatusCode::kBackendError, Subsystem::kNone, {.what = what});
}

TEST(LaunchThreads, ExchangesManyRoundsAmongOneToEightRanks) {
  for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
    const Status status = launch_threads(num_ranks, [&](const RankContext& context) {
      for (int round = 0; round < 50; ++round) {
        auto all = context.exchange("round", fmt::format("{}.{}", context.rank, round));
        if (!all.is_ok()) return all.status();
        EXPECT_EQ(all.value().size(), static_cast<std::size_t>(num_ranks));
        for (int peer = 0; peer < num_ranks; ++peer)
          EXPECT_EQ(all.value()[peer], fmt::format("{}.{}", peer, round));
      }
      return Status::ok();
    });
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
}

TEST(LaunchThreads, RefusesTooFewAndTooManyRanks) {
  const RankBody body = [](const RankContext&) { return Status::ok(); };
  for (const int num_ranks : {-1, 0, 9}) {
    const Status status = launch_threads(num_ranks, body);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(num_ranks)));
  }
}

TEST(LaunchThreads, ARankThatFailsReleasesTheOthersAndIsNamed) {
  Status of_waiting;
  const Status status = launch_threads(3, [&](const RankContext& context) {
    if (context.rank == 1) return broken("disk");
    auto all = context.exchange("x", {});
    if (context.rank == 0) of_waiting = all.status();
    return all.status();
  });
  EXPECT_EQ(status.code(), StatusCode::kBackendError);
  EXPECT_EQ(status.culprit_rank(), 1);
  EXPECT_EQ(of_waiting.code(), StatusCode::kPeerFailed);
  EXPECT_EQ(of_waiting.culprit_rank(), 1);
  EXPECT_THAT(of_waiting.message(), HasSubstr("disk"));
}

TEST(LaunchThreads, ARankThatReturnsEarlyReleasesTheOthers) {
  const Status status = launch_threads(2, [&](const RankContext& context) {
    return context.rank == 1 ? Status::ok() : context.exchange("x", {}).status();
  });
  EXPECT_EQ(status.code(), StatusCode::kPeerFailed);
  EXPECT_EQ(status.culprit_rank(), 1);
}

TEST(LaunchThreads, ARankThatNeverComesIsNamed) {
  const Status status = launch_threads(
      3,
      [&](const RankContext& context) {
        if (context.rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          return Status::ok();
        }
        return context.exchange("tokens", {}).status();
      },
      std::chrono::milliseconds(50));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(status.culprit_rank(), 2);
  EXPECT_THAT(status.message(), HasSubstr("tokens"));
}

TEST(LaunchThreads, DifferentTagsAreAnErrorWithBothNames) {
  const Status status = launch_threads(2, [&](const RankContext& context) {
    return context.exchange(context.rank == 0 ? "apples" : "pears", {}).status();
  });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("apples"));
  EXPECT_THAT(status.message(), HasSubstr("pears"));
}

}  // namespace
}  // namespace slipstream
