// Grouped GEMM over the schedule tables: for every row r of expert e
//   kStore    out[r, n] = sum_k x[r, k] * weights[e, n, k]
//   kSwiGlu   out[r, i] = silu(x[r] . gate[e, i]) * (x[r] . up[e, i])
// fp32 accumulation, bf16 or fp16 in and out. Token counts per expert cost what they are: no
// padding to 64 or 128 rows. Runs on Hopper (sm_90a).
//
// Called by the serial path, the benchmark and, with its own policies, by the fused kernels (which
// take the parameters from sm90_launch.h). Read sm90_engine.cuh next.
#pragma once

#include <cstdint>
#include <memory>

#include "gemm/policies.h"
#include "protocol/dispenser.h"
#include "protocol/failure.h"
#include "protocol/gate.h"
#include "slipstream/schedule.h"
#include "slipstream/status.h"
#include "slipstream/tensor.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace slipstream {

// Before a tile's first row is read, its gate must be full: num_rows + slack[tile] arrivals.
struct GemmGate {
  const protocol::TokenGate* gates =
      nullptr;  // device, [num_tiles]; null: rows are there at launch
  // Device, required with `gates`. A failure of `generation` opens all gates: the kernel then ends
  // normally, on garbage. A gate that stays shut for `timeout_ns` raises it.
  protocol::FailureWord* failure = nullptr;
  std::uint32_t generation = 1;
  std::uint64_t timeout_ns = 10'000'000'000;
};

// done[chunk * stride + tile] gets one arrival per block that has written its part of (chunk,
// tile): GroupedGemm::done_arrivals(chunk) in all.
struct GemmDone {
  protocol::TileDone* done = nullptr;  // device, seeded before the launch; null: not counted
  std::int32_t stride = 0;
};

struct GroupedGemmSpec {
  DType dtype = DType::kBF16;  // kBF16 or kFP16
  EpilogueKind epilogue = EpilogueKind::kStore;
  OperandSource source = OperandSource::kRows;

  std::int32_t num_experts = 0;
  std::int32_t num_columns = 0;  // of the output: H for down, I for gate/up; a multiple of 8
  std::int32_t num_k = 0;        // of the input: I for down, H for gate/up; a multiple of 8

  // kStore: [E, num_columns, num_k]. kSwiGlu: [E, 2 * num_columns, num_k], gate rows first; or,
  // with `up`, two tensors [E, num_columns, num_k]. Contiguous, 16-byte aligned: the checkpoint's
  // layout.
  const void* weights = nullptr;
  const void* up = nullptr;

  // kRows: [P, num_k], row r of the tables in row r. kGather: [S, num_k], token row_source[r] /
  // topk. Rows 16-byte aligned. rows is a capacity.
  TensorView tokens;
  // [P, num_columns], or with ring_planes > 1 planes of [P, widest chunk], `plane_stride` elements
  // apart: chunk c goes to plane c % ring_planes, its first column to column 0.
  TensorView out;
  std::int32_t ring_planes = 1;
  std::int64_t plane_stride = 0;

  // Device tables: counts, token_tile; row_source for kGather; slack with a gate.
  ScheduleView schedule;
  // Visited one after the other; begins are multiples of 64. num_chunks 0: one chunk of all
  // columns.
  ColumnChunks chunks{.num_chunks = 0};

  GemmGate gate;
  GemmDone done;
  // Device, seeded before every launch: blocks then take work as they come. null: by static stride.
  protocol::Dispenser* dispenser = nullptr;
  std::int32_t num_blocks = 0;  // 0: one per multiprocessor
};

// What Tuning::tile_max_rows should be for this many rows (over all experts): 64 for a few rows an
// expert, where a kernel with more weights in flight is faster, else 288.
std::int32_t preferred_tile_max_rows(std::int64_t num_rows, std::int32_t num_experts);

class GroupedGemm {
 public:
  // Encodes the tensor maps for the current device. Errors: kInvalidArgument for a shape, stride or
  // pointer that TMA cannot serve (with the nearest width that would do) and for missing tables;
  // kUnsupported where the device is not Hopper or there is no kernel for the combination.
  static Result<GroupedGemm> create(const GroupedGemmSpec& spec);

  // Enqueues one launch; capturable. The tables are read on the device, so a captured launch
  // follows new routing. Errors: kBackendError with CUDA's words.
  Status launch(CUstream_st* stream) const;

  // What GemmDone counts up to for a tile of this chunk.
  std::int32_t done_arrivals(std::int32_t chunk) const;

  struct Impl;

 private:
  explicit GroupedGemm(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace slipstream
