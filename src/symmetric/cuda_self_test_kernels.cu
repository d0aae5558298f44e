// Kernels of the self-test: write a pattern, check it, by plain accesses and by bulk copies. The
// phases are in cuda_self_test.cc.
#include "symmetric/cuda_bulk_copy.cuh"
#include "symmetric/cuda_self_test_kernels.h"

namespace slipstream {

namespace {

constexpr int kNumThreads = 256;
constexpr int kNumBlocks = 64;
constexpr int kPieceBytes = 16384;

__device__ void check_word(const Share& share, std::int64_t word_idx, std::uint32_t seen,
                           unsigned long long* first) {
  if (seen == pattern(share.seed, word_idx)) return;
  const std::int64_t idx_in_share = word_idx - share.begin / kWordBytes;
  atomicMin(first, static_cast<unsigned long long>(idx_in_share) << 32 | seen);
}

__global__ void store_pattern(Share share) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t end = share.end / kWordBytes;
  auto* words = reinterpret_cast<std::uint32_t*>(share.base);
  for (std::int64_t i = share.begin / kWordBytes + blockIdx.x * blockDim.x + threadIdx.x; i < end;
       i += step)
    words[i] = pattern(share.seed, i);
}

__global__ void load_and_check(Share share, unsigned long long* first) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t end = share.end / kWordBytes;
  const auto* words = reinterpret_cast<const std::uint32_t*>(share.base);
  for (std::int64_t i = share.begin / kWordBytes + blockIdx.x * blockDim.x + threadIdx.x; i < end;
       i += step)
    check_word(share, i, words[i], first);
}

__device__ std::uint32_t piece_bytes(const Share& share, std::int64_t begin) {
  const std::int64_t left = share.end - begin;
  return static_cast<std::uint32_t>(left < kPieceBytes ? left : kPieceBytes);
}

__global__ void bulk_store_pattern(Share share) {
  __shared__ alignas(128) std::uint32_t piece[kPieceBytes / kWordBytes];
  for (std::int64_t begin = share.begin + std::int64_t{blockIdx.x} * kPieceBytes; begin < share.end;
       begin += std::int64_t{gridDim.x} * kPieceBytes) {
    const std::uint32_t num_bytes = piece_bytes(share, begin);
    for (std::uint32_t i = threadIdx.x; i < num_bytes / kWordBytes; i += blockDim.x)
      piece[i] = pattern(share.seed, begin / kWordBytes + i);
    bulk::publish_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      bulk::store(share.base + begin, piece, num_bytes);
      bulk::drain();
    }
    __syncthreads();
  }
}

__global__ void bulk_load_and_check(Share share, unsigned long long* first) {
  __shared__ alignas(128) std::uint32_t piece[kPieceBytes / kWordBytes];
  __shared__ alignas(8) std::uint64_t barrier;
  if (threadIdx.x == 0) bulk::init_barrier(&barrier);
  __syncthreads();
  std::uint32_t parity = 0;
  for (std::int64_t begin = share.begin + std::int64_t{blockIdx.x} * kPieceBytes; begin < share.end;
       begin += std::int64_t{gridDim.x} * kPieceBytes) {
    const std::uint32_t num_bytes = piece_bytes(share, begin);
    if (threadIdx.x == 0) bulk::load(piece, share.base + begin, num_bytes, &barrier);
    const bool came = bulk::wait(&barrier, parity);
    parity ^= 1;
    if (__syncthreads_or(!came)) {
      if (threadIdx.x == 0) atomicMin(first, kNothingCame);
      return;
    }
    for (std::uint32_t i = threadIdx.x; i < num_bytes / kWordBytes; i += blockDim.x)
      check_word(share, begin / kWordBytes + i, piece[i], first);
    __syncthreads();
  }
}

// cudaLaunchKernelEx says what was wrong with this launch; cudaGetLastError() would also say what
// went wrong in anybody's call before.
template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), cudaStream_t stream, Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = kNumBlocks;
  config.blockDim = kNumThreads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace

cudaError_t launch_store_pattern(const Share& share, cudaStream_t stream) {
  return launch(store_pattern, stream, share);
}
cudaError_t launch_bulk_store_pattern(const Share& share, cudaStream_t stream) {
  return launch(bulk_store_pattern, stream, share);
}
cudaError_t launch_load_and_check(const Share& share, unsigned long long* first,
                                  cudaStream_t stream) {
  return launch(load_and_check, stream, share, first);
}
cudaError_t launch_bulk_load_and_check(const Share& share, unsigned long long* first,
                                       cudaStream_t stream) {
  return launch(bulk_load_and_check, stream, share, first);
}

}  // namespace slipstream
