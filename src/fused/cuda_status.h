// CUDA errors as Status. For host code of .cu and .cc files that call the runtime.
#pragma once

#include <cuda_runtime.h>

#include "slipstream/status.h"

namespace slipstream {

inline Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status::ok();
  const StatusCode code =
      error == cudaErrorMemoryAllocation ? StatusCode::kOutOfMemory : StatusCode::kBackendError;
  return Status(
      code, Subsystem::kLayer,
      {.what = call,
       .observed = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error),
       .expected = "cudaSuccess",
       .hint = {}});
}

}  // namespace slipstream

// Leaves the enclosing function, which returns Status or Result, with the error.
#define SLIPSTREAM_RETURN_IF_CUDA(call)                                                 \
  do {                                                                                  \
    if (::slipstream::Status status_of_call = ::slipstream::cuda_status((call), #call); \
        !status_of_call.is_ok())                                                        \
      return status_of_call;                                                            \
  } while (false)
