#include "slipstream/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slipstream/routing.h"

namespace slipstream {
namespace {

using testing::HasSubstr;

Problem good_problem() {
  return Problem{.num_ranks = 4,
                 .num_experts = 8,
                 .hidden = 96,
                 .intermediate = 448,
                 .topk = 2,
                 .max_tokens = 16,
                 .dtype = DType::kBF16};
}

TEST(Problem, AcceptsOddShapes) {
  EXPECT_TRUE(validate(good_problem()).is_ok());
  Problem p = good_problem();
  p.max_tokens = 0;
  EXPECT_TRUE(validate(p).is_ok());
  p = Problem{.num_ranks = 1,
              .num_experts = 1,
              .hidden = 1,
              .intermediate = 1,
              .topk = 1,
              .max_tokens = 1,
              .dtype = DType::kFP32};
  EXPECT_TRUE(validate(p).is_ok());
}

TEST(Problem, NamesTheFieldTheValueAndTheRange) {
  Problem p = good_problem();
  p.num_experts = 1025;
  const Status status = validate(p);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "problem: num_experts is 1025, expected 1..1024");
}

TEST(Problem, NamesTheNearestDivisibleWidth) {
  Problem p = good_problem();
  p.intermediate = 449;
  EXPECT_THAT(validate(p).message(), HasSubstr("nearest width that does is 448"));
  p.intermediate = 451;
  EXPECT_THAT(validate(p).message(), HasSubstr("nearest width that does is 452"));
  p.intermediate = 1;
  EXPECT_THAT(validate(p).message(), HasSubstr("nearest width that does is 4"));
}

TEST(Problem, RefusesMoreRowsThanSlotsCanCount) {
  Problem p = good_problem();
  p.num_ranks = 8;
  p.topk = 8;
  p.max_tokens = 1 << 25;
  EXPECT_THAT(validate(p).message(), HasSubstr("several calls"));
}

TEST(Routing, NullIsFineForNoTokensOnly) {
  EXPECT_TRUE(validate(RoutingView{nullptr, nullptr, 0, 2}).is_ok());
  EXPECT_THAT(validate(RoutingView{nullptr, nullptr, 3, 2}).message(),
              HasSubstr("topk_ids is null"));
  EXPECT_FALSE(validate(RoutingView{nullptr, nullptr, -1, 2}).is_ok());
}

}  // namespace
}  // namespace slipstream
