// Storer: one thread copies staged output to global memory by TMA and then counts the tile done.
//
// A tile's last box may hold fewer rows than staging_rows, and must not touch the next tile's. The
// output map therefore has two row dimensions with the same stride: element (column, row i, start
// s) is row s + i - staging_rows of the output, and i runs to staging_rows only. A store of n rows
// at output row r starts at i = staging_rows - n, s = r + n: TMA clips the rows past n. The map's
// base lies staging_rows rows before the output; nothing there is ever addressed, since i + s >=
// staging_rows + r.
#pragma once

#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"
#include "gemm/sm90_work.cuh"

namespace slipstream::sm90 {

// Issues the stores of one warpgroup's staged rows [first_row, first_row + staging_rows).
template <Sm90Config kConfig>
__device__ __forceinline__ void store_staged(const Shared<kConfig>& shared,
                                             const Sm90Params& params, const WorkItem& item,
                                             const MathShare& share, std::int32_t block_row,
                                             std::int32_t first_row, int warpgroup) {
  using Layout = Sm90Layout<kConfig>;
  using namespace cuda::ptx;
  const std::int32_t num_rows = min(kConfig.staging_rows, share.num_rows - first_row);
  const std::int32_t row = block_row + share.first_row + first_row;
  const std::int32_t plane = item.chunk % params.work.ring_planes;
  for (int box = 0; box < Layout::kStoreBoxes; ++box) {
    const std::int32_t column = share.column + box * kStoreColumns;
    if (column >= item.num_columns) continue;
    const std::int32_t at[4] = {item.out_column + column, kConfig.staging_rows - num_rows,
                                row + num_rows, plane};
    cp_async_bulk_tensor(space_global, space_shared, &params.out, at,
                         shared.staging(warpgroup) + box * Layout::kStagingBoxBytes);
  }
}

// Done policy: `bool counts()`, and `arrive(item)` once per block and item when its rows are
// written.
template <Sm90Config kConfig, class Done>
__device__ void run_storer(const Shared<kConfig>& shared, const Sm90Params& params, Done done,
                           std::uint32_t rank) {
  using namespace cuda::ptx;
  auto& b = shared.barriers();
  WorkReader<kConfig, false> reader(shared);
  RingCursor<1> staging[kNumMathWarpgroups];
  WorkItem item;
  while (reader.next(item)) {
    const BlockRows rows = block_rows<kConfig>(item, rank);
    for (std::int32_t first_row = 0; first_row < rows.num; first_row += kConfig.staging_rows) {
      bool stored[kNumMathWarpgroups] = {};
#pragma unroll
      for (int warpgroup = 0; warpgroup < kNumMathWarpgroups; ++warpgroup) {
        const MathShare share = math_share<kConfig>(rows, warpgroup);
        if (first_row >= share.num_rows) continue;
        wait_parity(&b.staged[warpgroup], staging[warpgroup].parity);
        staging[warpgroup].advance();
        store_staged(shared, params, item, share, item.row_begin + rows.first, first_row,
                     warpgroup);
        stored[warpgroup] = true;
      }
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read(n32_t<0>{});
#pragma unroll
      for (int warpgroup = 0; warpgroup < kNumMathWarpgroups; ++warpgroup)
        if (stored[warpgroup]) mbarrier_arrive(&b.free[warpgroup]);
    }
    if (done.counts()) {
      // Written and not only read: what the count releases must be visible.
      cp_async_bulk_wait_group(n32_t<0>{});
      done.arrive(item);
    }
  }
  cp_async_bulk_wait_group(n32_t<0>{});
}

}  // namespace slipstream::sm90
