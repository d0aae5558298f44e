#include "host/swiglu.h"

#include <algorithm>
#include <bit>

namespace slipstream::host {

namespace {

// e^x for |x| <= 88 and the nearest bound outside; NaN stays NaN. x = n ln2 + r with |r| <= ln2 /
// 2, e^r by the Taylor polynomial of degree 7, whose remainder is below 6e-9 there.
inline float exp_bounded(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits of the sum.
  constexpr float kRound = 12582912.0F;
  x = std::min(std::max(x, -87.0F), 88.0F);
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const std::uint32_t scale = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U;
  return p * std::bit_cast<float>(scale);
}

}  // namespace

void swiglu(const float* gate, const float* up, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gate[i];
    y[i] = g / (1.0F + exp_bounded(-g)) * up[i];
  }
}

}  // namespace slipstream::host
