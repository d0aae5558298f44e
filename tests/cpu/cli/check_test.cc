// The check behind `slipstream run`: it must pass what is right to rounding, and fail everything
// else, also one bad token among many.
#include "check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/numeric.h"
#include "layer_data.h"
#include "options.h"
#include "reference/reference_layer.h"
#include "schedule/routing_generator.h"

namespace slipstream::cli {
namespace {

constexpr std::uint64_t kSeed = 11;

class CheckTest : public ::testing::TestWithParam<DType> {
 protected:
  CheckTest()
      : data_({.num_ranks = 2,
               .num_experts = 4,
               .hidden = 48,
               .intermediate = 32,
               .topk = 2,
               .max_tokens = 60,
               .dtype = GetParam()},
              {40, 60}) {
    const Problem& problem = data_.problem();
    set_routing(generate_routing({}, 100, problem.num_experts, problem.topk, kSeed).value(),
                &data_);
    data_.rank(1).topk_ids[2] = -1;  // token 1 of rank 1 has no expert: its row is zero
    data_.rank(1).topk_ids[3] = -1;
    fill_random(kSeed, &data_);
    const auto reference = reference_layer<double>(problem, data_.inputs(), data_.weights());
    for (const std::vector<double>& rows : reference) {
      const std::vector<float> values(rows.begin(), rows.end());
      outs_.emplace_back(std::ssize(values) * dtype_bytes(problem.dtype));
      from_float(values.data(), problem.dtype, std::ssize(values), outs_.back().data());
    }
  }

  CheckResult check() {
    const Problem& problem = data_.problem();
    std::vector<TensorView> views;
    for (int r = 0; r < 2; ++r)
      views.push_back(
          dense_view(outs_[r].data(), problem.dtype, data_.rank(r).num_tokens, problem.hidden));
    return check_outputs(data_, Tuning{}, views);
  }

  float get(int rank, int token, int column) {
    return load_as_float(outs_[rank].data(), GetParam(), token * 48 + column);
  }
  void set(int rank, int token, int column, float value) {
    store_from_float(value, outs_[rank].data(), GetParam(), token * 48 + column);
  }

  LayerData data_;
  std::vector<Buffer> outs_;
};

TEST_P(CheckTest, PassesWhatIsRightToRounding) {
  const CheckResult result = check();
  EXPECT_TRUE(result.is_passed);
  EXPECT_EQ(result.num_tokens, 100);
  EXPECT_EQ(result.total_tokens, 100);
  EXPECT_LE(result.relative_error, result.tolerance / 2);
}

TEST_P(CheckTest, OutputsAreOfSizeOne) {
  double sum = 0;
  for (int t = 0; t < 40; ++t)
    for (int c = 0; c < 48; ++c) sum += get(0, t, c) * get(0, t, c);
  const double deviation = std::sqrt(sum / (40 * 48));
  EXPECT_GT(deviation, 0.5);
  EXPECT_LT(deviation, 2);
}

TEST_P(CheckTest, FailsForOneLostRow) {
  for (int c = 0; c < 48; ++c) set(1, 17, c, 0);
  const CheckResult result = check();
  EXPECT_FALSE(result.is_passed);
  EXPECT_EQ(result.worst_token, 40 + 17);
}

TEST_P(CheckTest, FailsForTwoRowsExchanged) {
  for (int c = 0; c < 48; ++c) {
    const float value = get(0, 3, c);
    set(0, 3, c, get(0, 4, c));
    set(0, 4, c, value);
  }
  EXPECT_FALSE(check().is_passed);
}

TEST_P(CheckTest, FailsForANaN) {
  set(1, 59, 47, std::numeric_limits<float>::quiet_NaN());
  const CheckResult result = check();
  EXPECT_FALSE(result.is_passed);
  EXPECT_EQ(result.worst_token, 99);
}

TEST_P(CheckTest, FailsForARowThatShouldBeZero) {
  set(1, 1, 0, 1e-6F);
  EXPECT_FALSE(check().is_passed);
}

TEST_P(CheckTest, FailsForAMissingExpert) {
  // A tenth of one token's output: more than rounding, less than most of what breaks.
  for (int c = 0; c < 48; ++c) set(0, 20, c, 0.9F * get(0, 20, c));
  EXPECT_FALSE(check().is_passed);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CheckTest,
                         ::testing::Values(DType::kFP32, DType::kFP16, DType::kBF16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(CheckSelection, TakesFirstAndLastTokensOfEveryRankWhenAllWouldTakeLong) {
  const Problem problem = {.num_ranks = 1,
                           .num_experts = 1,
                           .hidden = 1024,
                           .intermediate = 1024,
                           .topk = 4,
                           .max_tokens = 3000,
                           .dtype = DType::kFP32};
  LayerData data(problem, {3000});
  Buffer out(std::int64_t{3000} * 1024 * 4);
  std::fill_n(out.data(), out.bytes(), std::byte{0});
  fill_random(kSeed, &data);  // no ids: every row is zero
  std::vector<TensorView> outs = {dense_view(out.data(), DType::kFP32, 3000, 1024)};
  CheckResult result = check_outputs(data, Tuning{}, outs);
  EXPECT_TRUE(result.is_passed);
  EXPECT_LT(result.num_tokens, 3000);
  EXPECT_GT(result.num_tokens, 100);
  for (std::int64_t token : {0, 2999}) {
    store_from_float(1, out.data(), DType::kFP32, token * 1024);
    result = check_outputs(data, Tuning{}, outs);
    EXPECT_FALSE(result.is_passed);
    EXPECT_EQ(result.worst_token, token);
    store_from_float(0, out.data(), DType::kFP32, token * 1024);
  }
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"--ranks", "--tokens", "--topk", "--json"};
  EXPECT_EQ(nearest("--rank", names), "--ranks");
  EXPECT_EQ(nearest("--tokesn", names), "--tokens");
  EXPECT_EQ(nearest("--tok", names), "--tokens");
  EXPECT_EQ(nearest("--entirely-else", names), "");
  EXPECT_EQ(nearest("", names), "");
}

}  // namespace
}  // namespace slipstream::cli
