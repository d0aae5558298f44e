// The reference against values worked out by hand, and against itself under changes that must not
// matter: how the width is split over ranks, fused or separate weights, row strides.
#include "reference/reference_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/relative_error.h"

namespace slipstream {
namespace {

double silu(double x) { return x / (1.0 + std::exp(-x)); }

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

TEST(ReferenceLayer, OneByOneByHand) {
  const Problem problem{.num_ranks = 1,
                        .num_experts = 2,
                        .hidden = 1,
                        .intermediate = 1,
                        .topk = 3,
                        .max_tokens = 2,
                        .dtype = DType::kFP32};
  const float x[] = {2.0F, -1.0F};
  const std::int32_t ids[] = {1, -1, 1, 7, 0, -5};  // a duplicate, a skip, two invalid ids
  const float topk_weights[] = {0.5F, 100.0F, 0.25F, 100.0F, -2.0F, 100.0F};
  const float gate_up[] = {0.5F, 3.0F, -1.5F, 2.0F};  // expert 0: gate, up; expert 1: gate, up
  const float down[] = {4.0F, 0.125F};
  const LayerInput input{dense_view(x, DType::kFP32, 2, 1), {ids, topk_weights, 2, 3}};
  const Weights weights{.gate_up = dense_view(gate_up, DType::kFP32, 4, 1),
                        .down = dense_view(down, DType::kFP32, 2, 1)};

  const auto out = reference_layer<double>(problem, {&input, 1}, {&weights, 1});

  ASSERT_EQ(out.size(), 1U);
  const double token_0 = 0.75 * silu(2.0 * -1.5) * (2.0 * 2.0) * 0.125;
  const double token_1 = -2.0 * silu(-1.0 * 0.5) * (-1.0 * 3.0) * 4.0;
  EXPECT_NEAR(out[0][0], token_0, 1e-15);
  EXPECT_NEAR(out[0][1], token_1, 1e-15);
}

// H 5, I_full 6 split over 1 or 3 ranks, fused or apart, dense or strided.
struct SplitCase {
  static constexpr std::int64_t kExperts = 3, kHidden = 5, kWidth = 6, kTokens = 7, kTopk = 2;
  std::vector<float> gate = random_values(kExperts * kWidth * kHidden, 1);
  std::vector<float> up = random_values(kExperts * kWidth * kHidden, 2);
  std::vector<float> down = random_values(kExperts * kHidden * kWidth, 3);
  std::vector<float> x = random_values(kTokens * kHidden, 4);
  std::vector<std::int32_t> ids = {0, 1, 2, 0, 1, 1, -1, 2, 0, 2, -1, -1, 2, 1};
  std::vector<float> topk_weights = random_values(kTokens * kTopk, 5);

  Problem problem(int num_ranks) const {
    return {.num_ranks = num_ranks,
            .num_experts = kExperts,
            .hidden = kHidden,
            .intermediate = kWidth,
            .topk = kTopk,
            .max_tokens = kTokens,
            .dtype = DType::kFP32};
  }
  LayerInput input(std::int64_t first_token, std::int32_t num_tokens) const {
    return {dense_view(&x[first_token * kHidden], DType::kFP32, num_tokens, kHidden),
            {&ids[first_token * kTopk], &topk_weights[first_token * kTopk], num_tokens, kTopk}};
  }
};

TEST(ReferenceLayer, RanksSplitTheWidthAndTheTokens) {
  const SplitCase c;
  const LayerInput whole = c.input(0, SplitCase::kTokens);
  const Weights apart{.gate = dense_view(c.gate.data(), DType::kFP32, 18, 5),
                      .up = dense_view(c.up.data(), DType::kFP32, 18, 5),
                      .down = dense_view(c.down.data(), DType::kFP32, 15, 6)};
  const auto want = reference_layer<double>(c.problem(1), {&whole, 1}, {&apart, 1});

  // Rank r takes columns [2r, 2r + 2) of the width, in fused weights whose rows are 8 apart.
  std::vector<std::vector<float>> gate_up(3), down(3);
  std::vector<Weights> weights;
  for (std::int64_t r = 0; r < 3; ++r) {
    gate_up[r].assign(3 * 4 * 8, std::nanf(""));
    for (std::int64_t e = 0; e < 3; ++e) {
      for (std::int64_t i = 0; i < 2; ++i) {
        for (std::int64_t h = 0; h < 5; ++h) {
          gate_up[r][(e * 4 + i) * 8 + h] = c.gate[(e * 6 + 2 * r + i) * 5 + h];
          gate_up[r][(e * 4 + 2 + i) * 8 + h] = c.up[(e * 6 + 2 * r + i) * 5 + h];
        }
      }
      for (std::int64_t h = 0; h < 5; ++h)
        for (std::int64_t i = 0; i < 2; ++i) down[r].push_back(c.down[(e * 5 + h) * 6 + 2 * r + i]);
    }
    TensorView strided = dense_view(gate_up[r].data(), DType::kFP32, 12, 5);
    strided.row_stride = 8;
    weights.push_back(
        {.gate_up = strided, .down = dense_view(down[r].data(), DType::kFP32, 15, 2)});
  }
  const std::vector<LayerInput> inputs = {c.input(0, 4), c.input(4, 0), c.input(4, 3)};
  const auto got = reference_layer<double>(c.problem(3), inputs, weights);

  std::vector<double> joined;
  for (const auto& part : got) joined.insert(joined.end(), part.begin(), part.end());
  ASSERT_EQ(joined.size(), want[0].size());
  for (std::size_t i = 0; i < joined.size(); ++i) EXPECT_NEAR(joined[i], want[0][i], 1e-13) << i;
  EXPECT_EQ(want[0][5 * 5], 0.0) << "token 5 has no expert";

  const auto single = reference_layer<float>(c.problem(3), inputs, weights);
  EXPECT_LT(relative_error(dense_view(single[0].data(), DType::kFP32, 4, 5), got[0]), 1e-6);
}

TEST(ReferenceLayer, ReadsHalfPrecisionExactly) {
  const Problem problem{.num_ranks = 1,
                        .num_experts = 1,
                        .hidden = 1,
                        .intermediate = 1,
                        .topk = 1,
                        .max_tokens = 1,
                        .dtype = DType::kBF16};
  const std::uint16_t x = 0x3fc0, gate_up[] = {0x4000, 0x3f80}, down = 0xbf00;  // 1.5; 2, 1; -0.5
  const std::int32_t id = 0;
  const float weight = 1.0F;
  const LayerInput input{dense_view(&x, DType::kBF16, 1, 1), {&id, &weight, 1, 1}};
  const Weights weights{.gate_up = dense_view(gate_up, DType::kBF16, 2, 1),
                        .down = dense_view(&down, DType::kBF16, 1, 1)};
  const auto out = reference_layer<double>(problem, {&input, 1}, {&weights, 1});
  EXPECT_NEAR(out[0][0], silu(3.0) * 1.5 * -0.5, 1e-15);
}

}  // namespace
}  // namespace slipstream
