// NCCL windows as symmetric regions.
#include "symmetric/nccl_region.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl_device.h>

#include "symmetric/cuda_self_test.h"
#include "symmetric/cuda_support.h"
#include "symmetric/nccl_api.h"

namespace slipstream {

namespace {

constexpr int kWindowsSince = NCCL_VERSION(2, 28, 0);

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Status unsupported(std::string what, std::string observed, std::string expected, std::string hint) {
  return Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                {.what = std::move(what),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = std::move(hint)});
}

struct CommInfo {
  int rank = 0;
  int num_ranks = 0;
  int device = 0;
};

Result<CommInfo> comm_info(const NcclApi& api, ncclComm* comm) {
  CommInfo info;
  ncclResult_t result = api.CommUserRank(comm, &info.rank);
  if (result == ncclSuccess) result = api.CommCount(comm, &info.num_ranks);
  if (result == ncclSuccess) result = api.CommCuDevice(comm, &info.device);
  if (result != ncclSuccess) return nccl_status(api, result, "query of the NCCL communicator");
  return info;
}

// The memory and its window. Freed in the order NCCL wants.
struct Window {
  const NcclApi* api = nullptr;
  ncclComm* comm = nullptr;
  int device = 0;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;

  ~Window() {
    const DeviceGuard guard(device);
    if (window != nullptr) (void)api->CommWindowDeregister(comm, window);
    if (memory != nullptr) (void)api->MemFree(memory);
  }
};

Status check_version(const NcclApi& api, const CommInfo& info, const RegionShape& shape) {
  if (info.num_ranks != shape.num_ranks) {
    return invalid_argument(Subsystem::kSymmetric,
                            {.what = "ranks of the NCCL communicator",
                             .observed = fmt::format("{}", info.num_ranks),
                             .expected = fmt::format("{}, the problem's", shape.num_ranks),
                             .hint = "make a communicator of the tensor-parallel group"});
  }
  if (api.version < kWindowsSince || api.CommWindowRegister == nullptr || api.MemAlloc == nullptr) {
    return unsupported("NCCL", version_text(api.version), "2.28 or newer, for its windows",
                       "use a newer NCCL, or create_shared_region()");
  }
  // 2.29 has a function for peer pointers. Before, they are in the window's record, whose layout is
  // that of the header we were built with.
  if (api.GetPeerDevicePointer == nullptr && api.version / 100 != NCCL_VERSION_CODE / 100) {
    return unsupported("NCCL", version_text(api.version),
                       fmt::format("{}.{}.x, as built with", NCCL_MAJOR, NCCL_MINOR),
                       "rebuild with that version's nccl.h");
  }
  return Status::ok();
}

Status allocate_zeroed(Window& window, std::int64_t num_bytes) {
  const DeviceGuard guard(window.device);
  if (!guard.status().is_ok()) return guard.status();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const cudaError_t queried = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (queried != cudaSuccess) return cuda_status(queried, "cudaMemGetInfo");
  const ncclResult_t result =
      window.api->MemAlloc(&window.memory, static_cast<std::size_t>(num_bytes));
  if (result != ncclSuccess) {
    (void)cudaGetLastError();
    window.memory = nullptr;
    // NCCL does not tell "out of memory" from other CUDA errors.
    if (static_cast<std::size_t>(num_bytes) > free_bytes) {
      return Status(StatusCode::kOutOfMemory, Subsystem::kSymmetric,
                    {.what = fmt::format("symmetric memory on device {}", window.device),
                     .observed = fmt::format("{} bytes free of {}", free_bytes, total_bytes),
                     .expected = fmt::format("{} bytes", num_bytes),
                     .hint = "lower max_tokens, or free memory on this GPU"});
    }
    return nccl_status(*window.api, result, "ncclMemAlloc");
  }
  Result<CudaStream> stream = CudaStream::create();
  if (!stream.is_ok()) return stream.status();
  const cudaError_t error =
      cudaMemsetAsync(window.memory, 0, static_cast<std::size_t>(num_bytes), stream.value().get());
  if (error != cudaSuccess) return cuda_status(error, "cudaMemsetAsync");
  return stream.value().synchronize("zeroing symmetric memory");
}

// Without peer access NCCL returns success and a handle that is no device window: a host pointer,
// or none. Reading it in a kernel would end the context, so it is looked at from here.
Status check_device_window(const Window& window) {
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, window.window);
  if (error == cudaSuccess && attributes.type == cudaMemoryTypeDevice) return Status::ok();
  (void)cudaGetLastError();
  return unsupported("NCCL window", "registered, but no device window",
                     "one that kernels can address",
                     "the GPUs do not reach each other, or NCCL_CUMEM_ENABLE=0; the serial path "
                     "runs without it");
}

// Where 2.28 keeps it: every peer's memory at a fixed stride from the first rank's.
Status resolve_from_record(const Window& window, const CommInfo& info, PeerTable& table) {
  ncclWindow_vidmem record{};
  const cudaError_t error =
      cudaMemcpy(&record, window.window, sizeof(record), cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) return cuda_status(error, "read of the NCCL window");
  if (record.worldRank != info.rank || record.lsaFlatBase == nullptr || record.stride4G == 0) {
    return unsupported("NCCL window record",
                       fmt::format("rank {}, base {}, stride {}", record.worldRank,
                                   static_cast<void*>(record.lsaFlatBase), record.stride4G),
                       fmt::format("rank {}, a base and a stride", info.rank),
                       "this NCCL keeps its windows another way; use create_shared_region()");
  }
  for (int peer = 0; peer < info.num_ranks; ++peer) {
    const std::int64_t step = record.lsaRank + peer - record.worldRank;
    table.base[peer] = reinterpret_cast<std::byte*>(record.lsaFlatBase) +
                       step * (std::int64_t{record.stride4G} << 32);
  }
  return Status::ok();
}

Status resolve(const Window& window, const CommInfo& info, PeerTable& table) {
  const DeviceGuard guard(window.device);
  if (Status s = check_device_window(window); !s.is_ok()) return s;
  if (window.api->GetPeerDevicePointer == nullptr) {
    if (Status s = resolve_from_record(window, info, table); !s.is_ok()) return s;
  }
  for (int peer = 0; peer < info.num_ranks; ++peer) {
    if (window.api->GetPeerDevicePointer != nullptr) {
      void* pointer = nullptr;
      const ncclResult_t result =
          window.api->GetPeerDevicePointer(window.window, 0, peer, &pointer);
      if (result != ncclSuccess)
        return nccl_status(*window.api, result, "ncclGetPeerDevicePointer");
      table.base[peer] = static_cast<std::byte*>(pointer);
    }
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, table.base[peer]);
    if (error != cudaSuccess || attributes.type != cudaMemoryTypeDevice) {
      (void)cudaGetLastError();
      return unsupported(fmt::format("rank {}'s part of the NCCL window", peer),
                         fmt::format("{}, not mapped here", static_cast<void*>(table.base[peer])),
                         "device memory",
                         "all ranks must be in one load/store domain; the serial path runs "
                         "without it");
    }
  }
  return Status::ok();
}

}  // namespace

Result<CudaRegion> create_nccl_region(const RegionShape& shape, ncclComm* comm,
                                      const Exchange& exchange) {
  Result<const NcclApi*> api = nccl_api();
  if (!api.is_ok()) return api.status();
  Result<CommInfo> info = comm_info(*api.value(), comm);
  if (!info.is_ok()) return info.status();
  const int rank = info.value().rank;
  auto window = std::make_shared<Window>();
  window->api = api.value();
  window->comm = comm;
  window->device = info.value().device;

  const std::int64_t num_bytes = region_bytes(shape);
  Status status = check_version(*api.value(), info.value(), shape);
  if (status.is_ok()) status = allocate_zeroed(*window, num_bytes);
  // Registration is collective and has no deadline: nobody enters it unless all do.
  if (Status s = agree(exchange, rank, "nccl region: allocated", status); !s.is_ok()) return s;
  {
    const DeviceGuard guard(window->device);
    const ncclResult_t result =
        window->api->CommWindowRegister(comm, window->memory, static_cast<std::size_t>(num_bytes),
                                        &window->window, NCCL_WIN_COLL_SYMMETRIC);
    status = nccl_status(*window->api, result, "ncclCommWindowRegister");
  }
  PeerTable table{.shape = shape, .rank = rank};
  if (status.is_ok()) status = resolve(*window, info.value(), table);
  if (Status s = agree(exchange, rank, "nccl region: registered", status); !s.is_ok()) return s;
  const CudaRegion region(table, window->device, window);
  if (Status s = self_test(std::span(&region, 1), &exchange); !s.is_ok()) return s;
  return region;
}

}  // namespace slipstream
