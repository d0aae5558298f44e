// Communicators from an exchange, and the other way round.
#include "symmetric/nccl_comm.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "symmetric/cuda_support.h"
#include "symmetric/nccl_api.h"

namespace slipstream {

namespace {

constexpr std::uint64_t kMaxMessageBytes = 1 << 20;

// Every rank's GPU must be another one. NCCL refuses it, too, but only after it has started.
Status check_distinct(const std::vector<std::string>& gpus) {
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (gpus[a] != gpus[b]) continue;
      return Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                    {.what = fmt::format("GPU {}", gpus[a]),
                     .observed = fmt::format("shared by ranks {} and {}", b, a),
                     .expected = "one rank per GPU under NCCL",
                     .hint = "use create_shared_region(), or the threads launcher"});
    }
  }
  return Status::ok();
}

class ExchangeOverNccl {
 public:
  ExchangeOverNccl(const NcclApi* api, ncclComm* comm, int num_ranks, int device)
      : api_(api), comm_(comm), num_ranks_(static_cast<std::size_t>(num_ranks)), device_(device) {}

  // One round of fixed size tells the lengths, a second one carries everybody's, padded to the
  // longest. Tags are not compared: ranks that call with different ones get each other's bytes.
  Result<std::vector<std::string>> operator()(std::string_view, std::string_view bytes) const {
    const DeviceGuard guard(device_);
    if (!guard.status().is_ok()) return guard.status();
    const std::uint64_t num_bytes = bytes.size();
    std::string all;
    const std::string mine(reinterpret_cast<const char*>(&num_bytes), sizeof(num_bytes));
    if (Status s = gather(mine, all); !s.is_ok()) return s;
    std::vector<std::uint64_t> sizes(num_ranks_);
    std::memcpy(sizes.data(), all.data(), all.size());
    const std::uint64_t longest = std::max<std::uint64_t>(1, *std::ranges::max_element(sizes));
    if (longest > kMaxMessageBytes) {
      return invalid_argument(Subsystem::kSymmetric,
                              {.what = "exchange over NCCL",
                               .observed = fmt::format("{} bytes", longest),
                               .expected = fmt::format("at most {} a rank", kMaxMessageBytes),
                               .hint = "send handles, not data"});
    }
    std::string padded(bytes);
    padded.resize(longest);
    if (Status s = gather(padded, all); !s.is_ok()) return s;
    std::vector<std::string> parts;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank)
      parts.push_back(all.substr(rank * longest, sizes[rank]));
    return parts;
  }

 private:
  Status gather(const std::string& mine, std::string& all) const {
    Result<CudaStream> stream = CudaStream::create();
    if (!stream.is_ok()) return stream.status();
    void* memory = nullptr;
    const std::size_t size = mine.size();
    cudaError_t error = cudaMalloc(&memory, size * (num_ranks_ + 1));
    if (error != cudaSuccess) return cuda_status(error, "cudaMalloc");
    const std::shared_ptr<void> owner(memory, [](void* p) { (void)cudaFree(p); });
    auto* buffer = static_cast<std::byte*>(memory);
    const cudaStream_t raw = stream.value().get();
    error = cudaMemcpyAsync(buffer, mine.data(), size, cudaMemcpyHostToDevice, raw);
    if (error != cudaSuccess) return cuda_status(error, "cudaMemcpy");
    const ncclResult_t result = api_->AllGather(buffer, buffer + size, size, ncclUint8, comm_, raw);
    if (result != ncclSuccess) return nccl_status(*api_, result, "ncclAllGather");
    all.resize(size * num_ranks_);
    error = cudaMemcpyAsync(all.data(), buffer + size, all.size(), cudaMemcpyDeviceToHost, raw);
    if (error != cudaSuccess) return cuda_status(error, "cudaMemcpy");
    return stream.value().synchronize("exchange over NCCL");
  }

  const NcclApi* api_;
  ncclComm* comm_;
  std::size_t num_ranks_;
  int device_;
};

}  // namespace

Result<NcclInfo> nccl_info() {
  Result<const NcclApi*> api = nccl_api();
  if (!api.is_ok()) return api.status();
  return NcclInfo{api.value()->version, api.value()->path};
}

Result<NcclComm> NcclComm::create(const Exchange& exchange, int rank, int num_ranks, int device) {
  Result<const NcclApi*> api = nccl_api();
  Status status = api.status();
  ncclUniqueId id{};
  char bus_id[32] = {};
  if (status.is_ok())
    status = cuda_status(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device), "PCI bus id");
  if (status.is_ok() && rank == 0)
    status = nccl_status(*api.value(), api.value()->GetUniqueId(&id), "ncclGetUniqueId");
  if (Status s = agree(exchange, rank, "nccl: ready", status); !s.is_ok()) return s;

  Result<std::vector<std::string>> gpus = exchange("nccl: GPUs", bus_id);
  if (!gpus.is_ok()) return gpus.status();
  if (Status s = check_distinct(gpus.value()); !s.is_ok()) return s;
  const std::string_view mine(reinterpret_cast<const char*>(&id), sizeof(id));
  Result<std::vector<std::string>> ids = exchange("nccl: unique id", mine);
  if (!ids.is_ok()) return ids.status();
  std::memcpy(&id, ids.value()[0].data(), sizeof(id));

  const DeviceGuard guard(device);
  ncclComm* comm = nullptr;
  const ncclResult_t result = api.value()->CommInitRank(&comm, num_ranks, id, rank);
  if (result != ncclSuccess) return nccl_status(*api.value(), result, "ncclCommInitRank");
  const NcclApi* functions = api.value();
  return NcclComm(std::shared_ptr<ncclComm>(
      comm, [functions](ncclComm* last) { (void)functions->CommDestroy(last); }));
}

Result<Exchange> nccl_exchange(ncclComm* comm) {
  Result<const NcclApi*> api = nccl_api();
  if (!api.is_ok()) return api.status();
  int num_ranks = 0;
  int device = 0;
  ncclResult_t result = api.value()->CommCount(comm, &num_ranks);
  if (result == ncclSuccess) result = api.value()->CommCuDevice(comm, &device);
  if (result != ncclSuccess)
    return nccl_status(*api.value(), result, "query of the NCCL communicator");
  return Exchange(ExchangeOverNccl(api.value(), comm, num_ranks, device));
}

}  // namespace slipstream
