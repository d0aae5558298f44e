#include "memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "layer_data.h"
#include "machine.h"
#include "output.h"
#include "schedule/schedule.h"

namespace slipstream::cli {

MemoryNeed memory_need(const Job& job, bool with_check) {
  const Problem& problem = job.problem;
  const std::int64_t num_ranks = problem.num_ranks;
  const std::int64_t num_tokens = job.num_tokens();
  const std::int64_t hidden = problem.hidden;
  const std::int64_t fp32 = dtype_bytes(DType::kFP32);
  const ScheduleCapacity capacity =
      schedule_capacity(schedule_shape(problem, job.tuning, 0), num_tokens);

  MemoryNeed need;
  need.weights = LayerData::weight_bytes(problem);
  if (problem.dtype != DType::kFP32)
    need.converted_weights = need.weights / dtype_bytes(problem.dtype) * fp32;
  need.tokens = 2 * num_tokens * hidden * dtype_bytes(problem.dtype);
  need.symmetric = num_ranks * Workspace::symmetric_bytes(problem);

  std::int64_t widest_chunk = 0;
  for (std::int32_t c = 0; c < job.tuning.chunks.num_chunks; ++c)
    widest_chunk = std::max<std::int64_t>(widest_chunk, job.tuning.chunks.width(c));
  const std::int64_t delivered_rows =
      job.tuning.delivery == Delivery::kGather ? num_tokens : capacity.num_rows;
  need.local =
      num_ranks * fp32 *
      (delivered_rows * hidden + capacity.num_rows * (problem.intermediate_per_rank() +
                                                      job.tuning.ring_chunks * widest_chunk));
  // Per (token, k): id, weight, slot, tile; per row its source; orders and tiles are small change.
  need.tables = num_ranks * (16 * capacity.num_pairs + 4 * capacity.num_rows +
                             8 * capacity.num_jobs + 16 * capacity.num_tiles);
  if (with_check) {
    need.check =
        (2 * num_tokens * hidden + 3 * hidden * std::int64_t{problem.intermediate_per_rank()}) *
        std::int64_t{sizeof(double)};
  }
  return need;
}

Status check_memory(std::int64_t needed_bytes, const char* what_for) {
  const std::int64_t available = read_machine_info().available_memory_bytes;
  if (needed_bytes <= available) return Status::ok();
  return Status(
      StatusCode::kOutOfMemory, Subsystem::kCli,
      {.what = fmt::format("memory for {}", what_for),
       .observed = fmt::format("{} in all", human_bytes(needed_bytes)),
       .expected = fmt::format("at most the {} that are available", human_bytes(available)),
       .hint = "give fewer --tokens or --experts, or a smaller --preset"});
}

}  // namespace slipstream::cli
