// Errors, devices and streams.
#include "symmetric/cuda_support.h"

#include <fmt/format.h>

namespace slipstream {

Status cuda_status(cudaError_t error, std::string what) {
  if (error == cudaSuccess) return Status::ok();
  StatusDetail detail{
      .what = std::move(what),
      .observed = fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error)),
      .expected = "success"};
  switch (error) {
    case cudaErrorMemoryAllocation:
      return Status(StatusCode::kOutOfMemory, Subsystem::kSymmetric, std::move(detail));
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
      detail.hint = "nvidia-smi shows what the driver sees; --backend host needs no GPU";
      return Status(StatusCode::kUnsupported, Subsystem::kSymmetric, std::move(detail));
    default: return Status(StatusCode::kBackendError, Subsystem::kSymmetric, std::move(detail));
  }
}

DeviceGuard::DeviceGuard(int device) {
  status_ = cuda_status(cudaGetDevice(&previous_), "cudaGetDevice");
  if (!status_.is_ok()) return;
  status_ = cuda_status(cudaSetDevice(device), fmt::format("cudaSetDevice({})", device));
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

Result<CudaStream> CudaStream::create() {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return cuda_status(error, "cudaStreamCreateWithFlags");
  return CudaStream(stream);
}

CudaStream::~CudaStream() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Status CudaStream::synchronize(const char* what) const {
  return cuda_status(cudaStreamSynchronize(stream_), what);
}

}  // namespace slipstream
