// Shared memory of an engine block: the stage ring, the epilogue's staging, the work ring and their
// mbarriers. One cursor type walks every ring. Used by all roles.
#pragma once

#include <cuda/ptx>

#include <cstdint>

#include "gemm/ptx/remote_arrive.cuh"
#include "gemm/sm90_config.h"

namespace slipstream::sm90 {

// One (column chunk, token tile, weight block): what the roles need to know of it.
struct alignas(16) WorkItem {
  std::int32_t expert;
  std::int32_t row_begin;
  std::int32_t num_rows;  // 0: no more work
  std::int32_t tile;
  std::int32_t chunk;
  std::int32_t column;       // first output column of the weight block
  std::int32_t num_columns;  // columns of the block that exist
  std::int32_t out_column;   // first column in the output plane
};
static_assert(sizeof(WorkItem) == 32);

// Position in a ring of kSlots and the parity of its current round. A waiter for "full" uses
// `parity`; a waiter for "empty" uses `parity ^ 1`, which a fresh mbarrier satisfies at once.
template <int kSlots>
struct RingCursor {
  std::uint32_t slot = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Waits inside a block or cluster are not bounded: every role runs to its normal end, whatever the
// gates said, so each of these barriers completes.
__device__ __forceinline__ void wait_parity(std::uint64_t* barrier, std::uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}
__device__ __forceinline__ void wait_parity_cluster(std::uint64_t* barrier, std::uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster,
                                              barrier, parity)) {
  }
}

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ int lane_idx() { return static_cast<int>(threadIdx.x % 32); }
// Uniform over the warp, and known to the compiler to be.
__device__ __forceinline__ int warp_idx() {
  return __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0);
}

template <Sm90Config kConfig>
struct Shared {
  using Layout = Sm90Layout<kConfig>;

  struct Barriers {
    // Stages. full: this block's operands of a stage are there. empty: nobody reads them any more,
    // in any block whose weight loads land here.
    std::uint64_t full[kConfig.num_stages];
    std::uint64_t empty[kConfig.num_stages];
    // Epilogue staging of each math warpgroup. staged: written; free: copied out.
    std::uint64_t staged[kNumMathWarpgroups];
    std::uint64_t free[kNumMathWarpgroups];
    // Work ring. empty counts at the cluster's first block, which writes the items.
    std::uint64_t work_full[kWorkSlots];
    std::uint64_t work_empty[kWorkSlots];
    WorkItem work[kWorkSlots];
  };
  static_assert(sizeof(Barriers) <= Layout::kBarrierBytes);

  std::uint8_t* base;

  __device__ std::uint8_t* weights(std::uint32_t stage) const {
    return base + stage * Layout::kStageBytes;
  }
  __device__ std::uint8_t* tokens(std::uint32_t stage) const {
    return weights(stage) + Layout::kWeightBytes;
  }
  __device__ std::uint8_t* staging(int warpgroup) const {
    return base + Layout::kStagingOffset + warpgroup * Layout::kStagingBytes;
  }
  __device__ Barriers& barriers() const {
    return *reinterpret_cast<Barriers*>(base + Layout::kBarrierOffset);
  }

  // By one thread, before the cluster's or block's first synchronisation.
  __device__ void init_barriers() const {
    Barriers& b = barriers();
    for (int i = 0; i < kConfig.num_stages; ++i) {
      cuda::ptx::mbarrier_init(&b.full[i], Layout::kFullArrivals);
      cuda::ptx::mbarrier_init(&b.empty[i], Layout::kEmptyArrivals);
    }
    for (int i = 0; i < kNumMathWarpgroups; ++i) {
      cuda::ptx::mbarrier_init(&b.staged[i], kNumMathWarps / kNumMathWarpgroups);
      cuda::ptx::mbarrier_init(&b.free[i], 1);
    }
    for (int i = 0; i < kWorkSlots; ++i) {
      cuda::ptx::mbarrier_init(&b.work_full[i], 1);
      cuda::ptx::mbarrier_init(&b.work_empty[i], Layout::kWorkReaders);
    }
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }

  // One lane: hands a stage back to every block that loads into it.
  __device__ void free_stage(std::uint32_t stage) const {
    Barriers& b = barriers();
    if constexpr (Layout::kPair) {
      if (lane_idx() < Layout::kClusterSize)
        remote_arrive(shared_address(&b.empty[stage]), lane_idx());
    } else {
      if (lane_idx() == 0) cuda::ptx::mbarrier_arrive(&b.empty[stage]);
    }
  }
};

// The rows of an item that this block takes, relative to the item's first row.
struct BlockRows {
  std::int32_t first;
  std::int32_t num;

  __device__ int units() const { return (num + 7) / 8; }  // of 8 rows, the last perhaps not full
};

template <Sm90Config kConfig>
__device__ __forceinline__ BlockRows block_rows(const WorkItem& item, int rank) {
  if constexpr (!Sm90Layout<kConfig>::kPair) return BlockRows{0, item.num_rows};
  const int units = (item.num_rows + 7) / 8;
  const int split = min((units + 1) / 2 * 8, item.num_rows);
  return rank == 0 ? BlockRows{0, split} : BlockRows{split, item.num_rows - split};
}

// What one math warpgroup computes of a block's share. Units are 8 tokens.
struct MathShare {
  std::int32_t first_row;  // relative to the block's first row
  std::int32_t num_rows;   // rows that exist
  std::int32_t units;      // rows that are multiplied, / 8; 0: this warpgroup only drains
  std::int32_t column;     // relative to the block's first output column
};

template <Sm90Config kConfig>
__device__ __forceinline__ MathShare math_share(BlockRows rows, int warpgroup) {
  if constexpr (Sm90Layout<kConfig>::kPair) {
    return MathShare{0, rows.num, rows.units(), warpgroup * Sm90Layout<kConfig>::kMathColumns};
  }
  const int units = rows.units();
  const int split_units = (units + 1) / 2;
  const int split = min(split_units * 8, rows.num);
  return warpgroup == 0 ? MathShare{0, split, split_units, 0}
                        : MathShare{split_units * 8, rows.num - split, units - split_units, 0};
}

}  // namespace slipstream::sm90
