#include "symmetric/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace slipstream {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::shared_ptr<void> offer(int value) { return std::make_shared<int>(value); }
int value_of(const std::shared_ptr<void>& offered) { return *static_cast<int*>(offered.get()); }

TEST(Rendezvous, GivesEveryRankAllOffersInRankOrder) {
  Rendezvous rendezvous(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int round = 0; round < 50; ++round) {
        const auto offers =
            rendezvous.exchange(rank, offer(round * 10 + rank), milliseconds(10000), "test");
        ASSERT_TRUE(offers.is_ok()) << offers.status().message();
        for (int peer = 0; peer < 4; ++peer)
          ASSERT_EQ(value_of(offers.value()[peer]), round * 10 + peer);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Rendezvous, NamesTheMissingRankAndRecovers) {
  Rendezvous rendezvous(2);
  const auto alone = rendezvous.exchange(0, offer(0), milliseconds(20), "Workspace::create");
  EXPECT_EQ(alone.status().code(), StatusCode::kTimeout);
  EXPECT_EQ(alone.status().culprit_rank(), 1);
  EXPECT_THAT(alone.status().message(),
              HasSubstr("rank 1 in Workspace::create is missing after 20 ms"));

  const auto late = rendezvous.exchange(1, offer(1), milliseconds(10000), "Workspace::create");
  EXPECT_EQ(late.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(late.status().message(), HasSubstr("given up by rank 0"));

  std::thread peer(
      [&] { EXPECT_TRUE(rendezvous.exchange(1, offer(1), milliseconds(10000), "test").is_ok()); });
  EXPECT_TRUE(rendezvous.exchange(0, offer(0), milliseconds(10000), "test").is_ok());
  peer.join();
}

}  // namespace
}  // namespace slipstream
