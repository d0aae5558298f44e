// Small things that every CUDA file of this folder needs: errors as Status, the current device and
// a stream as scopes. Not for kernels. Read cuda_region.h next.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "slipstream/status.h"

namespace slipstream {

// ok, or the error with its name: kOutOfMemory where CUDA says so, kUnsupported where there is no
// GPU or no driver for this build, else kBackendError. `what` is the call: "cudaStreamCreate".
Status cuda_status(cudaError_t error, std::string what);

// Makes `device` current on this thread, and the one before again at the end of the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  const Status& status() const { return status_; }

 private:
  int previous_ = -1;
  Status status_;
};

// A stream on the current device that does not wait for the legacy default stream.
class CudaStream {
 public:
  static Result<CudaStream> create();
  CudaStream(CudaStream&& other) noexcept : stream_(other.stream_) { other.stream_ = nullptr; }
  CudaStream& operator=(CudaStream&&) = delete;
  ~CudaStream();

  cudaStream_t get() const { return stream_; }
  // Waits for all that was launched on it; errors of kernels come out here, errors of launches do
  // not.
  Status synchronize(const char* what) const;

 private:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream_;
};

}  // namespace slipstream
