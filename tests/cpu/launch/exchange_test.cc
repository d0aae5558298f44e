// Statuses as bytes, agreement, and the exchange of file descriptors.
#include "launch/exchange.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launch/fd_exchange.h"
#include "launch/threads.h"

namespace slipstream {
namespace {

TEST(PackStatus, SurvivesTheTrip) {
  StatusDetail detail{.what = "a", .observed = "", .expected = std::string("x\0y", 3), .hint = "d"};
  detail.culprit_rank = 3;
  const Status before(StatusCode::kOutOfMemory, Subsystem::kSymmetric, detail);
  const Status after = unpack_status(pack_status(before));
  EXPECT_EQ(after.code(), before.code());
  EXPECT_EQ(after.subsystem(), before.subsystem());
  EXPECT_EQ(after.culprit_rank(), 3);
  EXPECT_EQ(after.message(), before.message());
  EXPECT_TRUE(unpack_status(pack_status(Status::ok())).is_ok());
}

TEST(PackStatus, RefusesEveryCutAndAnyExcess) {
  const std::string bytes = pack_status(invalid_argument(
      Subsystem::kProblem, {.what = "hidden", .observed = "0", .expected = "1", .hint = "more"}));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(unpack_status(bytes.substr(0, size)).code(), StatusCode::kInternal) << size;
  EXPECT_EQ(unpack_status(bytes + "x").code(), StatusCode::kInternal);
}

TEST(Agree, EveryRankGetsTheErrorOfTheRankThatHasOne) {
  std::vector<Status> verdicts(4);
  const Status status = launch_threads(4, [&](const RankContext& context) {
    const Status mine = context.rank == 2 ? Status(StatusCode::kOutOfMemory, Subsystem::kSymmetric,
                                                   {.what = "memory"})
                                          : Status::ok();
    verdicts[context.rank] = agree(context.exchange, context.rank, "create", mine);
    return Status::ok();
  });
  ASSERT_TRUE(status.is_ok()) << status.message();
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(verdicts[rank].code(), StatusCode::kOutOfMemory) << rank;
  EXPECT_EQ(verdicts[0].culprit_rank(), 2);
}

// Each rank gives a memory file that holds its number; every rank reads all of them.
TEST(ExchangeFds, EveryRankCanReadEveryFile) {
  for (const int num_ranks : {1, 2, 8}) {
    const Status status = launch_threads(num_ranks, [&](const RankContext& context) {
      const UniqueFd mine(memfd_create("slipstream_test", MFD_CLOEXEC));
      EXPECT_EQ(pwrite(mine.get(), &context.rank, sizeof(int), 0), 4);
      auto fds = exchange_fds(context.exchange, context.rank, context.num_ranks, mine.get(),
                              std::chrono::seconds(5));
      if (!fds.is_ok()) return fds.status();
      for (int peer = 0; peer < context.num_ranks; ++peer) {
        int seen = -1;
        EXPECT_EQ(pread(fds.value()[peer].get(), &seen, sizeof(seen), 0), 4);
        EXPECT_EQ(seen, peer);
      }
      return Status::ok();
    });
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
}

TEST(ExchangeFds, ABadDescriptorIsEverybodysError) {
  const Status status = launch_threads(2, [&](const RankContext& context) {
    const UniqueFd mine(memfd_create("slipstream_test", MFD_CLOEXEC));
    auto fds = exchange_fds(context.exchange, context.rank, 2, context.rank == 0 ? mine.get() : -1,
                            std::chrono::milliseconds(200));
    EXPECT_FALSE(fds.is_ok());
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

}  // namespace
}  // namespace slipstream
