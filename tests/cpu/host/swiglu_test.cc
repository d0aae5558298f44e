#include "host/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace slipstream::host {
namespace {

TEST(SwiGlu, IsExactToSingleRounding) {
  std::vector<float> gate, up;
  for (float g = -80.0F; g < 90.0F; g += 0.0137F) {
    gate.push_back(g);
    up.push_back(std::sin(g) + 1.5F);
  }
  std::vector<float> y(gate.size());
  swiglu(gate.data(), up.data(), static_cast<std::int64_t>(gate.size()), y.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double want = gate[i] / (1.0 + std::exp(-double{gate[i]})) * up[i];
    ASSERT_NEAR(y[i], want, 3e-7 * std::abs(want)) << "gate " << gate[i];
  }
}

TEST(SwiGlu, EndsGentlyOutsideTheRangeOfTheExponential) {
  const float inf = std::numeric_limits<float>::infinity();
  const float gate[] = {-1e4F, 1e4F, inf, std::nanf(""), 0.0F};
  const float up[] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  float y[5];
  swiglu(gate, up, 5, y);
  EXPECT_NEAR(y[0], 0.0F, 1e-30F);
  EXPECT_EQ(y[1], 1e4F);
  EXPECT_EQ(y[2], inf);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], 0.0F);
}

TEST(SwiGlu, BitsDoNotDependOnThePlace) {
  const std::vector<float> gate(11, 0.7321F), up(11, -1.25F);
  std::vector<float> y(11);
  for (std::int64_t count = 1; count <= 11; ++count) {
    swiglu(gate.data(), up.data(), count, y.data());
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(y[i], y[0]);
  }
}

}  // namespace
}  // namespace slipstream::host
