// The one place where the host backend multiplies matrices: OpenBLAS, or plain loops in a
// ThreadSanitizer build, which sees no access inside a library that it did not instrument.
// Called by the compute roles.
#pragma once

#include <cstdint>

namespace slipstream::host {

// c[m, n] = a[m, k] * b[n, k]^T in fp32; rows of each are ld* floats apart. The same inputs give
// the same bits. `c` is not read.
void gemm_nt(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
             const float* b, std::int64_t ldb, float* c, std::int64_t ldc);

// Parallelism is the backend's own: one thread for each product. Process-wide, as OpenBLAS has it.
// Called once, when the first layer is made.
void use_one_gemm_thread();

}  // namespace slipstream::host
