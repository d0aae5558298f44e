// Virtual memory management through the driver API. Its functions come from the runtime
// (cudaGetDriverEntryPointByVersion), so that nothing links to libcuda, which a machine without a
// driver has not got.
#include "symmetric/cuda_memory.h"

#include <cuda.h>
#include <fmt/format.h>

#include <vector>

#include "symmetric/cuda_support.h"

namespace slipstream {

namespace {

static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(unsigned long long));
static_assert(sizeof(CUdeviceptr) == sizeof(unsigned long long));

struct Driver {
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;
  decltype(&cuMemAddressReserve) address_reserve = nullptr;
  decltype(&cuMemAddressFree) address_free = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
  Status status;
};

constexpr unsigned int kDriverVersion = 12000;  // of the functions' signatures

template <class Function>
void load(Driver& driver, const char* name, Function& function) {
  if (!driver.status.is_ok()) return;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kDriverVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess) {
    driver.status = cuda_status(error, fmt::format("entry point of {}", name));
  } else if (found == nullptr || result != cudaDriverEntryPointSuccess) {
    driver.status = Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                           {.what = fmt::format("driver function {}", name),
                            .observed = "missing",
                            .expected = "a driver for CUDA 12.0 or newer",
                            .hint = "update the driver"});
  }
  function = reinterpret_cast<Function>(found);
}

Driver load_driver() {
  Driver driver;
  // The runtime makes the primary context; the driver's functions need it.
  driver.status = cuda_status(cudaFree(nullptr), "start of CUDA");
  load(driver, "cuMemCreate", driver.mem_create);
  load(driver, "cuMemRelease", driver.mem_release);
  load(driver, "cuMemMap", driver.mem_map);
  load(driver, "cuMemUnmap", driver.mem_unmap);
  load(driver, "cuMemSetAccess", driver.mem_set_access);
  load(driver, "cuMemAddressReserve", driver.address_reserve);
  load(driver, "cuMemAddressFree", driver.address_free);
  load(driver, "cuMemGetAllocationGranularity", driver.granularity);
  load(driver, "cuMemExportToShareableHandle", driver.export_handle);
  load(driver, "cuMemImportFromShareableHandle", driver.import_handle);
  load(driver, "cuDeviceGetAttribute", driver.device_attribute);
  load(driver, "cuGetErrorName", driver.error_name);
  return driver;
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

Status driver_status(CUresult result, std::string what) {
  if (result == CUDA_SUCCESS) return Status::ok();
  const char* name = nullptr;
  driver().error_name(result, &name);
  StatusCode code = StatusCode::kBackendError;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) code = StatusCode::kOutOfMemory;
  if (result == CUDA_ERROR_NOT_SUPPORTED) code = StatusCode::kUnsupported;
  return Status(code, Subsystem::kSymmetric,
                {.what = std::move(what),
                 .observed = name == nullptr ? fmt::format("error {}", static_cast<int>(result))
                                             : std::string(name),
                 .expected = "CUDA_SUCCESS"});
}

Status out_of_memory(int device, std::size_t wanted) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  (void)cudaMemGetInfo(&free_bytes, &total_bytes);
  return Status(StatusCode::kOutOfMemory, Subsystem::kSymmetric,
                {.what = fmt::format("symmetric memory on device {}", device),
                 .observed = fmt::format("{} bytes free of {}", free_bytes, total_bytes),
                 .expected = fmt::format("{} bytes", wanted),
                 .hint = "lower max_tokens, or free memory on this GPU"});
}

Status check_reachable(int accessor, int device) {
  if (accessor == device) return Status::ok();
  int can_access = 0;
  const cudaError_t error = cudaDeviceCanAccessPeer(&can_access, accessor, device);
  if (error != cudaSuccess) {
    return cuda_status(error, fmt::format("cudaDeviceCanAccessPeer({}, {})", accessor, device));
  }
  if (can_access != 0) return Status::ok();
  return Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                {.what = fmt::format("peer access from device {} to device {}", accessor, device),
                 .observed = "not possible on this machine",
                 .expected = "every GPU of a group to reach every other",
                 .hint = "the serial path runs without it; slipstream info shows the peer matrix"});
}

CUmemAllocationProp allocation_prop(int device, bool is_exportable) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  if (is_exportable) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

Result<std::size_t> granularity_of(const CUmemAllocationProp& prop) {
  std::size_t granularity = 0;
  const CUresult result =
      driver().granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return driver_status(result, "cuMemGetAllocationGranularity");
  return granularity;
}

std::size_t round_up(std::int64_t num_bytes, std::size_t granularity) {
  const auto wanted = static_cast<std::size_t>(num_bytes > 0 ? num_bytes : 1);
  return (wanted + granularity - 1) / granularity * granularity;
}

Status zero(int device, std::byte* data, std::size_t num_bytes) {
  const DeviceGuard guard(device);
  if (!guard.status().is_ok()) return guard.status();
  Result<CudaStream> stream = CudaStream::create();
  if (!stream.is_ok()) return stream.status();
  const cudaError_t error = cudaMemsetAsync(data, 0, num_bytes, stream.value().get());
  if (error != cudaSuccess) return cuda_status(error, "cudaMemsetAsync");
  return stream.value().synchronize("zeroing symmetric memory");
}

}  // namespace

Status CudaMemory::is_supported(int device, bool is_exportable) {
  if (!driver().status.is_ok()) return driver().status;
  int has_vmm = 0;
  int has_fd = 1;
  CUresult result = driver().device_attribute(
      &has_vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  if (result == CUDA_SUCCESS && is_exportable) {
    result = driver().device_attribute(
        &has_fd, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
  }
  if (Status s = driver_status(result, "cuDeviceGetAttribute"); !s.is_ok()) return s;
  if (has_vmm != 0 && has_fd != 0) return Status::ok();
  return Status(
      StatusCode::kUnsupported, Subsystem::kSymmetric,
      {.what = fmt::format("device {}", device),
       .observed = has_vmm == 0 ? "no virtual memory management"
                                : "no export of memory as a file descriptor",
       .expected = "both",
       .hint = has_vmm == 0 ? "the serial path needs none" : "use the threads launcher, or NCCL"});
}

Result<CudaMemory> CudaMemory::create(int device, std::int64_t num_bytes,
                                      std::span<const int> accessors, bool is_exportable) {
  const DeviceGuard guard(device);
  if (!guard.status().is_ok()) return guard.status();
  if (Status s = is_supported(device, is_exportable); !s.is_ok()) return s;
  for (const int accessor : accessors)
    if (Status s = check_reachable(accessor, device); !s.is_ok()) return s;

  const CUmemAllocationProp prop = allocation_prop(device, is_exportable);
  Result<std::size_t> granularity = granularity_of(prop);
  if (!granularity.is_ok()) return granularity.status();
  CudaMemory memory;
  memory.granularity_ = granularity.value();
  memory.mapped_bytes_ = round_up(num_bytes, memory.granularity_);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver().mem_create(&handle, memory.mapped_bytes_, &prop, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return out_of_memory(device, memory.mapped_bytes_);
  if (result != CUDA_SUCCESS) return driver_status(result, "cuMemCreate");
  memory.handle_ = handle;
  memory.has_handle_ = true;

  std::vector<int> all(accessors.begin(), accessors.end());
  all.push_back(device);
  if (Status s = memory.map(all); !s.is_ok()) return s;
  if (Status s = zero(device, memory.data(), memory.mapped_bytes_); !s.is_ok()) return s;
  return memory;
}

Result<CudaMemory> CudaMemory::import_fd(int fd, std::int64_t num_bytes, int accessor) {
  const DeviceGuard guard(accessor);
  if (!guard.status().is_ok()) return guard.status();
  if (!driver().status.is_ok()) return driver().status;
  Result<std::size_t> granularity = granularity_of(allocation_prop(accessor, true));
  if (!granularity.is_ok()) return granularity.status();
  CudaMemory memory;
  memory.granularity_ = granularity.value();
  memory.mapped_bytes_ = round_up(num_bytes, memory.granularity_);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result =
      driver().import_handle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return driver_status(result, "cuMemImportFromShareableHandle");
  memory.handle_ = handle;
  memory.has_handle_ = true;
  const int accessors[] = {accessor};
  if (Status s = memory.map(accessors); !s.is_ok()) return s;
  return memory;
}

Status CudaMemory::map(std::span<const int> accessors) {
  CUdeviceptr address = 0;
  CUresult result = driver().address_reserve(&address, mapped_bytes_, granularity_, 0, 0);
  if (result != CUDA_SUCCESS) return driver_status(result, "cuMemAddressReserve");
  address_ = address;
  result = driver().mem_map(address_, mapped_bytes_, 0, handle_, 0);
  if (result != CUDA_SUCCESS) return driver_status(result, "cuMemMap");
  is_mapped_ = true;
  for (std::size_t i = 0; i < accessors.size(); ++i) {
    bool is_repeated = false;
    for (std::size_t j = 0; j < i; ++j) is_repeated = is_repeated || accessors[j] == accessors[i];
    if (is_repeated) continue;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = accessors[i];
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver().mem_set_access(address_, mapped_bytes_, &access, 1);
    if (result != CUDA_SUCCESS)
      return driver_status(result, fmt::format("cuMemSetAccess for device {}", accessors[i]));
  }
  return Status::ok();
}

Result<UniqueFd> CudaMemory::export_fd() const {
  int fd = -1;
  const CUresult result =
      driver().export_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) return driver_status(result, "cuMemExportToShareableHandle");
  return UniqueFd(fd);
}

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle_ = std::exchange(other.handle_, 0);
  address_ = std::exchange(other.address_, 0);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  granularity_ = std::exchange(other.granularity_, 0);
  has_handle_ = std::exchange(other.has_handle_, false);
  is_mapped_ = std::exchange(other.is_mapped_, false);
  return *this;
}

void CudaMemory::release() {
  if (is_mapped_) (void)driver().mem_unmap(address_, mapped_bytes_);
  if (address_ != 0) (void)driver().address_free(address_, mapped_bytes_);
  if (has_handle_) (void)driver().mem_release(handle_);
  is_mapped_ = has_handle_ = false;
  address_ = 0;
}

}  // namespace slipstream
