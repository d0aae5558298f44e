#include "core/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace slipstream {
namespace {

// Every 16-bit pattern survives the round trip; NaNs stay NaNs.
TEST(Numeric, EveryHalfPatternRoundTrips) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float from_bf16 = bf16_to_float(half);
    const float from_fp16 = fp16_to_float(half);
    if (std::isnan(from_bf16)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(from_bf16))));
    } else {
      ASSERT_EQ(float_to_bf16(from_bf16), half);
    }
    if (std::isnan(from_fp16)) {
      EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(from_fp16))));
    } else {
      ASSERT_EQ(float_to_fp16(from_fp16), half);
    }
  }
}

// The compiler's own _Float16 is the independent judge, over a stride through all floats.
TEST(Numeric, Fp16RoundsLikeTheCompiler) {
  for (std::uint64_t bits = 0; bits <= 0xffffffffULL; bits += 9973) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    const auto expected = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(float_to_fp16(value), expected) << value;
  }
}

TEST(Numeric, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // tie, to even
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);  // tie, to even
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::infinity()), 0xff80);
}

TEST(Numeric, BulkConversionMatchesSingle) {
  for (DType dtype : {DType::kBF16, DType::kFP16, DType::kFP32}) {
    const float source[5] = {0.1F, -7.25F, 3e-6F, 0.0F, 60000.0F};
    std::uint32_t storage[5];
    from_float(source, dtype, 5, storage);
    float back[5];
    to_float(storage, dtype, 5, back);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(back[i], load_as_float(storage, dtype, i));
      EXPECT_NEAR(back[i], source[i], std::abs(source[i]) * 0.004F + 1e-7F);
    }
  }
}

}  // namespace
}  // namespace slipstream
