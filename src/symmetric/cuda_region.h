// CudaRegion: one rank's end of symmetric memory on GPUs, from any provider:
//
//   create_vmm_regions   one process, a thread per rank; several ranks may share one GPU
//   create_shared_region a process per rank, memory handed over as file descriptors; may share GPUs
//   create_nccl_region   a process (or thread) per GPU over an NCCL communicator (nccl_region.h)
//   adopt_region         pointers that somebody else made symmetric, e.g. torch
//
// All of them: zeroed before any pointer is given away, tested over every pair of ranks
// (cuda_self_test.h), zeroed again. Kernels get table() by value. host_region.h is for threads
// without a GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "launch/exchange.h"
#include "slipstream/status.h"
#include "symmetric/region_layout.h"

namespace slipstream {

// Copyable handle. The last copy of all ranks of the process frees the memory: no kernel that uses
// it may run then, nor on any peer.
class CudaRegion {
 public:
  // `owner` keeps the memory alive; null when the caller does.
  CudaRegion(const PeerTable& table, int device, std::shared_ptr<void> owner)
      : table_(table), device_(device), owner_(std::move(owner)) {}

  const PeerTable& table() const { return table_; }
  int rank() const { return table_.rank; }
  int num_ranks() const { return table_.shape.num_ranks; }
  int device() const { return device_; }  // CUDA ordinal in this process
  std::byte* own() const { return table_.base[table_.rank]; }
  std::int64_t bytes() const { return region_bytes(table_.shape); }

 private:
  PeerTable table_;
  int device_;
  std::shared_ptr<void> owner_;
};

// All ranks' regions, [W] by rank, made by one call of one thread. devices[r] is rank r's; ranks
// may share one. Errors: kInvalidArgument (number of devices, no such device), kOutOfMemory,
// kUnsupported (two devices cannot reach each other), kBackendError (self-test: names the pair).
Result<std::vector<CudaRegion>> create_vmm_regions(const RegionShape& shape,
                                                   std::span<const int> devices);

// Ranks dealt out over the GPUs of this machine: rank r on device r modulo their number. Errors:
// kUnsupported without a GPU.
Result<std::vector<int>> spread_devices(int num_ranks);

// Collective over processes of one host. Errors: as above, and those of the exchange; every rank
// returns an error if one has one.
Result<CudaRegion> create_shared_region(const RegionShape& shape, int rank, int device,
                                        const Exchange& exchange,
                                        std::chrono::milliseconds timeout);

// bases[q] is rank q's region as this rank maps it, [W]; all zero, region_bytes(shape) or more
// mapped (num_bytes says how many), aligned to kRegionAlignment. The caller keeps the memory.
// Collective: the self-test needs every rank. Errors: kInvalidArgument (number, alignment, size,
// no device memory), and those of the exchange and the self-test.
Result<CudaRegion> adopt_region(const RegionShape& shape, int rank, int device,
                                std::span<std::byte* const> bases, std::int64_t num_bytes,
                                const Exchange& exchange);

}  // namespace slipstream
