// GPUs by the CUDA runtime. It is linked statically and loads the driver itself, so that a machine
// without either gets the answer "no GPU" and not a loader's error.
#include "machine.h"

#if defined(SLIPSTREAM_HAS_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace slipstream::cli {

#if defined(SLIPSTREAM_HAS_CUDA)

GpuList list_gpus() {
  GpuList list;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    int driver_version = 0;
    cudaDriverGetVersion(&driver_version);  // 0 without a driver, which the runtime calls too old
    list.why_none = driver_version == 0 ? "no NVIDIA driver" : cudaGetErrorString(error);
    return list;
  }
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    if (const cudaError_t failed = cudaGetDeviceProperties(&properties, device);
        failed != cudaSuccess) {
      list.why_none = cudaGetErrorString(failed);
      continue;
    }
    list.gpus.push_back({.name = properties.name,
                         .num_sms = properties.multiProcessorCount,
                         .capability_major = properties.major,
                         .capability_minor = properties.minor,
                         .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                         .l2_bytes = properties.l2CacheSize});
  }
  if (count == 0) list.why_none = "the CUDA runtime sees none";
  return list;
}

std::string cuda_version_text() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

#else

GpuList list_gpus() { return {.gpus = {}, .why_none = "this build has no CUDA"}; }

std::string cuda_version_text() { return "none"; }

#endif

}  // namespace slipstream::cli
