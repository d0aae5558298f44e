// What the host passes to an engine kernel: tensor maps and plain pointers, by value. Filled in
// grouped_gemm.cc, read by every role.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "gemm/sm90_config.h"
#include "protocol/dispenser.h"
#include "protocol/failure.h"
#include "protocol/gate.h"
#include "slipstream/schedule.h"

namespace slipstream::sm90 {

// Which (column chunk, token tile, weight block) items there are. Token tiles come from the tables.
struct WorkTables {
  const ScheduleCounts* counts = nullptr;
  const TokenTile* token_tile = nullptr;
  ColumnChunks chunks;           // output columns
  std::int32_t ring_planes = 1;  // output planes that chunks take in turn; 1: one full-width plane
  protocol::Dispenser* dispenser = nullptr;  // null: static stride
};

// A tile's rows may be read once gates[tile] is full: num_rows + slack[tile] arrivals.
struct GateTables {
  const protocol::TokenGate* gates = nullptr;  // [num_tiles]; null: always open
  const std::int32_t* slack = nullptr;         // [num_tiles]; null: zero
  protocol::FailureWord* failure = nullptr;
  std::uint32_t generation = 0;
  std::uint64_t timeout_ns = 0;
};

// done[chunk * stride + tile] counts blocks of a (chunk, tile) whose rows are written.
struct DoneTables {
  protocol::TileDone* done = nullptr;  // null: nobody counts
  std::int32_t stride = 0;
};

// The token buffer of the gather source. Token of row r: row_source[r] / topk.
struct GatherTables {
  const void* tokens = nullptr;  // [S, K], rows row_pitch_16 * 16 bytes apart
  const std::int32_t* row_source = nullptr;
  std::int32_t row_pitch_16 = 0;
  std::int32_t topk = 1;
};

struct Sm90Params {
  // Weights. kStore: [E, N, K] in boxes {64, rows, 1}. kSwiGlu: [E, N / 16, gate | up, 8, K] in
  // boxes {64, 8, 2, rows / 16, 1}: gate and up of 8 output columns alternate.
  CUtensorMap weights;
  // Output: [planes, start row, row, columns] in boxes {64, staging_rows, 1, 1}: see
  // sm90_storer.cuh.
  CUtensorMap out;
  // kRows: the permuted rows [P, K] in boxes of 8 * (i + 1) rows.
  CUtensorMap rows[kMaxRowBoxes];

  WorkTables work;
  GateTables gate;
  DoneTables done;
  GatherTables gather;
  std::int32_t num_k = 0;     // K
  std::int32_t up_first = 0;  // the weight map's pair order is (up, gate)
};

}  // namespace slipstream::sm90
