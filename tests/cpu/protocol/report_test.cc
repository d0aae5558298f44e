// Failures as the user reads them: every sentence names the primitive, both values, the culprit and
// a way out.
#include "protocol/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "litmus.h"

namespace slipstream::protocol {
namespace {

using litmus::Group;
using litmus::kMillisecond;
using ::testing::HasSubstr;

Status status_of(const Group& group, int rank) {
  const RankState& state = group.states[rank];
  return group_status(state.failure.relaxed_read(), group.records[rank],
                      state.clock.now().generation);
}

TEST(Report, NoFailureIsOk) {
  Group group(2);
  EXPECT_TRUE(status_of(group, 0).is_ok());
}

TEST(Report, LateWatermarkNamesChunkRankAndBothTags) {
  Group group(4, 20 * kMillisecond, {3, 12});
  const SpinContext late = begin_call(group.endpoints[2], 0);
  publish_watermark(SpinContext{late.endpoint, {3, 11}, 0}, 1, 5, 8);
  ASSERT_EQ(wait_watermark(begin_call(group.endpoints[1], 6), 2, 5), SpinResult::kTimeout);
  const Status status = status_of(group, 1);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_TRUE(status.is_group_error());
  EXPECT_EQ(status.culprit_rank(), 2);
  const std::string text = status.message();
  EXPECT_THAT(text, HasSubstr("watermark of chunk 5 from rank 2 at rank 1 block 6"));
  EXPECT_THAT(text, HasSubstr("is generation 3 epoch 11"));
  EXPECT_THAT(text, HasSubstr("expected generation 3 epoch 12 within 20 ms"));
  EXPECT_THAT(text, HasSubstr("reset()"));
}

TEST(Report, StarvedGateBlamesItsOwnRank) {
  Group group(2);
  group.endpoints[1].local_limit_ns = 20 * kMillisecond;
  TokenGate gate{};
  gate.relaxed_seed(3);
  ASSERT_EQ(gate.wait(16, begin_call(group.endpoints[1], 2), 44), SpinResult::kTimeout);
  const Status status = status_of(group, 1);
  EXPECT_EQ(status.culprit_rank(), 1);
  EXPECT_THAT(status.message(), HasSubstr("token_gate 44 at rank 1 block 2 is 3, expected 16"));
}

// Ranks 0, 1 and 3 wait for rank 2, each with a limit of its own: whoever reports first, all name
// it.
TEST(Report, EveryRankNamesTheStalledOne) {
  Group group(4, 50 * kMillisecond);
  group.endpoints[3].set_limit(5000 * kMillisecond);
  const std::uint64_t begin = clock_ns();
  litmus::run_threads(4, [&](int rank) {
    if (rank == 2) return;
    EXPECT_NE(wait_inputs(begin_call(group.endpoints[rank], 0), 2), SpinResult::kReady);
  });
  EXPECT_LT(clock_ns() - begin, 1050 * kMillisecond);
  for (const int rank : {0, 1, 3}) {
    EXPECT_TRUE(status_of(group, rank).is_group_error());
    EXPECT_EQ(status_of(group, rank).culprit_rank(), 2) << "at rank " << rank;
  }
  EXPECT_EQ(status_of(group, 3).code(), StatusCode::kPeerFailed);
  EXPECT_THAT(status_of(group, 3).message(), HasSubstr("reported a group error"));
  // The stalled rank learns of it at its next call, and a reset of all ends it for all.
  EXPECT_TRUE(begin_call(group.endpoints[2], 0).failed());
  litmus::run_threads(4, [&](int rank) {
    EXPECT_EQ(collective_reset(group.endpoints[rank]).result, SpinResult::kReady);
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(status_of(group, rank).is_ok());
    EXPECT_FALSE(begin_call(group.endpoints[rank], 0).failed());
  }
}

TEST(Report, MissingRankOfAResetIsNamed) {
  Group group(3, 20 * kMillisecond);
  ResetOutcome outcome;
  litmus::run_threads(2, [&](int rank) {
    const ResetOutcome mine = collective_reset(group.endpoints[rank]);
    if (rank == 0) outcome = mine;
  });
  const Status status = to_status(outcome, group.records[0]);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(status.culprit_rank(), 2);
  EXPECT_THAT(status.message(), HasSubstr("drained from rank 2 at rank 0"));
  EXPECT_TRUE(to_status(ResetOutcome{}, group.records[0]).is_ok());
}

// The first reset of a group is its way in: zeroed memory is generation 0.
TEST(Report, FirstResetStartsTheGroup) {
  Group group(3, 5000 * kMillisecond, Tag{});
  litmus::run_threads(3, [&](int rank) {
    const ResetOutcome outcome = collective_reset(group.endpoints[rank]);
    EXPECT_EQ(outcome.tag, (Tag{1, kFirstEpoch}));
  });
}

TEST(Report, FailureSurvivesPacking) {
  for (const int culprit : {-1, 0, 7}) {
    const Failure failure{0xffff'fffeU, culprit, FailureReason::kBackendError};
    const Failure copy = Failure::unpacked(failure.packed());
    EXPECT_EQ(copy.culprit, culprit);
    EXPECT_TRUE(copy.is_of(0xffff'fffeU));
    EXPECT_FALSE(copy.is_of(1));
  }
}

}  // namespace
}  // namespace slipstream::protocol
