// Tuning: everything about a layer that changes its speed and not its meaning.
//
// Fields marked [wire] must be equal on all ranks: they are part of the call's signature, and ranks
// that disagree get an error that names both values. The others may differ from rank to rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "slipstream/config.h"
#include "slipstream/problem.h"
#include "slipstream/status.h"

namespace slipstream {

enum class TilePolicy : std::int32_t {
  kBalanced = 0,  // rows compact; n rows become ceil(n / max) near-equal tiles, rounded to 8
  kFixed128 = 1,  // every expert padded to a multiple of 128 rows, tiles of 128
};
enum class RowOrder : std::int32_t {
  kLocalFirst = 0,  // by (owner - me) mod W, then token, then k: local rows are ready at once
  kAscending = 1,   // by global token, then k
};
enum class Delivery : std::int32_t {
  kGather = 0,   // one copy a token into [S, H]; the GEMM gathers its rows from there
  kScatter = 1,  // K copies a token into permuted rows; the GEMM reads consecutive rows
};

std::string_view to_string(TilePolicy policy);  // "balanced", "fixed128"
std::string_view to_string(RowOrder order);     // "local-first", "ascending"
std::string_view to_string(Delivery delivery);  // "gather", "scatter"
Result<TilePolicy> parse_tile_policy(std::string_view text);
Result<RowOrder> parse_row_order(std::string_view text);
Result<Delivery> parse_delivery(std::string_view text);

// Column chunks of kernel 2: chunk c is output columns [begin[c], begin[c + 1]). Widths may differ.
struct ColumnChunks {
  std::int32_t num_chunks = 1;
  std::int32_t begin[kMaxChunks + 1] = {0, 0};

  SLIPSTREAM_HD std::int32_t width(std::int32_t chunk) const {
    return begin[chunk + 1] - begin[chunk];
  }
};

// `num_chunks` chunks of `hidden` columns whose widths are multiples of `granule` (the last takes
// what is left) and differ by at most one granule. Fewer chunks come back where hidden is too
// small.
ColumnChunks even_chunks(std::int32_t hidden, std::int32_t num_chunks, std::int32_t granule = 64);

struct Tuning {
  TilePolicy tile_policy = TilePolicy::kBalanced;
  RowOrder row_order = RowOrder::kLocalFirst;
  std::int32_t tile_max_rows = 288;  // most rows of a balanced tile; a multiple of 8, 8..1024
  std::int32_t num_segments = 1;     // token segments: 1..kMaxSegments, times E <= kMaxGroups
  Delivery delivery = Delivery::kGather;
  ColumnChunks chunks;                 // [wire]
  std::int32_t ring_chunks = 2;        // chunk buffers of kernel 2 kept at once: 1..num_chunks
  DType partial_dtype = DType::kFP32;  // [wire] partial sums that cross ranks
};

// A starting point for this shape and call size (tokens over all ranks). Every rank gets the same.
Tuning default_tuning(const Problem& problem, std::int64_t tokens_per_call);

// Errors: kInvalidArgument with the field's name, its value and its range.
Status validate(const Tuning& tuning, const Problem& problem);

// One line:
// "tiles balanced<=288 local-first gather, chunks 8 x 512 ring 3, segments 1, partial fp32".
std::string describe(const Tuning& tuning);

}  // namespace slipstream
