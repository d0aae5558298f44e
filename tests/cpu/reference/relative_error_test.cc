#include "reference/relative_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace slipstream {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(RelativeError, IsTheRatioOfNorms) {
  const float out[] = {3.0F, 4.5F};
  const std::vector<double> reference = {3.0, 4.0};
  EXPECT_DOUBLE_EQ(relative_error(dense_view(out, DType::kFP32, 1, 2), reference), 0.1);
  EXPECT_EQ(relative_error(dense_view(out, DType::kFP32, 1, 2), std::vector<float>{3.0F, 4.5F}), 0);
}

TEST(RelativeError, FollowsTheRowStride) {
  const float out[] = {1.0F, std::nanf(""), 2.0F, std::nanf("")};
  TensorView view = dense_view(out, DType::kFP32, 2, 1);
  view.row_stride = 2;
  EXPECT_EQ(relative_error(view, std::vector<double>{1.0, 2.0}), 0);
}

TEST(RelativeError, NeverPassesWhatItCannotMeasure) {
  const float nan[] = {std::nanf("")}, inf[] = {std::numeric_limits<float>::infinity()},
              one[] = {1};
  EXPECT_EQ(relative_error(dense_view(nan, DType::kFP32, 1, 1), std::vector<double>{1}), kInfinity);
  EXPECT_EQ(relative_error(dense_view(inf, DType::kFP32, 1, 1), std::vector<double>{kInfinity}),
            kInfinity);
  EXPECT_EQ(relative_error(dense_view(one, DType::kFP32, 1, 1), std::vector<double>{NAN}),
            kInfinity);
  EXPECT_EQ(relative_error(dense_view(one, DType::kFP32, 1, 1), std::vector<double>{0}), kInfinity);
  EXPECT_EQ(relative_error(dense_view(one, DType::kFP32, 1, 1), std::vector<double>{1, 1}),
            kInfinity);
  EXPECT_EQ(relative_error(TensorView{}, std::vector<double>{}), 0);
}

}  // namespace
}  // namespace slipstream
