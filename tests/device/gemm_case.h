// One grouped GEMM under test: random operands surrounded by NaN, tables from the golden builder,
// and a comparison with a naive product in fp32. Used by gemm_test.cu only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gemm/device_buffer.h"
#include "gemm/grouped_gemm.h"
#include "schedule/golden.h"

namespace slipstream::testing {

struct GemmShape {
  std::int32_t num_experts = 4;
  std::int32_t columns = 128;
  std::int32_t k = 64;
};

struct GemmOptions {
  DType dtype = DType::kBF16;
  EpilogueKind epilogue = EpilogueKind::kStore;
  OperandSource source = OperandSource::kRows;
  TilePolicy tile_policy = TilePolicy::kBalanced;
  std::int32_t tile_max_rows = 288;
  bool dispenser = false;
  ColumnChunks chunks{.num_chunks = 0};
  std::int32_t ring_planes = 1;
  // 0: one gate/up tensor; 1: two, gate at the lower address; 2: two, up at the lower address.
  int weights_apart = 0;
};

// Everything on the device, NaN wherever the GEMM has no business.
class GemmCase {
 public:
  // topk_ids [tokens, topk].
  GemmCase(const GemmShape& shape, const GemmOptions& options, std::int32_t topk,
           const std::vector<std::int32_t>& topk_ids, std::uint32_t seed);

  // May be changed (gates, blocks) before create().
  GroupedGemmSpec spec;
  Schedule schedule;
  DeviceBuffer<protocol::TokenGate> gates;      // [num_tiles], seeded with slack
  DeviceBuffer<protocol::TileDone> done;        // [chunks * num_tiles]
  DeviceBuffer<protocol::FailureWord> failure;  // [1]
  DeviceBuffer<std::uint16_t> tokens;           // what spec.tokens points into
  DeviceBuffer<std::uint16_t> tokens_ready;     // the same, never withheld

  // Launches once on `stream` (null: and waits) and returns the message of an error, or "".
  std::string run(cudaStream_t stream = nullptr);
  // Compares the rows of the tiles with `expected[tile]` (all when empty) and checks that nothing
  // else was written. "" or the first difference.
  std::string check(const std::vector<bool>& expected_tiles = {});

  std::int32_t num_chunks() const;

 private:
  std::string compare_row(std::int32_t row, const float* reference,
                          const std::vector<std::uint16_t>& out) const;
  std::size_t out_index(std::int32_t row, std::int32_t column) const;

  GemmShape shape_;
  GemmOptions options_;
  std::int64_t token_stride_ = 0;
  std::int64_t out_stride_ = 0;
  DeviceBuffer<std::uint16_t> weights_;
  DeviceBuffer<std::uint16_t> out_;
  DeviceBuffer<ScheduleCounts> counts_;
  DeviceBuffer<TokenTile> token_tile_;
  DeviceBuffer<std::int32_t> slack_;
  DeviceBuffer<std::int32_t> row_source_;
  DeviceBuffer<protocol::Dispenser> dispenser_;
  std::int64_t up_offset_ = 0;    // elements from gate to up of the same expert
  std::int64_t gate_offset_ = 0;  // elements from the start of weights_ to the first gate row
  std::int64_t expert_stride_ = 0;
};

}  // namespace slipstream::testing
