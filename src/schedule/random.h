// A small random generator that gives the same numbers on every machine and compiler, which the
// distributions of <random> do not promise. Not for secrets. Used by routing_generator.cc.
#pragma once

#include <cstdint>

namespace slipstream {

// SplitMix64 (Steele, Lea, Flood 2014). `stream` gives independent sequences of one seed, so that
// token j's routing does not depend on how many tokens come before it.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mix(seed + kStep) ^ mix((stream + 1) * kStep)) {}

  std::uint64_t bits() { return mix(state_ += kStep); }

  // 0..bound - 1; bound > 0. The bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Uint128>(bits()) * bound) >> 64);
  }

  // In (0, 1), never an end point.
  double unit() { return (static_cast<double>(bits() >> 12) + 0.5) * 0x1p-52; }

 private:
  __extension__ using Uint128 = unsigned __int128;
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  std::uint64_t state_;
};

}  // namespace slipstream
