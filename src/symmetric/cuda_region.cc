// The providers that need nothing but CUDA.
#include "symmetric/cuda_region.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "launch/fd_exchange.h"
#include "symmetric/cuda_memory.h"
#include "symmetric/cuda_self_test.h"
#include "symmetric/cuda_support.h"

namespace slipstream {

namespace {

Status check_shape(const RegionShape& shape) {
  if (shape.num_ranks >= 1 && shape.num_ranks <= kMaxRanks) return Status::ok();
  return invalid_argument(Subsystem::kSymmetric, {.what = "number of ranks",
                                                  .observed = fmt::format("{}", shape.num_ranks),
                                                  .expected = fmt::format("1..{}", kMaxRanks),
                                                  .hint = {}});
}

Result<int> num_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cuda_status(error, "number of GPUs");
  if (count == 0) return cuda_status(cudaErrorNoDevice, "number of GPUs");
  return count;
}

Status check_rank_and_device(const RegionShape& shape, int rank, int device) {
  if (Status s = check_shape(shape); !s.is_ok()) return s;
  if (rank < 0 || rank >= shape.num_ranks) {
    return invalid_argument(Subsystem::kSymmetric,
                            {.what = "rank",
                             .observed = fmt::format("{}", rank),
                             .expected = fmt::format("0..{}", shape.num_ranks - 1),
                             .hint = {}});
  }
  Result<int> count = num_devices();
  if (!count.is_ok()) return count.status();
  if (device >= 0 && device < count.value()) return Status::ok();
  return invalid_argument(Subsystem::kSymmetric,
                          {.what = fmt::format("device of rank {}", rank),
                           .observed = fmt::format("{}", device),
                           .expected = fmt::format("0..{}", count.value() - 1),
                           .hint = "ranks may share a device"});
}

// A region's mappings as one rank's process holds them: its own and the imported ones.
using Mappings = std::vector<CudaMemory>;

Result<UniqueFd> allocate_exportable(const RegionShape& shape, int rank, int device,
                                     Mappings& mappings) {
  if (Status s = check_rank_and_device(shape, rank, device); !s.is_ok()) return s;
  Result<CudaMemory> memory = CudaMemory::create(device, region_bytes(shape), {}, true);
  if (!memory.is_ok()) return memory.status();
  Result<UniqueFd> fd = memory.value().export_fd();
  mappings.push_back(std::move(memory).value());
  return fd;
}

Status import_peers(const RegionShape& shape, int rank, int device,
                    const std::vector<UniqueFd>& fds, Mappings& mappings, PeerTable& table) {
  table.base[rank] = mappings[0].data();
  for (int peer = 0; peer < shape.num_ranks; ++peer) {
    if (peer == rank) continue;
    Result<CudaMemory> memory = CudaMemory::import_fd(fds[peer].get(), region_bytes(shape), device);
    if (!memory.is_ok()) {
      StatusDetail detail = memory.status().detail();
      detail.what = fmt::format("region of rank {} on device {} ({})", peer, device, detail.what);
      detail.hint = "slipstream info shows which GPUs reach each other";
      return Status(memory.status().code(), Subsystem::kSymmetric, std::move(detail));
    }
    table.base[peer] = memory.value().data();
    mappings.push_back(std::move(memory).value());
  }
  return Status::ok();
}

Status check_adopted(const RegionShape& shape, std::span<std::byte* const> bases,
                     std::int64_t num_bytes) {
  const auto bad = [](std::string what, std::string observed, std::string expected) {
    return invalid_argument(Subsystem::kSymmetric, {.what = std::move(what),
                                                    .observed = std::move(observed),
                                                    .expected = std::move(expected),
                                                    .hint = {}});
  };
  if (static_cast<int>(bases.size()) != shape.num_ranks) {
    return bad("number of adopted pointers", fmt::format("{}", bases.size()),
               fmt::format("{}, the ranks", shape.num_ranks));
  }
  if (num_bytes < region_bytes(shape)) {
    return bad("size of the adopted memory", fmt::format("{} bytes", num_bytes),
               fmt::format("at least {}", region_bytes(shape)));
  }
  for (int peer = 0; peer < shape.num_ranks; ++peer) {
    const std::string what = fmt::format("adopted pointer of rank {}", peer);
    if (reinterpret_cast<std::uintptr_t>(bases[peer]) % kRegionAlignment != 0) {
      return bad(what, fmt::format("{}", static_cast<void*>(bases[peer])),
                 fmt::format("aligned to {} bytes", kRegionAlignment));
    }
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, bases[peer]);
    if (error != cudaSuccess || attributes.type != cudaMemoryTypeDevice) {
      (void)cudaGetLastError();
      return bad(what, fmt::format("{}", static_cast<void*>(bases[peer])), "device memory");
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<int>> spread_devices(int num_ranks) {
  Result<int> count = num_devices();
  if (!count.is_ok()) return count.status();
  std::vector<int> devices;
  for (int rank = 0; rank < num_ranks; ++rank) devices.push_back(rank % count.value());
  return devices;
}

Result<std::vector<CudaRegion>> create_vmm_regions(const RegionShape& shape,
                                                   std::span<const int> devices) {
  if (Status s = check_shape(shape); !s.is_ok()) return s;
  if (static_cast<int>(devices.size()) != shape.num_ranks) {
    return invalid_argument(Subsystem::kSymmetric,
                            {.what = "number of devices",
                             .observed = fmt::format("{}", devices.size()),
                             .expected = fmt::format("{}, one per rank", shape.num_ranks),
                             .hint = "ranks may share a device: name it again"});
  }
  for (int rank = 0; rank < shape.num_ranks; ++rank)
    if (Status s = check_rank_and_device(shape, rank, devices[rank]); !s.is_ok()) return s;
  auto mappings = std::make_shared<Mappings>();
  PeerTable table{.shape = shape};
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    Result<CudaMemory> memory = CudaMemory::create(devices[rank], region_bytes(shape), devices);
    if (!memory.is_ok()) return memory.status();
    table.base[rank] = memory.value().data();
    mappings->push_back(std::move(memory).value());
  }
  std::vector<CudaRegion> regions;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    table.rank = rank;
    regions.emplace_back(table, devices[rank], mappings);
  }
  if (Status s = self_test(regions, nullptr); !s.is_ok()) return s;
  return regions;
}

Result<CudaRegion> create_shared_region(const RegionShape& shape, int rank, int device,
                                        const Exchange& exchange,
                                        std::chrono::milliseconds timeout) {
  auto mappings = std::make_shared<Mappings>();
  Result<UniqueFd> fd = allocate_exportable(shape, rank, device, *mappings);
  if (Status s = agree(exchange, rank, "shared region: allocated", fd.status()); !s.is_ok())
    return s;
  Result<std::vector<UniqueFd>> fds =
      exchange_fds(exchange, rank, shape.num_ranks, fd.value().get(), timeout);
  if (!fds.is_ok()) return fds.status();
  PeerTable table{.shape = shape, .rank = rank};
  const Status imported = import_peers(shape, rank, device, fds.value(), *mappings, table);
  if (Status s = agree(exchange, rank, "shared region: mapped", imported); !s.is_ok()) return s;
  const CudaRegion region(table, device, mappings);
  if (Status s = self_test(std::span(&region, 1), &exchange); !s.is_ok()) return s;
  return region;
}

Result<CudaRegion> adopt_region(const RegionShape& shape, int rank, int device,
                                std::span<std::byte* const> bases, std::int64_t num_bytes,
                                const Exchange& exchange) {
  Status status = check_rank_and_device(shape, rank, device);
  if (status.is_ok()) status = check_adopted(shape, bases, num_bytes);
  if (Status s = agree(exchange, rank, "adopted region", status); !s.is_ok()) return s;
  PeerTable table{.shape = shape, .rank = rank};
  for (int peer = 0; peer < shape.num_ranks; ++peer) table.base[peer] = bases[peer];
  const CudaRegion region(table, device, nullptr);
  if (Status s = self_test(std::span(&region, 1), &exchange); !s.is_ok()) return s;
  return region;
}

}  // namespace slipstream
