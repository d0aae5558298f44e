// Kernels of the link probe: few blocks, one thread issuing 8 KB bulk copies from a ring of slots
// in shared memory, as the fused kernels move data; and a signal that goes there and back.
//
//   push:  shared memory of `from` -> memory of `to`
//   pull:  memory of `to` -> shared memory of `from`
//   fetch: memory of `to` -> shared memory -> memory of `from`
#include "symmetric/cuda_bulk_copy.cuh"
#include "symmetric/cuda_probe_kernels.h"

namespace slipstream {

namespace {

using protocol::SlotSignal;
using protocol::Tag;

// Stores whose source is still being read before a slot is taken again.
constexpr int kPendingStores = 4;

// A block's way through its pieces (blockIdx.x, blockIdx.x + gridDim.x, ...) and through the ring
// of slots. Steps, no divisions: a 64-bit remainder per piece costs more than the piece.
struct Cursor {
  std::int64_t offset = std::int64_t{blockIdx.x} * kProbePieceBytes;  // of the piece
  int slot = 0;
  std::uint32_t parity = 0;  // of the slot's barrier

  __device__ void step(int num_slots) {
    offset += std::int64_t{gridDim.x} * kProbePieceBytes;
    if (++slot < num_slots) return;
    slot = 0;
    parity ^= 1;
  }
};

struct Ring {
  std::byte* slots;         // [num_slots, kProbePieceBytes] of shared memory
  std::uint64_t* barriers;  // [num_slots]

  __device__ std::byte* at(const Cursor& cursor) const {
    return slots + cursor.slot * kProbePieceBytes;
  }
};

__device__ Ring shared_ring() {
  extern __shared__ __align__(1024) std::byte shared[];
  __shared__ std::uint64_t barriers[kMaxProbeSlots];
  return Ring{shared, barriers};
}

__global__ void push_pieces(ProbeCopy copy) {
  const Ring ring = shared_ring();
  if (threadIdx.x != 0) return;
  Cursor next;
  for (std::int64_t i = 0; i < copy.pieces_per_block; ++i, next.step(copy.num_slots))
    bulk::store(copy.target + next.offset, ring.at(next), kProbePieceBytes);
  bulk::drain();
}

template <bool kStores>
__global__ void pull_pieces(ProbeCopy copy) {
  const Ring ring = shared_ring();
  if (threadIdx.x != 0) return;
  for (int slot = 0; slot < copy.num_slots; ++slot) bulk::init_barrier(&ring.barriers[slot]);
  Cursor to_load;
  std::int64_t num_loaded = 0;
  const auto load_next = [&] {
    if (num_loaded == copy.pieces_per_block) return;
    bulk::load(ring.at(to_load), copy.source + to_load.offset, kProbePieceBytes,
               &ring.barriers[to_load.slot]);
    to_load.step(copy.num_slots);
    ++num_loaded;
  };
  for (int slot = 0; slot < copy.num_slots; ++slot) load_next();
  Cursor arrived;
  for (std::int64_t i = 0; i < copy.pieces_per_block; ++i, arrived.step(copy.num_slots)) {
    if (!bulk::wait(&ring.barriers[arrived.slot], arrived.parity)) return;
    if (kStores) {
      bulk::store(copy.target + arrived.offset, ring.at(arrived), kProbePieceBytes);
      bulk::drain_reads<kPendingStores>();
      if (i < kPendingStores) continue;  // the next slot to load is still being read
    }
    load_next();
  }
  bulk::drain();
}

// One thread on each side. The first `num_warm` rounds are not timed.
__global__ void ping_pong(PingPong game) {
  std::uint64_t begin = protocol::clock_ns();
  for (std::uint32_t round = 1; round <= game.num_rounds; ++round) {
    const Tag tag{1, round};
    if (game.is_first) game.theirs->publish(tag);
    std::uint64_t last = 0;
    const auto observe = [&game, tag] {
      const Tag seen = game.mine->observe();
      return protocol::Observation{seen.reaches(tag), seen.packed()};
    };
    if (protocol::spin_until(
            observe, [] { return false; }, bulk::kWaitLimitNs, last) !=
        protocol::SpinResult::kReady) {
      *game.nanoseconds = kSignalLost;
      return;
    }
    if (!game.is_first) game.theirs->publish(tag);
    if (round == game.num_warm) begin = protocol::clock_ns();
  }
  *game.nanoseconds = protocol::clock_ns() - begin;
}

std::size_t ring_bytes(int num_slots) {
  return static_cast<std::size_t>(num_slots) * kProbePieceBytes;
}

// cudaLaunchKernelEx says what was wrong with this launch; cudaGetLastError() would also say what
// went wrong in anybody's call before.
template <class Params>
cudaError_t launch(void (*kernel)(Params), const Params& params, int num_blocks, int num_threads,
                   std::size_t shared_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = num_blocks;
  config.blockDim = num_threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, params);
}

cudaError_t launch_copy(void (*kernel)(ProbeCopy), const ProbeCopy& copy, cudaStream_t stream) {
  return launch(kernel, copy, copy.num_blocks, 32, ring_bytes(copy.num_slots), stream);
}

}  // namespace

cudaError_t allow_probe_slots(int num_slots) {
  const auto bytes = static_cast<int>(ring_bytes(num_slots));
  for (auto* kernel : {push_pieces, pull_pieces<false>, pull_pieces<true>}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_push(const ProbeCopy& copy, cudaStream_t stream) {
  return launch_copy(push_pieces, copy, stream);
}

cudaError_t launch_pull(const ProbeCopy& copy, cudaStream_t stream) {
  return launch_copy(pull_pieces<false>, copy, stream);
}

cudaError_t launch_fetch(const ProbeCopy& copy, cudaStream_t stream) {
  return launch_copy(pull_pieces<true>, copy, stream);
}

cudaError_t launch_ping_pong(const PingPong& game, cudaStream_t stream) {
  return launch(ping_pong, game, 1, 1, 0, stream);
}

}  // namespace slipstream
