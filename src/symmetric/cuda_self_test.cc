// The phases of the self-test. Kernels: cuda_self_test_kernels.cu.
#include "symmetric/cuda_self_test.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "symmetric/cuda_self_test_kernels.h"
#include "symmetric/cuda_support.h"

namespace slipstream {

namespace {

constexpr TransferMethod kMethods[] = {TransferMethod::kStoreLoad, TransferMethod::kBulkCopy};

// Which words rank `writer` writes into rank `owner`'s region, as `region`'s rank maps it. Shares
// move by one owner, so that a rank's shares are not all at the same offset.
Share share_of(const CudaRegion& region, int writer, int owner, TransferMethod method) {
  const std::int64_t num_ranks = region.num_ranks();
  const std::int64_t granules = region.bytes() / kRegionAlignment;
  const std::int64_t idx = (writer + owner) % num_ranks;
  Share share;
  share.base = region.table().base[owner];
  share.begin = granules * idx / num_ranks * kRegionAlignment;
  share.end = granules * (idx + 1) / num_ranks * kRegionAlignment;
  share.seed =
      0x51a5eed5U + static_cast<std::uint32_t>(
                        ((writer * kMaxRanks + owner) * 2 + static_cast<int>(method)) * 0x27d4eb2f);
  return share;
}

struct Mismatch {
  int writer;
  int owner;
  bool by_owner;  // the owner found it; else the writer, reading back
};

Status describe(const Mismatch& at, const Share& share, TransferMethod method,
                unsigned long long first) {
  const char* way = method == TransferMethod::kStoreLoad ? "by stores" : "by bulk copies";
  StatusDetail detail;
  detail.what = at.by_owner
                    ? fmt::format("self-test: what rank {} wrote {} into rank {}'s region",
                                  at.writer, way, at.owner)
                    : fmt::format("self-test: what rank {} read back {} from rank {}'s region",
                                  at.writer, way, at.owner);
  detail.hint =
      "peer-to-peer between these GPUs corrupts data: check IOMMU and ACS settings, or "
      "use the serial path";
  if (first == kNothingCame) {
    detail.observed = "nothing within two seconds";
    detail.expected = "the pattern";
  } else {
    const std::int64_t word_idx = share.begin / kWordBytes + static_cast<std::int64_t>(first >> 32);
    detail.what += fmt::format(", offset {}", word_idx * kWordBytes);
    detail.observed = fmt::format("{:#010x}", static_cast<std::uint32_t>(first));
    detail.expected = fmt::format("{:#010x}", pattern(share.seed, word_idx));
  }
  return Status(StatusCode::kBackendError, Subsystem::kSymmetric, std::move(detail));
}

// A device word that gathers mismatches of one rank.
class MismatchWord {
 public:
  static Result<MismatchWord> create() {
    void* word = nullptr;
    const cudaError_t error = cudaMalloc(&word, sizeof(unsigned long long));
    if (error != cudaSuccess) return cuda_status(error, "cudaMalloc");
    return MismatchWord(static_cast<unsigned long long*>(word));
  }
  MismatchWord(MismatchWord&& other) noexcept : word_(other.word_) { other.word_ = nullptr; }
  ~MismatchWord() { (void)cudaFree(word_); }

  Status clear(const CudaStream& stream) const {
    return cuda_status(cudaMemsetAsync(word_, 0xff, sizeof(*word_), stream.get()), "cudaMemset");
  }
  Result<unsigned long long> read(const CudaStream& stream) const {
    unsigned long long value = kNoMismatch;
    const cudaError_t error =
        cudaMemcpyAsync(&value, word_, sizeof(value), cudaMemcpyDeviceToHost, stream.get());
    if (error != cudaSuccess) return cuda_status(error, "cudaMemcpy");
    if (Status s = stream.synchronize("self-test check"); !s.is_ok()) return s;
    return value;
  }
  unsigned long long* get() const { return word_; }

 private:
  explicit MismatchWord(unsigned long long* word) : word_(word) {}
  unsigned long long* word_;
};

Status write_all(const CudaRegion& region, TransferMethod method) {
  const DeviceGuard guard(region.device());
  if (!guard.status().is_ok()) return guard.status();
  Result<CudaStream> stream = CudaStream::create();
  if (!stream.is_ok()) return stream.status();
  for (int owner = 0; owner < region.num_ranks(); ++owner) {
    const Share share = share_of(region, region.rank(), owner, method);
    const cudaError_t error = method == TransferMethod::kStoreLoad
                                  ? launch_store_pattern(share, stream.value().get())
                                  : launch_bulk_store_pattern(share, stream.value().get());
    if (error != cudaSuccess) return cuda_status(error, "launch of the self-test");
  }
  return stream.value().synchronize("self-test write");
}

Status check_one(const CudaRegion& region, const Mismatch& at, TransferMethod method,
                 const CudaStream& stream, const MismatchWord& word) {
  const Share share = share_of(region, at.writer, at.owner, method);
  if (Status s = word.clear(stream); !s.is_ok()) return s;
  const cudaError_t error = method == TransferMethod::kStoreLoad
                                ? launch_load_and_check(share, word.get(), stream.get())
                                : launch_bulk_load_and_check(share, word.get(), stream.get());
  if (error != cudaSuccess) return cuda_status(error, "launch of the self-test");
  Result<unsigned long long> first = word.read(stream);
  if (!first.is_ok()) return first.status();
  return first.value() == kNoMismatch ? Status::ok() : describe(at, share, method, first.value());
}

Status check_all(const CudaRegion& region, TransferMethod method) {
  const DeviceGuard guard(region.device());
  if (!guard.status().is_ok()) return guard.status();
  Result<CudaStream> stream = CudaStream::create();
  if (!stream.is_ok()) return stream.status();
  Result<MismatchWord> word = MismatchWord::create();
  if (!word.is_ok()) return word.status();
  const int me = region.rank();
  for (int peer = 0; peer < region.num_ranks(); ++peer) {
    const Mismatch received{peer, me, true};
    Status s = check_one(region, received, method, stream.value(), word.value());
    if (!s.is_ok()) return s;
  }
  for (int peer = 0; peer < region.num_ranks(); ++peer) {
    const Mismatch read_back{me, peer, false};
    Status s = check_one(region, read_back, method, stream.value(), word.value());
    if (!s.is_ok()) return s;
  }
  return Status::ok();
}

Status zero_own(const CudaRegion& region) {
  const DeviceGuard guard(region.device());
  if (!guard.status().is_ok()) return guard.status();
  Result<CudaStream> stream = CudaStream::create();
  if (!stream.is_ok()) return stream.status();
  const cudaError_t error = cudaMemsetAsync(
      region.own(), 0, static_cast<std::size_t>(region.bytes()), stream.value().get());
  if (error != cudaSuccess) return cuda_status(error, "cudaMemsetAsync");
  return stream.value().synchronize("zeroing symmetric memory");
}

// Runs one phase for the ranks at hand and waits for all others': a rank that failed still comes,
// and every rank leaves with an error.
template <class Step>
Status run_phase(std::span<const CudaRegion> regions, const Exchange* exchange, const char* tag,
                 const Step& step) {
  Status status;
  for (const CudaRegion& region : regions)
    if (status.is_ok()) status = step(region);
  if (exchange == nullptr) return status;
  return agree(*exchange, regions[0].rank(), tag, status);
}

}  // namespace

Status self_test(std::span<const CudaRegion> regions, const Exchange* exchange) {
  for (const TransferMethod method : kMethods) {
    const bool is_bulk = method == TransferMethod::kBulkCopy;
    Status status =
        run_phase(regions, exchange, is_bulk ? "self-test: bulk copied" : "self-test: stored",
                  [method](const CudaRegion& region) { return write_all(region, method); });
    if (!status.is_ok()) return status;
    status = run_phase(regions, exchange,
                       is_bulk ? "self-test: bulk copies checked" : "self-test: stores checked",
                       [method](const CudaRegion& region) { return check_all(region, method); });
    if (!status.is_ok()) return status;
  }
  return run_phase(regions, exchange, "self-test: zeroed", zero_own);
}

}  // namespace slipstream
