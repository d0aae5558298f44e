// Devices and the peer matrix, as the runtime describes them.
#include "symmetric/cuda_topology.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "slipstream/config.h"
#include "symmetric/cuda_memory.h"
#include "symmetric/cuda_region.h"
#include "symmetric/cuda_support.h"

namespace slipstream {

namespace {

Result<CudaDeviceInfo> query_device(int device) {
  const DeviceGuard guard(device);
  if (!guard.status().is_ok()) return guard.status();
  cudaDeviceProp prop{};
  cudaError_t error = cudaGetDeviceProperties(&prop, device);
  if (error != cudaSuccess) return cuda_status(error, "cudaGetDeviceProperties");
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (error != cudaSuccess) return cuda_status(error, "cudaMemGetInfo");
  char bus_id[32] = {};
  error = cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device);
  if (error != cudaSuccess) return cuda_status(error, "cudaDeviceGetPCIBusId");
  CudaDeviceInfo info;
  info.device = device;
  info.name = prop.name;
  info.compute_major = prop.major;
  info.compute_minor = prop.minor;
  info.num_sms = prop.multiProcessorCount;
  info.total_bytes = static_cast<std::int64_t>(total_bytes);
  info.free_bytes = static_cast<std::int64_t>(free_bytes);
  info.l2_bytes = prop.l2CacheSize;
  info.pci_bus_id = bus_id;
  info.has_virtual_memory = CudaMemory::is_supported(device, false).is_ok();
  info.has_exportable_memory = CudaMemory::is_supported(device, true).is_ok();
  return info;
}

Result<PeerLink> query_link(int from, int to) {
  if (from == to) return PeerLink{true, true, 0};
  int can_access = 0;
  int atomics = 0;
  int rank = -1;
  cudaError_t error = cudaDeviceCanAccessPeer(&can_access, from, to);
  if (error == cudaSuccess && can_access != 0) {
    error = cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to);
    if (error == cudaSuccess)
      error = cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, from, to);
  }
  if (error != cudaSuccess)
    return cuda_status(error, fmt::format("peer attributes of devices {} and {}", from, to));
  return PeerLink{can_access != 0, atomics != 0, rank};
}

}  // namespace

Result<CudaTopology> query_cuda_topology() {
  CudaTopology topology;
  int num_devices = 0;
  cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error == cudaSuccess && num_devices == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) return cuda_status(error, "number of GPUs");
  error = cudaDriverGetVersion(&topology.driver_version);
  if (error == cudaSuccess) error = cudaRuntimeGetVersion(&topology.runtime_version);
  if (error != cudaSuccess) return cuda_status(error, "CUDA versions");
  for (int from = 0; from < num_devices; ++from) {
    Result<CudaDeviceInfo> info = query_device(from);
    if (!info.is_ok()) return info.status();
    topology.devices.push_back(std::move(info).value());
    auto& row = topology.links.emplace_back();
    for (int to = 0; to < num_devices; ++to) {
      Result<PeerLink> link = query_link(from, to);
      if (!link.is_ok()) return link.status();
      row.push_back(link.value());
    }
  }
  return topology;
}

Status self_test_devices(std::int64_t bytes_per_rank) {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess) return cuda_status(error, "number of GPUs");
  const int num_ranks = std::min(num_devices, kMaxRanks);
  Result<std::vector<int>> devices = spread_devices(num_ranks);
  if (!devices.is_ok()) return devices.status();
  // Creating regions tests them. One token of that size makes a region at least as large.
  RegionShape shape{.num_ranks = num_ranks, .topk = 1, .max_tokens = 1};
  shape.token_row_bytes = bytes_per_rank;
  return create_vmm_regions(shape, devices.value()).status();
}

}  // namespace slipstream
