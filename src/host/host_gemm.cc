#include "host/host_gemm.h"

#ifndef SLIPSTREAM_HOST_GEMM_LOOPS
#include <cblas.h>
#endif

namespace slipstream::host {

#ifdef SLIPSTREAM_HOST_GEMM_LOOPS

void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
             const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t col = 0; col < n; ++col) {
      float sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += a[row * lda + i] * b[col * ldb + i];
      c[row * ldc + col] = sum;
    }
  }
}

void use_one_gemm_thread() {}

#else

void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
             const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  const auto narrow = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, narrow(m), narrow(n), narrow(k), 1.0F, a,
              narrow(lda), b, narrow(ldb), 0.0F, c, narrow(ldc));
}

void use_one_gemm_thread() { openblas_set_num_threads(1); }

#endif

}  // namespace slipstream::host
