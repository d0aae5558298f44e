#include "core/numeric.h"

#include <cstring>

namespace slipstream {

void to_float(const void* source, DType dtype, std::int64_t count, float* target) {
  if (count == 0) return;
  const auto* half = static_cast<const std::uint16_t*>(source);
  switch (dtype) {
    case DType::kFP32:
      std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < count; ++i) target[i] = bf16_to_float(half[i]);
      return;
    case DType::kFP16:
      for (std::int64_t i = 0; i < count; ++i) target[i] = fp16_to_float(half[i]);
      return;
  }
}

void from_float(const float* source, DType dtype, std::int64_t count, void* target) {
  if (count == 0) return;
  auto* half = static_cast<std::uint16_t*>(target);
  switch (dtype) {
    case DType::kFP32:
      std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < count; ++i) half[i] = float_to_bf16(source[i]);
      return;
    case DType::kFP16:
      for (std::int64_t i = 0; i < count; ++i) half[i] = float_to_fp16(source[i]);
      return;
  }
}

float load_as_float(const void* source, DType dtype, std::int64_t index) {
  float value = 0;
  to_float(static_cast<const std::byte*>(source) + index * dtype_bytes(dtype), dtype, 1, &value);
  return value;
}

void store_from_float(float value, void* target, DType dtype, std::int64_t index) {
  from_float(&value, dtype, 1, static_cast<std::byte*>(target) + index * dtype_bytes(dtype));
}

}  // namespace slipstream
