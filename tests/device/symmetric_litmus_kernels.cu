// The kernel of the litmus test: writers, readers and loaders, by block index, since all blocks
// fit.
#include "symmetric/cuda_bulk_copy.cuh"
#include "symmetric_litmus_kernels.h"

namespace slipstream::testing {

namespace {

using protocol::SlotSignal;
using protocol::SpinResult;
using protocol::Tag;

constexpr int kNumThreads = 128;
constexpr int kWordsPerPiece = kPieceBytes / 4;
constexpr int kWordsPerMessage = kMessageBytes / 4;

__device__ std::uint32_t message_word(std::uint32_t seed, std::uint32_t round, std::uint32_t idx) {
  std::uint32_t x = round * 0x9e3779b1U ^ idx * 0x85ebca6bU ^ seed;
  x = (x ^ (x >> 15)) * 0x2c1b3c6dU;
  return x ^ (x >> 12);
}

// Writers and readers are late now and then, each in its own rounds, so that many interleavings
// come up.
__device__ void dawdle(std::uint32_t round, std::uint32_t who) {
  const std::uint32_t dice = message_word(0x1f123bb5U, round, who);
  if (dice % 8 == 0) __nanosleep(dice >> 20);  // up to 4 us
}

__device__ bool has_failed(const LitmusState* state) {
  return *static_cast<const volatile unsigned int*>(&state->num_failed_waits) != 0;
}

// Each caller waits itself, and thereby acquires. False: give up.
__device__ bool wait_for(const SlotSignal& signal, std::uint32_t round, LitmusState* state) {
  const Tag tag{1, round};
  std::uint64_t last = 0;
  const auto observe = [&signal, tag] {
    const Tag seen = signal.observe();
    return protocol::Observation{seen.reaches(tag), seen.packed()};
  };
  const SpinResult result = protocol::spin_until(
      observe, [state] { return has_failed(state); }, kLitmusWaitNs, last);
  if (result == SpinResult::kTimeout) atomicAdd(&state->num_failed_waits, 1U);
  return result == SpinResult::kReady;
}

__device__ void send_piece(const LitmusParams& p, std::uint32_t round, int writer,
                           const std::uint32_t* piece) {
  const std::uint32_t slot = round % kNumSlots;
  const auto store = [&] {
    dawdle(round, writer);
    bulk::store(p.theirs->inbox[slot] + writer * kPieceBytes, piece, kPieceBytes);
    bulk::drain();
  };
  if (p.fault != LitmusFault::kArriveBeforeData) store();
  const bool is_last = p.state->written[slot].arrive(kNumWriters);
  // Nobody arrives again before this message has been signalled, read and acknowledged.
  if (is_last) p.state->written[slot].relaxed_seed();
  if (p.fault == LitmusFault::kOneWriterSignals ? writer == 0 : is_last)
    p.theirs->sent.publish(Tag{1, round});
  if (p.fault == LitmusFault::kArriveBeforeData) store();
}

__device__ void write_messages(const LitmusParams& p, int writer) {
  __shared__ alignas(128) std::uint32_t piece[kWordsPerPiece];
  __shared__ bool goes_on;
  for (std::uint32_t round = 1; round <= p.num_rounds; ++round) {
    for (int i = threadIdx.x; i < kWordsPerPiece; i += blockDim.x)
      piece[i] = message_word(p.seed_mine, round, writer * kWordsPerPiece + i);
    bulk::publish_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      // The slot's last message must have been read.
      goes_on = round <= kNumSlots || wait_for(p.mine->read, round - kNumSlots, p.state);
      if (goes_on) send_piece(p, round, writer, piece);
    }
    __syncthreads();
    if (!goes_on) return;
  }
}

__device__ void check_words(const LitmusParams& p, std::uint32_t round, int begin,
                            const std::uint32_t* words) {
  for (int i = threadIdx.x; i < kWordsPerMessage / kNumReaders; i += blockDim.x) {
    const std::uint32_t idx = begin + i;
    if (words[i] == message_word(p.seed_theirs, round, idx)) continue;
    atomicAdd(&p.state->num_stale_words, 1ULL);
    atomicMin(&p.state->first_stale, static_cast<unsigned long long>(round) << 32 | idx);
  }
}

// Odd rounds are read by plain loads, even ones by a bulk copy, as kernels read rows by TMA.
__device__ void read_messages(const LitmusParams& p, int reader) {
  constexpr int kMyBytes = kMessageBytes / kNumReaders;
  __shared__ alignas(128) std::uint32_t copy[kMyBytes / 4];
  __shared__ alignas(8) std::uint64_t barrier;
  __shared__ bool goes_on;
  if (threadIdx.x == 0) bulk::init_barrier(&barrier);
  std::uint32_t parity = 0;
  for (std::uint32_t round = 1; round <= p.num_rounds; ++round) {
    const std::byte* mine = p.mine->inbox[round % kNumSlots] + reader * kMyBytes;
    const bool takes_older = p.fault == LitmusFault::kReadersAskForRoundBefore && round > 1;
    if (threadIdx.x == 0) {
      goes_on = wait_for(p.mine->sent, takes_older ? round - 1 : round, p.state);
      if (goes_on && round % 2 == 0) {
        // What the signal made visible to this thread, the copy engine must see, too.
        bulk::ptx::fence_proxy_async();
        bulk::load(copy, mine, kMyBytes, &barrier);
        goes_on = bulk::wait(&barrier, parity);
        parity ^= 1;
      }
    }
    __syncthreads();
    if (!goes_on) return;
    dawdle(round, kNumWriters + reader);
    const auto* words = reinterpret_cast<const std::uint32_t*>(mine);
    check_words(p, round, reader * kMyBytes / 4, round % 2 == 0 ? copy : words);
    __syncthreads();
    if (threadIdx.x == 0 && p.state->checked[round % kNumSlots].arrive(kNumReaders)) {
      p.state->checked[round % kNumSlots].relaxed_seed();
      p.theirs->read.publish(Tag{1, round});
    }
  }
}

__device__ void load_the_link(const LitmusParams& p, int loader) {
  __shared__ alignas(128) std::byte piece[kPieceBytes];
  if (threadIdx.x != 0) return;
  constexpr int kPiecesPerLoader = kLoadBytes / kPieceBytes / kNumLoaders;
  const auto* done = static_cast<const volatile unsigned int*>(&p.state->num_readers_done);
  while (*done < kNumReaders && !has_failed(p.state)) {
    for (int i = 0; i < kPiecesPerLoader; ++i) {
      bulk::store(p.theirs->load + (loader * kPiecesPerLoader + i) * kPieceBytes, piece,
                  kPieceBytes);
    }
    bulk::drain_reads<0>();
  }
  bulk::drain();
}

__global__ void __launch_bounds__(kNumThreads) litmus(LitmusParams p) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < kNumWriters) {
    write_messages(p, block);
  } else if (block < kNumWriters + kNumReaders) {
    read_messages(p, block - kNumWriters);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&p.state->num_readers_done, 1U);
  } else {
    load_the_link(p, block - kNumWriters - kNumReaders);
  }
}

}  // namespace

void launch_litmus(const LitmusParams& params, cudaStream_t stream) {
  const int num_blocks = kNumWriters + kNumReaders + (params.with_load ? kNumLoaders : 0);
  litmus<<<num_blocks, kNumThreads, 0, stream>>>(params);
}

}  // namespace slipstream::testing
