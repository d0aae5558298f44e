// Element types and non-owning views of row-major tensors, in host or device memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "slipstream/status.h"

namespace slipstream {

enum class DType : std::int32_t { kBF16 = 0, kFP16 = 1, kFP32 = 2 };

std::string_view to_string(DType dtype);  // "bf16", "fp16", "fp32"
Result<DType> parse_dtype(std::string_view text);

constexpr int dtype_bytes(DType dtype) { return dtype == DType::kFP32 ? 4 : 2; }

// `rows` rows of `cols` elements; consecutive rows are `row_stride` elements apart, elements of a
// row are adjacent. A tensor [E, N, K] is passed as [E * N, K]. `data` may be null when rows is 0.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kBF16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  std::int64_t bytes() const { return rows * cols * dtype_bytes(dtype); }
};

inline TensorView dense_view(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return TensorView{data, dtype, rows, cols, cols};
}

// Views never write through a const source: the callee that takes an input promises not to.
inline TensorView dense_view(const void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return TensorView{const_cast<void*>(data), dtype, rows, cols, cols};
}

}  // namespace slipstream
