// The TCP exchange among threads: what clients that are late, wrong or not ours lead to.
#include "launch/tcp_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace slipstream {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct Group {
  std::unique_ptr<TcpExchangeServer> server;
  TcpExchangeAddress address;
};

Group start_group(int num_ranks, std::uint64_t token = 42) {
  Group group;
  auto listener = listen_first_free(group.address);
  EXPECT_TRUE(listener.is_ok());
  group.address.first_port = listener.value().bound_port;
  group.address.group_token = token;
  auto server = TcpExchangeServer::start(std::move(listener).value(), num_ranks, token);
  EXPECT_TRUE(server.is_ok());
  group.server = std::move(server).value();
  return group;
}

TEST(TcpExchange, ARankThatNeverJoinsIsNamed) {
  const Group group = start_group(3);
  std::vector<Status> statuses(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      statuses[rank / 2] = join_tcp_exchange(group.address, rank, 3, milliseconds(200)).status();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    EXPECT_EQ(status.culprit_rank(), 1);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 never joined"));
  }
}

TEST(TcpExchange, NobodyListeningIsATimeout) {
  TcpExchangeAddress address;
  {
    auto listener = listen_tcp("127.0.0.1", 0);
    address.first_port = listener.value().bound_port;
  }
  const Status status = join_tcp_exchange(address, 0, 1, milliseconds(100)).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(address.first_port)));
}

TEST(TcpExchange, ANameThatDoesNotResolveIsRefusedAtOnce) {
  TcpExchangeAddress address;
  address.host = "no.such.host.invalid";
  address.first_port = 1;
  const Status status = join_tcp_exchange(address, 0, 1, milliseconds(60'000)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(TcpExchange, RefusesARankTakenTwiceAndAnotherNumberOfRanks) {
  const Group group = start_group(1);
  auto first = join_tcp_exchange(group.address, 0, 1, milliseconds(1000));
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ(join_tcp_exchange(group.address, 0, 1, milliseconds(1000)).status().code(),
            StatusCode::kInvalidArgument);
  const Status status = join_tcp_exchange(group.address, 0, 2, milliseconds(1000)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("WORLD_SIZE"));
  EXPECT_TRUE(first.value()("still works", "x").is_ok());
}

TEST(TcpExchange, GroupsOnNeighbouringPortsFindTheirOwnServer) {
  Group other = start_group(1, 1);
  TcpExchangeAddress address = other.address;
  address.num_ports = 16;
  address.group_token = 2;
  auto listener = listen_first_free(address);
  ASSERT_TRUE(listener.is_ok()) << listener.status().message();
  EXPECT_NE(listener.value().bound_port, other.address.first_port);
  auto server = TcpExchangeServer::start(std::move(listener).value(), 1, 2);
  ASSERT_TRUE(server.is_ok());
  auto exchange = join_tcp_exchange(address, 0, 1, milliseconds(3000));
  EXPECT_TRUE(exchange.is_ok()) << exchange.status().message();
  // Rank 0 of the other group is still free.
  auto others = join_tcp_exchange(other.address, 0, 1, milliseconds(3000));
  EXPECT_TRUE(others.is_ok()) << others.status().message();
}

// Garbage must neither crash the server nor disturb the group.
TEST(TcpExchange, StrangersDoNotDisturb) {
  constexpr int kSeed = 7;
  std::mt19937 random(kSeed);
  const Group group = start_group(2);
  std::thread peer([&] {
    auto exchange = join_tcp_exchange(group.address, 1, 2, milliseconds(5000));
    ASSERT_TRUE(exchange.is_ok()) << exchange.status().message();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(exchange.value()("x", "1").is_ok());
  });
  for (int i = 0; i < 40; ++i) {
    auto fd =
        connect_tcp("127.0.0.1", group.address.first_port, deadline_after(milliseconds(1000)));
    ASSERT_TRUE(fd.is_ok());
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them begin like one of ours: a good header, then a payload that lies.
    if (i % 2 == 0) bytes = make_frame(1 + random() % 5, bytes);
    (void)send_all(fd.value().get(), bytes, deadline_after(milliseconds(1000)));
  }
  auto exchange = join_tcp_exchange(group.address, 0, 2, milliseconds(5000));
  ASSERT_TRUE(exchange.is_ok()) << exchange.status().message() << " (seed " << kSeed << ")";
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(exchange.value()("x", "0").is_ok());
  peer.join();
}

TEST(TcpExchange, ARankThatLeavesIsNamedToThoseWhoWaitAndToThoseWhoComeLater) {
  const Group group = start_group(3);
  Status early;
  Status late;
  std::thread waits([&] {
    auto exchange = join_tcp_exchange(group.address, 0, 3, milliseconds(5000));
    early = exchange.value()("x", {}).status();
  });
  std::thread leaves([&] {
    auto exchange = join_tcp_exchange(group.address, 1, 3, milliseconds(5000));
    std::this_thread::sleep_for(milliseconds(50));
  });
  auto exchange = join_tcp_exchange(group.address, 2, 3, milliseconds(5000));
  waits.join();
  leaves.join();
  late = exchange.value()("x", {}).status();
  for (const Status& status : {early, late}) {
    EXPECT_EQ(status.code(), StatusCode::kPeerFailed);
    EXPECT_EQ(status.culprit_rank(), 1);
  }
}

TEST(TcpExchange, DifferentTagsAndHugeMessagesAreRefused) {
  const Group group = start_group(2);
  std::thread peer([&] {
    auto exchange = join_tcp_exchange(group.address, 1, 2, milliseconds(5000));
    EXPECT_EQ(exchange.value()("pears", {}).status().code(), StatusCode::kInvalidArgument);
  });
  auto exchange = join_tcp_exchange(group.address, 0, 2, milliseconds(5000));
  EXPECT_THAT(exchange.value()("apples", {}).status().message(), HasSubstr("pears"));
  peer.join();
  const Group alone = start_group(1);
  auto single = join_tcp_exchange(alone.address, 0, 1, milliseconds(5000));
  EXPECT_EQ(single.value()("x", std::string(20 << 20, 'x')).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(TcpExchange, AServerThatStopsIsAnErrorOfThoseWhoWait) {
  Group group = start_group(2);
  std::thread peer([&] {
    auto exchange = join_tcp_exchange(group.address, 1, 2, milliseconds(5000));
    EXPECT_EQ(exchange.value()("x", {}).status().code(), StatusCode::kPeerFailed);
  });
  auto exchange = join_tcp_exchange(group.address, 0, 2, milliseconds(5000));
  std::this_thread::sleep_for(milliseconds(50));
  group.server.reset();
  peer.join();
}

}  // namespace
}  // namespace slipstream
