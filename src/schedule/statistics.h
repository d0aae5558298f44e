// What a schedule says about its routing: the padding it pays for, how uneven the experts are, and
// when kernel 1 needs its tokens and kernel 2's jobs become ready. `slipstream plan` prints it.
// Read include/slipstream/schedule.h first.
#pragma once

#include <array>
#include <cstdint>

#include "slipstream/schedule.h"

namespace slipstream {

// A share that grows with the progress of a GEMM. Progress counts computed rows (kernel 2: times
// columns), in the order the tiles are visited.
struct ReadinessCurve {
  std::array<double, 10> share{};  // share[i] at (i + 1) * 10% of the GEMM
  // The share is below one half until this much of the GEMM is done: where the tile begins that
  // brings it to one half.
  double half_after = 0;
};

struct ScheduleStatistics {
  std::int32_t num_tiles = 0;
  std::int64_t num_real_rows = 0;
  // Rows the GEMM computes: a tile's capacity, rounded up to 8 rows.
  std::int64_t num_computed_rows = 0;
  // Share of the computed rows that are padding: 1 - real / computed; 0 without rows.
  double padding_tax = 0;
  // Real rows per expert, over all segments; standard deviation over the experts.
  double min_expert_rows = 0;
  double mean_expert_rows = 0;
  double max_expert_rows = 0;
  double stddev_expert_rows = 0;
  // Kernel 1: tokens needed, of those with a row. A token is needed once the first tile with one of
  // its rows begins.
  ReadinessCurve tokens_needed;
  // Kernel 2: jobs ready, of all chunks, null jobs not counted. A job is ready once the last tile
  // with one of its rows is finished, in its chunk.
  ReadinessCurve jobs_ready;
};

// `view.shape.chunks` must have columns. Shares of nothing are 1: nobody waits.
ScheduleStatistics schedule_statistics(const ScheduleView& view);

}  // namespace slipstream
