// Weight producer: one thread fills every stage's weight tile by TMA. It waits for free stages
// only, so it runs ahead of closed gates.
#pragma once

#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"
#include "gemm/sm90_work.cuh"

namespace slipstream::sm90 {

// One TMA load of kWeightRowsPerLoad weight rows. In a pair each block loads its half of the 256
// rows and multicasts it, so that both blocks have all of them.
template <Sm90Config kConfig>
__device__ __forceinline__ void load_weights(const Shared<kConfig>& shared, const CUtensorMap* map,
                                             std::uint32_t stage, const WorkItem& item,
                                             std::int32_t k, std::uint32_t rank) {
  using Layout = Sm90Layout<kConfig>;
  using namespace cuda::ptx;
  std::uint8_t* target = shared.weights(stage) + rank * (Layout::kWeightRowsPerLoad * kRowBytes);
  std::uint64_t* full = &shared.barriers().full[stage];
  constexpr std::uint16_t kBothBlocks = 0b11;
  if constexpr (Layout::kSwiGlu) {
    // Columns of one load: half of its rows. The map's fourth dimension counts 8 columns.
    const std::int32_t column =
        item.column + static_cast<std::int32_t>(rank) * (Layout::kWeightRowsPerLoad / 2);
    const std::int32_t at[5] = {k, 0, 0, column / 8, item.expert};
    if constexpr (Layout::kPair)
      cp_async_bulk_tensor(space_cluster, space_global, target, map, at, full, kBothBlocks);
    else
      cp_async_bulk_tensor(space_cluster, space_global, target, map, at, full);
  } else {
    const std::int32_t row =
        item.column + static_cast<std::int32_t>(rank) * Layout::kWeightRowsPerLoad;
    const std::int32_t at[3] = {k, row, item.expert};
    if constexpr (Layout::kPair)
      cp_async_bulk_tensor(space_cluster, space_global, target, map, at, full, kBothBlocks);
    else
      cp_async_bulk_tensor(space_cluster, space_global, target, map, at, full);
  }
}

template <Sm90Config kConfig>
__device__ void run_producer_w(const Shared<kConfig>& shared, const Sm90Params& params,
                               std::uint32_t rank) {
  auto& b = shared.barriers();
  WorkReader<kConfig, false> reader(shared);
  RingCursor<kConfig.num_stages> stage;
  WorkItem item;
  while (reader.next(item)) {
    for (std::int32_t k = 0; k < params.num_k; k += kStepK, stage.advance()) {
      wait_parity(&b.empty[stage.slot], stage.parity ^ 1);
      // Both halves of a pair land here; rows and k outside the tensor count and arrive as zeros.
      cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                           cuda::ptx::space_shared, &b.full[stage.slot],
                                           Sm90Layout<kConfig>::kWeightBytes);
      load_weights<kConfig>(shared, &params.weights, stage.slot, item, k, rank);
    }
  }
}

}  // namespace slipstream::sm90
