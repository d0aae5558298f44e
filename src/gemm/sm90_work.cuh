// The work ring: one scheduler thread a cluster decodes items from the tables, every role of every
// block of the cluster reads them in the same order. The only schedule iterator of the engine.
//
// A Work policy says which items there are: `bool next(WorkItem&)` until it is false, then
// `leave()`, called by the scheduler thread alone. TableWork is the stock one; a fused operator may
// bring its own.
#pragma once

#include <cuda/ptx>

#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"

namespace slipstream::sm90 {

// Visits (chunk, token tile, weight block), the block innermost: the weight blocks of one tile run
// at the same time on neighbouring blocks and share its tokens in L2, and an expert's token tiles
// share its weights. Items go round by static stride, or to whoever comes next (dispenser).
template <Sm90Config kConfig>
class TableWork {
 public:
  __device__ TableWork(const WorkTables& tables, std::int32_t cluster, std::int32_t num_clusters)
      : tables_(tables), num_clusters_(num_clusters), next_(cluster) {}

  __device__ bool next(WorkItem& item) {
    const std::int32_t num_tiles = tables_.counts->num_tiles;
    const std::int32_t position = take(num_tiles);
    // Positions only grow, so the chunk is found by walking on.
    while (position >= chunk_begin_ + num_tiles * chunk_blocks(chunk_)) {
      chunk_begin_ += num_tiles * chunk_blocks(chunk_);
      if (++chunk_ >= tables_.chunks.num_chunks) return false;
    }
    const std::int32_t offset = position - chunk_begin_;
    const std::int32_t blocks = chunk_blocks(chunk_);
    item.tile = offset / blocks;
    const TokenTile tile = tables_.token_tile[item.tile];
    item.expert = tile.expert;
    item.row_begin = tile.row_begin;
    item.num_rows = tile.num_rows;
    item.chunk = chunk_;
    const std::int32_t chunk_column = (offset - item.tile * blocks) * Layout::kBlockColumns;
    item.column = tables_.chunks.begin[chunk_] + chunk_column;
    item.num_columns = min(Layout::kBlockColumns, tables_.chunks.width(chunk_) - chunk_column);
    item.out_column = tables_.ring_planes > 1 ? chunk_column : item.column;
    return true;
  }

 private:
  using Layout = Sm90Layout<kConfig>;

  __device__ std::int32_t chunk_blocks(std::int32_t chunk) const {
    return (tables_.chunks.width(chunk) + Layout::kBlockColumns - 1) / Layout::kBlockColumns;
  }

  // A position, past the end when nothing is left.
  __device__ std::int32_t take(std::int32_t num_tiles) {
    if (tables_.dispenser == nullptr) {
      const std::int32_t position = next_;
      next_ += num_clusters_;
      return position;
    }
    std::int32_t limit = 0;
    for (std::int32_t c = 0; c < tables_.chunks.num_chunks; ++c) limit += chunk_blocks(c);
    limit *= num_tiles;
    const std::int64_t ticket = tables_.dispenser->relaxed_take(limit);
    return ticket == protocol::kNoTicket ? limit : static_cast<std::int32_t>(ticket);
  }

  const WorkTables& tables_;
  std::int32_t num_clusters_;
  std::int32_t next_;
  std::int32_t chunk_ = 0;
  std::int32_t chunk_begin_ = 0;
};

// Scheduler role: one thread of the cluster's first block writes each item into the ring of every
// block. The end is an item without rows.
template <Sm90Config kConfig, class Work>
__device__ void run_scheduler(const Shared<kConfig>& shared, Work& work) {
  auto& b = shared.barriers();
  RingCursor<kWorkSlots> cursor;
  for (bool more = true; more; cursor.advance()) {
    WorkItem item{};
    more = work.next(item);
    wait_parity_cluster(&b.work_empty[cursor.slot], cursor.parity ^ 1);
    for (int rank = 0; rank < Sm90Layout<kConfig>::kClusterSize; ++rank) {
      if constexpr (Sm90Layout<kConfig>::kPair) {
        WorkItem* slot =
            static_cast<WorkItem*>(__cluster_map_shared_rank(&b.work[cursor.slot], rank));
        *slot = item;
        cuda::ptx::mbarrier_arrive(cuda::ptx::sem_release, cuda::ptx::scope_cluster,
                                   cuda::ptx::space_cluster,
                                   static_cast<std::uint64_t*>(
                                       __cluster_map_shared_rank(&b.work_full[cursor.slot], rank)));
      } else {
        b.work[cursor.slot] = item;
        cuda::ptx::mbarrier_arrive(&b.work_full[cursor.slot]);
      }
    }
  }
}

// A role's view of the ring. One reader a warp: either one lane calls, or the whole warp.
template <Sm90Config kConfig, bool kWholeWarp>
class WorkReader {
 public:
  __device__ explicit WorkReader(const Shared<kConfig>& shared) : shared_(shared) {}

  // False at the end.
  __device__ bool next(WorkItem& item) {
    auto& b = shared_.barriers();
    if constexpr (Sm90Layout<kConfig>::kPair) {
      wait_parity_cluster(&b.work_full[cursor_.slot], cursor_.parity);
    } else {
      wait_parity(&b.work_full[cursor_.slot], cursor_.parity);
    }
    item = b.work[cursor_.slot];
    if constexpr (kWholeWarp) __syncwarp();
    if (!kWholeWarp || lane_idx() == 0) {
      if constexpr (Sm90Layout<kConfig>::kPair) {
        cuda::ptx::mbarrier_arrive(
            cuda::ptx::sem_release, cuda::ptx::scope_cluster, cuda::ptx::space_cluster,
            static_cast<std::uint64_t*>(__cluster_map_shared_rank(&b.work_empty[cursor_.slot], 0)));
      } else {
        cuda::ptx::mbarrier_arrive(&b.work_empty[cursor_.slot]);
      }
    }
    cursor_.advance();
    return item.num_rows > 0;
  }

 private:
  const Shared<kConfig>& shared_;
  RingCursor<kWorkSlots> cursor_;
};

}  // namespace slipstream::sm90
