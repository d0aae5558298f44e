#include "symmetric/call_signature.h"

#include <fmt/format.h>

#include <iterator>

namespace slipstream {

namespace {

constexpr const char* kFieldNames[] = {
    "num_ranks", "num_experts",   "hidden",       "intermediate", "topk", "max_tokens", "dtype",
    "layer_tag", "partial_dtype", "plane_stride", "transfer",     "path", "num_chunks"};
static_assert(std::size(kFieldNames) == kSigChunkBegin);

std::string value_text(std::int32_t field, std::int64_t value) {
  switch (field) {
    case kSigDType:
    case kSigPartialDType: return std::string(to_string(static_cast<DType>(value)));
    case kSigTransfer: return value == static_cast<std::int64_t>(Transfer::kPush) ? "push" : "pull";
    case kSigPath: return value == static_cast<std::int64_t>(Path::kFused) ? "fused" : "serial";
    default: return fmt::format("{}", value);
  }
}

std::string way_out(std::int32_t field) {
  switch (field) {
    case kSigLayerTag: return "call the same sequence of layers on every rank";
    case kSigPartialDType:
    case kSigNumChunks: return "give every rank the same tuning of its [wire] fields";
    default:
      if (field >= kSigChunkBegin) return "give every rank the same tuning of its [wire] fields";
      return "create the layer with the same problem on every rank";
  }
}

}  // namespace

CallSignature make_signature(const Problem& problem, const Tuning& tuning, std::int32_t layer_tag,
                             std::int64_t plane_bytes, Transfer transfer, Path path) {
  CallSignature signature;
  std::int64_t* values = signature.values;
  values[kSigNumRanks] = problem.num_ranks;
  values[kSigNumExperts] = problem.num_experts;
  values[kSigHidden] = problem.hidden;
  values[kSigIntermediate] = problem.intermediate;
  values[kSigTopk] = problem.topk;
  values[kSigMaxTokens] = problem.max_tokens;
  values[kSigDType] = static_cast<std::int64_t>(problem.dtype);
  values[kSigLayerTag] = layer_tag;
  values[kSigPartialDType] = static_cast<std::int64_t>(tuning.partial_dtype);
  values[kSigPlaneStride] = plane_bytes;
  values[kSigTransfer] = static_cast<std::int64_t>(transfer);
  values[kSigPath] = static_cast<std::int64_t>(path);
  values[kSigNumChunks] = tuning.chunks.num_chunks;
  for (std::int32_t c = 0; c <= tuning.chunks.num_chunks; ++c)
    values[kSigChunkBegin + c] = tuning.chunks.begin[c];
  return signature;
}

std::string signature_field_name(std::int32_t field) {
  if (field < kSigChunkBegin) return kFieldNames[field];
  return fmt::format("chunk_begin[{}]", field - kSigChunkBegin);
}

Status signature_mismatch(std::int32_t field, std::int32_t rank, std::int64_t value,
                          std::int64_t value_of_rank_0) {
  return Status(StatusCode::kSignatureMismatch, Subsystem::kProtocol,
                {.what = fmt::format("{} of rank {}", signature_field_name(field), rank),
                 .observed = value_text(field, value),
                 .expected = fmt::format("{} as on rank 0", value_text(field, value_of_rank_0)),
                 .hint = way_out(field),
                 .culprit_rank = rank});
}

}  // namespace slipstream
