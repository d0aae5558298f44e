// cuBLAS as a peer. See cublas_peer.h.
#include "cublas_peer.h"

#include <dlfcn.h>

namespace slipstream::bench {

namespace {

// From cublas_v2.h and library_types.h, so that neither has to be installed.
constexpr int kOpN = 0, kOpT = 1;
constexpr int kCudaR16F = 2, kCudaR16BF = 14;
constexpr int kCompute32F = 68;
constexpr int kGemmDefault = -1;
using Create = int (*)(void**);
using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                       const void*, int, int, const void*, void*, int, int, int, int);

}  // namespace

const CublasPeer& CublasPeer::instance() {
  static const CublasPeer peer;
  return peer;
}

CublasPeer::CublasPeer() {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return;
  const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  gemm_ex_ = dlsym(library, "cublasGemmEx");
  if (create == nullptr || gemm_ex_ == nullptr || create(&handle_) != 0) handle_ = nullptr;
}

void CublasPeer::multiply(DType dtype, const void* w, const void* x, void* out, std::int32_t n,
                          std::int32_t rows, std::int32_t k) const {
  if (rows == 0) return;
  const float one = 1.0F, zero = 0.0F;
  const int type = dtype == DType::kBF16 ? kCudaR16BF : kCudaR16F;
  // cuBLAS is column-major: out^T [n, rows] = (w^T)^T [n, k] * x^T [k, rows].
  reinterpret_cast<GemmEx>(gemm_ex_)(handle_, kOpT, kOpN, n, rows, k, &one, w, type, k, x, type, k,
                                     &zero, out, type, n, kCompute32F, kGemmDefault);
}

}  // namespace slipstream::bench
