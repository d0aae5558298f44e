// CallSignature: everything that crosses the wire and on which ranks must therefore agree. It lies
// in the region beside the tokens; publish_plan compares all ranks' before it believes any other
// field. What a tuning may differ in per rank (tiles, row order, delivery, ring, segments) is not
// in here.
#pragma once

#include <cstdint>
#include <string>

#include "slipstream/config.h"
#include "slipstream/problem.h"
#include "slipstream/status.h"
#include "slipstream/tuning.h"
#include "symmetric/region_layout.h"

namespace slipstream {

enum SignatureField : std::int32_t {
  kSigNumRanks,
  kSigNumExperts,
  kSigHidden,
  kSigIntermediate,
  kSigTopk,
  kSigMaxTokens,
  kSigDType,
  kSigLayerTag,
  kSigPartialDType,
  kSigPlaneStride,
  kSigTransfer,
  kSigPath,
  kSigNumChunks,
  kSigChunkBegin,  // the first of kMaxChunks + 1
  kNumSignatureFields = kSigChunkBegin + kMaxChunks + 1,
};
static_assert(kNumSignatureFields <= kSignatureCapacity);

// How partial sums reach the owner, and which implementation runs.
enum class Transfer : std::int32_t { kPush = 0, kPull = 1 };
enum class Path : std::int32_t { kFused = 0, kSerial = 1 };

// Plain values, so that the comparison is one loop on any processor.
struct CallSignature {
  std::int64_t values[kNumSignatureFields] = {};
};

CallSignature make_signature(const Problem& problem, const Tuning& tuning, std::int32_t layer_tag,
                             std::int64_t plane_bytes, Transfer transfer, Path path);

// The first field in which two signatures differ, or -1.
SLIPSTREAM_HD inline std::int32_t first_difference(const std::int64_t* a, const std::int64_t* b) {
  for (std::int32_t field = 0; field < kNumSignatureFields; ++field)
    if (a[field] != b[field]) return field;
  return -1;
}

// "layer_tag", "chunk_begin[3]"
std::string signature_field_name(std::int32_t field);

// kSignatureMismatch: names the field, `rank`'s value and rank 0's.
Status signature_mismatch(std::int32_t field, std::int32_t rank, std::int64_t value,
                          std::int64_t value_of_rank_0);

}  // namespace slipstream
