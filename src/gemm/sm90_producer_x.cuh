// Token producers: fill every stage's token rows, after the tile's gate.
//   rows    one thread, TMA from the permuted buffer
//   gather  four warps, cp.async from the token buffer, 128-byte swizzle by hand
//
// Proxies. wgmma reads shared memory through the async proxy. TMA writes through it too, so rows by
// TMA need nothing. cp.async writes through the generic proxy: every math thread executes
// fence.proxy.async after its wait for the stage (see sm90_math.cuh). The fence is on that side
// because cp.async completes later than the code that issues it: only the mbarrier knows when.
// Global rows written by peers or by other kernels' generic stores and then read by TMA need a
// proxy fence between the gate's acquire and the first load: run_producer_rows has it.
#pragma once

#include "gemm/ptx/cp_async.cuh"
#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"
#include "gemm/sm90_work.cuh"

namespace slipstream::sm90 {

template <Sm90Config kConfig, class Gate>
__device__ void run_producer_rows(const Shared<kConfig>& shared, const Sm90Params& params,
                                  Gate gate, std::uint32_t rank) {
  using namespace cuda::ptx;
  constexpr std::int32_t kMaxUnitsPerBox = kMaxRowBoxes;
  auto& b = shared.barriers();
  WorkReader<kConfig, false> reader(shared);
  RingCursor<kConfig.num_stages> stage;
  WorkItem item;
  while (reader.next(item)) {
    const BlockRows rows = block_rows<kConfig>(item, rank);
    const std::int32_t row = item.row_begin + rows.first;
    // The last unit may reach into the next tile's rows; those are multiplied and never stored.
    const std::int32_t units = rows.units();
    const std::int32_t first_units = units > kMaxUnitsPerBox ? (units + 1) / 2 : units;
    const std::int32_t second_units = units - first_units;
    gate.wait(item);
    fence_proxy_async();
    for (std::int32_t k = 0; k < params.num_k; k += kStepK, stage.advance()) {
      wait_parity(&b.empty[stage.slot], stage.parity ^ 1);
      std::uint64_t* full = &b.full[stage.slot];
      mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, full, units * 8 * kRowBytes);
      std::uint8_t* target = shared.tokens(stage.slot);
      if (first_units > 0) {
        const std::int32_t at[2] = {k, row};
        cp_async_bulk_tensor(space_cluster, space_global, target, &params.rows[first_units - 1], at,
                             full);
      }
      if (second_units > 0) {
        const std::int32_t at[2] = {k, row + first_units * 8};
        cp_async_bulk_tensor(space_cluster, space_global, target + first_units * 8 * kRowBytes,
                             &params.rows[second_units - 1], at, full);
      }
    }
  }
}

// Eight lanes copy one row's 128 bytes, so a pass of the four warps takes 16 rows. The 16-byte
// chunk c of row r lies at chunk c ^ (r % 8): the 128-byte swizzle. 16 rows a pass keep it the same
// in every pass.
template <Sm90Config kConfig, class Gate>
__device__ void run_producer_gather(const Shared<kConfig>& shared, const Sm90Params& params,
                                    Gate gate, std::uint32_t rank) {
  using Layout = Sm90Layout<kConfig>;
  constexpr int kRowsPerPass = kNumGatherThreads / 8;
  constexpr int kPasses = Layout::kTokens / kRowsPerPass;
  static_assert(Layout::kTokens % kRowsPerPass == 0);
  auto& b = shared.barriers();
  const GatherTables& gather = params.gather;
  const int thread = static_cast<int>(threadIdx.x) - Layout::kFirstGatherWarp * 32;
  const int row_in_pass = thread / 8;
  const int chunk = thread % 8;
  const std::uint32_t target_offset = row_in_pass * kRowBytes + ((chunk ^ (row_in_pass % 8)) * 16);

  WorkReader<kConfig, true> reader(shared);
  RingCursor<kConfig.num_stages> stage;
  WorkItem item;
  while (reader.next(item)) {
    const BlockRows rows = block_rows<kConfig>(item, rank);
    const std::int32_t row_begin = item.row_begin + rows.first;
    const std::int32_t num_rows = rows.units() * 8;
    // This thread's rows as offsets of 16 bytes. Rows past the end repeat the last one: they are
    // multiplied and never stored, so any row that exists will do.
    std::uint32_t source[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::int32_t row = min(pass * kRowsPerPass + row_in_pass, rows.num - 1);
      const std::int32_t pair = row < 0 ? 0 : gather.row_source[row_begin + row];
      source[pass] = static_cast<std::uint32_t>(pair / gather.topk) *
                         static_cast<std::uint32_t>(gather.row_pitch_16) +
                     chunk;
    }
    if (lane_idx() == 0) gate.wait(item);
    __syncwarp();
    const auto* tokens = static_cast<const std::uint8_t*>(gather.tokens);
    for (std::int32_t k = 0; k < params.num_k; k += kStepK, tokens += kRowBytes, stage.advance()) {
      wait_parity(&b.empty[stage.slot], stage.parity ^ 1);
      // Zeros past K: the weights there are zeros, and 0 * NaN would not be.
      const std::uint32_t bytes = k + chunk * 8 < params.num_k ? 16 : 0;
      const std::uint32_t target = shared_address(shared.tokens(stage.slot)) + target_offset;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (pass * kRowsPerPass + row_in_pass < num_rows) {
          cp_async_16(target + pass * kRowsPerPass * kRowBytes,
                      tokens + static_cast<std::uint64_t>(source[pass]) * 16, bytes);
        }
      }
      // Arrives when this thread's copies so far are complete.
      cuda::ptx::cp_async_mbarrier_arrive_noinc(&b.full[stage.slot]);
    }
  }
}

}  // namespace slipstream::sm90
