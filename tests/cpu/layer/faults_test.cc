// Every fault scenario shows what it should, for several ranks and threads.
#include "layer/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace slipstream {
namespace {

using testing::HasSubstr;

void expect_all_pass(const FaultOptions& options, std::size_t num_scenarios) {
  const auto outcomes = run_fault_scenarios(options);
  ASSERT_TRUE(outcomes.is_ok()) << outcomes.status().message();
  EXPECT_EQ(outcomes.value().size(), num_scenarios);
  for (const FaultOutcome& outcome : outcomes.value()) {
    EXPECT_TRUE(outcome.passed) << outcome.scenario << ": expected " << outcome.expected
                                << ", observed " << outcome.observed;
  }
}

TEST(Faults, ThreeRanksOfTwoThreads) {
  expect_all_pass({.timeout = std::chrono::milliseconds(400)}, 10);
}

TEST(Faults, TwoRanksOfOneThread) {
  expect_all_pass(
      {.num_ranks = 2, .threads_per_rank = 1, .timeout = std::chrono::milliseconds(400)}, 10);
}

TEST(Faults, OptionsHaveRanges) {
  EXPECT_THAT(run_fault_scenarios({.num_ranks = 1}).status().message(),
              HasSubstr("num_ranks is 1, expected 2..8"));
  EXPECT_THAT(run_fault_scenarios({.timeout = std::chrono::milliseconds(49)}).status().message(),
              HasSubstr("timeout in ms is 49"));
  EXPECT_THAT(run_fault_scenarios({.threads_per_rank = 0}).status().message(),
              HasSubstr("threads_per_rank is 0"));
}

}  // namespace
}  // namespace slipstream
