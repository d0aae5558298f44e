// cuBLAS as a peer, found at run time: the benchmark neither needs it to build nor to start.
#pragma once

#include <cstdint>

#include "slipstream/tensor.h"

namespace slipstream::bench {

class CublasPeer {
 public:
  static const CublasPeer& instance();

  bool is_available() const { return handle_ != nullptr; }
  // out [rows, n] = x [rows, k] * w [n, k]^T, fp32 accumulation, on the default stream.
  void multiply(DType dtype, const void* w, const void* x, void* out, std::int32_t n,
                std::int32_t rows, std::int32_t k) const;

 private:
  CublasPeer();
  void* handle_ = nullptr;
  void* gemm_ex_ = nullptr;
};

}  // namespace slipstream::bench
