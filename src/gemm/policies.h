// The choices that a grouped GEMM's caller makes and every engine understands. Plain, host and
// device.
#pragma once

#include <cstdint>

namespace slipstream {

// Where the tokens of a tile come from.
enum class OperandSource : std::int32_t {
  kRows = 0,    // consecutive rows of a permuted buffer [P, K]
  kGather = 1,  // rows of a token buffer [S, K] named by row_source
};

enum class EpilogueKind : std::int32_t {
  kStore = 0,   // the product as it is
  kSwiGlu = 1,  // silu(gate) * up in fp32, one output column from one gate row and one up row
};

}  // namespace slipstream
