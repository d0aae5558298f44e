#include "host/host_gemm.h"

#ifndef SLIPSTREAM_HOST_GEMM_LOOPS
#include <cblas.h>
#endif

namespace slipstream::host {

#ifdef SLIPSTREAM_HOST_GEMM_LOOPS

namespace {

// ThreadSanitizer sees every element once, which is all it needs; watching the m * n * k products
// would make its tests take minutes.
void see_rows(const float* rows, std::int64_t num_rows, std::int64_t num_cols,
              std::int64_t stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const volatile float* elements = rows + row * stride;
    for (std::int64_t i = 0; i < num_cols; ++i) static_cast<void>(elements[i]);
  }
}

__attribute__((no_sanitize("thread"))) float dot(const float* a, const float* b, std::int64_t k) {
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
             const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  see_rows(a, m, k, lda);
  see_rows(b, n, k, ldb);
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t col = 0; col < n; ++col)
      c[row * ldc + col] = dot(a + row * lda, b + col * ldb, k);
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
