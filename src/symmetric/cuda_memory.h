// Device memory that chosen devices may touch: an allocation of the driver's virtual memory
// management, mapped once in this process. Access is granted per allocation, so that nobody turns
// on global peer access (which maps every cudaMalloc of the process into every GPU).
//
// Used by the providers (cuda_region.h) and by the probe (cuda_probe.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "launch/socket.h"
#include "slipstream/status.h"

namespace slipstream {

class CudaMemory {
 public:
  // At least num_bytes on `device`, zeroed, readable and writable by `device` and by accessors.
  // Errors: kOutOfMemory with both sizes, kUnsupported (no virtual memory management, or an
  // accessor cannot reach the device: names both), kBackendError.
  static Result<CudaMemory> create(int device, std::int64_t num_bytes,
                                   std::span<const int> accessors, bool is_exportable = false);

  // ok, or kUnsupported with what the device lacks.
  static Status is_supported(int device, bool is_exportable);

  // Maps what another process exported; only `accessor` may touch it. The descriptor stays the
  // caller's.
  static Result<CudaMemory> import_fd(int fd, std::int64_t num_bytes, int accessor);

  CudaMemory(CudaMemory&& other) noexcept { *this = std::move(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept;
  ~CudaMemory() { release(); }

  // A descriptor for another process; is_exportable only.
  Result<UniqueFd> export_fd() const;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  // What is mapped: num_bytes rounded up to the driver's granule (2 MB on the cards of today).
  std::int64_t mapped_bytes() const { return static_cast<std::int64_t>(mapped_bytes_); }

 private:
  CudaMemory() = default;
  Status map(std::span<const int> accessors);
  void release();

  // The driver's CUmemGenericAllocationHandle and CUdeviceptr, which are these types.
  unsigned long long handle_ = 0;
  unsigned long long address_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::size_t granularity_ = 0;
  bool has_handle_ = false;
  bool is_mapped_ = false;
};

}  // namespace slipstream
