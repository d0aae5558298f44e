// bf16 and fp16 on the host: storage types, conversion to fp32 and back (round to nearest even).
// Used by every host path; device code uses cuda_bf16.h and cuda_fp16.h.
#pragma once

#include <bit>
#include <cstdint>

#include "slipstream/tensor.h"

namespace slipstream {

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  }
  // Scaling by 2^112 moves the exponent bias from 15 to 127 and is exact for subnormals too.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

inline std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // >= 65520
  if (magnitude < 0x38800000U) {
    // Subnormal or zero: adding 0.5 aligns the mantissa so that the FPU rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t rounded = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000U;
    return static_cast<std::uint16_t>(sign | rounded);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - (112U << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

// `count` adjacent elements.
void to_float(const void* source, DType dtype, std::int64_t count, float* target);
void from_float(const float* source, DType dtype, std::int64_t count, void* target);

float load_as_float(const void* source, DType dtype, std::int64_t index);
void store_from_float(float value, void* target, DType dtype, std::int64_t index);

}  // namespace slipstream
