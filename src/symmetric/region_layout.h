// The symmetric region: what one rank shares with its peers. Every rank allocates one, of the same
// layout, zeroed BEFORE its address is given away: a peer may signal the moment it has it.
// Providers (host_region.h and the CUDA ones) allocate; roles and kernels use PeerTable. Who wrote
// what, and when it may be read, is src/protocol's.
#pragma once

#include <cstdint>

#include "protocol/endpoint.h"
#include "slipstream/config.h"
#include "slipstream/problem.h"

namespace slipstream {

// Two ranks never write the same cache line, nor does a bulk copy start inside one.
inline constexpr std::int64_t kRegionAlignment = 128;

SLIPSTREAM_HD constexpr std::int64_t align_region(std::int64_t bytes) {
  return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
}

// What sizes a region. Fixed by the workspace's limits, so that layers of other shapes on the same
// workspace find the signals, which live on from call to call, at the same place.
struct RegionShape {
  std::int32_t num_ranks = 1;
  std::int32_t topk = 0;
  std::int32_t max_tokens = 0;
  std::int64_t token_row_bytes = 0;
  std::int64_t partial_row_bytes = 0;

  // Bytes from one staging plane to the next.
  SLIPSTREAM_HD std::int64_t plane_bytes() const {
    return align_region(std::int64_t{max_tokens} * partial_row_bytes);
  }
};

inline RegionShape region_shape(const Problem& limits) {
  // Partial sums may be fp32 or bf16, as the layer's tuning says: room for the wider one.
  return RegionShape{.num_ranks = limits.num_ranks,
                     .topk = limits.topk,
                     .max_tokens = limits.max_tokens,
                     .token_row_bytes = std::int64_t{limits.hidden} * dtype_bytes(limits.dtype),
                     .partial_row_bytes = std::int64_t{limits.hidden} * dtype_bytes(DType::kFP32)};
}

// What a rank says of itself in every call, beside the signature (call_signature.h).
struct CallHeader {
  std::int32_t num_tokens;
};

// Pointers into one rank's region. Rows are dense in the running layer's own shape; only where a
// field begins is fixed. Signals are indexed by the rank that writes them.
struct Region {
  std::byte* tokens;       // [num_tokens, H] of Problem::dtype
  std::int32_t* topk_ids;  // [num_tokens, K]
  float* topk_weights;     // [num_tokens, K]
  CallHeader* header;
  std::int64_t* signature;  // CallSignature::values
  std::byte* staging;       // [W] planes of [num_tokens, H] partial sums, one per writer
  protocol::RankSignals* signals;
};

inline constexpr std::int64_t kSignatureCapacity = 64;  // values; call_signature.h asserts it

// THE field list: visit(pointer, bytes) for every field, in the order in which they lie in memory.
template <class Visit>
SLIPSTREAM_HD constexpr void for_each_region_field(const RegionShape& shape, Region& region,
                                                   Visit&& visit) {
  const std::int64_t num_ranks = shape.num_ranks;
  const std::int64_t num_pairs = std::int64_t{shape.max_tokens} * shape.topk;
  visit(region.tokens, shape.max_tokens * shape.token_row_bytes);
  visit(region.topk_ids, num_pairs * std::int64_t{sizeof(std::int32_t)});
  visit(region.topk_weights, num_pairs * std::int64_t{sizeof(float)});
  visit(region.header, std::int64_t{sizeof(CallHeader)});
  visit(region.signature, kSignatureCapacity * std::int64_t{sizeof(std::int64_t)});
  visit(region.staging, num_ranks * shape.plane_bytes());
  visit(region.signals, std::int64_t{sizeof(protocol::RankSignals)});
}

struct RegionByteCounter {
  std::int64_t bytes = 0;
  template <class T>
  SLIPSTREAM_HD constexpr void operator()(T*&, std::int64_t field_bytes) {
    bytes += align_region(field_bytes);
  }
};

struct RegionPointerSetter {
  std::byte* next;
  template <class T>
  SLIPSTREAM_HD void operator()(T*& pointer, std::int64_t field_bytes) {
    pointer = reinterpret_cast<T*>(next);
    next += align_region(field_bytes);
  }
};

SLIPSTREAM_HD constexpr std::int64_t region_bytes(const RegionShape& shape) {
  Region unused{};
  RegionByteCounter counter;
  for_each_region_field(shape, unused, counter);
  return counter.bytes;
}

// `base` is aligned to kRegionAlignment.
SLIPSTREAM_HD inline Region region_at(std::byte* base, const RegionShape& shape) {
  Region region{};
  RegionPointerSetter setter{base};
  for_each_region_field(shape, region, setter);
  return region;
}

SLIPSTREAM_HD inline std::byte* staging_plane(const Region& region, const RegionShape& shape,
                                              std::int32_t writer) {
  return region.staging + writer * shape.plane_bytes();
}

// Every rank's region as one rank sees it. Passed by value to roles and kernels; who allocated the
// memory is not their concern.
struct PeerTable {
  RegionShape shape;
  std::int32_t rank = 0;  // "me"
  std::byte* base[kMaxRanks] = {};

  SLIPSTREAM_HD Region region(std::int32_t peer) const { return region_at(base[peer], shape); }
  SLIPSTREAM_HD Region own() const { return region(rank); }
};

}  // namespace slipstream
