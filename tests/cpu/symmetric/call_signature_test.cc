#include "symmetric/call_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream {
namespace {

using testing::HasSubstr;

const Problem kProblem{.num_ranks = 2,
                       .num_experts = 4,
                       .hidden = 256,
                       .intermediate = 64,
                       .topk = 2,
                       .max_tokens = 16,
                       .dtype = DType::kBF16};

CallSignature signature_of(const Problem& problem, const Tuning& tuning, int layer_tag = 0) {
  return make_signature(problem, tuning, layer_tag, 4096, Transfer::kPush, Path::kFused);
}

TEST(CallSignature, IgnoresWhatMayDifferPerRank) {
  Tuning tuning = default_tuning(kProblem, 1024);
  const CallSignature a = signature_of(kProblem, tuning);
  tuning.delivery = Delivery::kScatter;
  tuning.tile_policy = TilePolicy::kFixed128;
  tuning.row_order = RowOrder::kAscending;
  tuning.tile_max_rows = 64;
  tuning.num_segments = 3;
  tuning.ring_chunks = 1;
  EXPECT_EQ(first_difference(a.values, signature_of(kProblem, tuning).values), -1);
}

TEST(CallSignature, FindsEveryWireField) {
  const Tuning tuning = default_tuning(kProblem, 1024);
  const CallSignature a = signature_of(kProblem, tuning);
  const auto differs_in = [&](const CallSignature& b) {
    const std::int32_t field = first_difference(a.values, b.values);
    return field < 0 ? std::string("nothing") : signature_field_name(field);
  };
  Problem problem = kProblem;
  problem.num_experts = 5;
  EXPECT_EQ(differs_in(signature_of(problem, tuning)), "num_experts");
  problem = kProblem;
  problem.dtype = DType::kFP16;
  EXPECT_EQ(differs_in(signature_of(problem, tuning)), "dtype");
  problem = kProblem;
  problem.max_tokens = 17;
  EXPECT_EQ(differs_in(signature_of(problem, tuning)), "max_tokens");
  EXPECT_EQ(differs_in(signature_of(kProblem, tuning, 3)), "layer_tag");
  Tuning other = tuning;
  other.partial_dtype = DType::kBF16;
  EXPECT_EQ(differs_in(signature_of(kProblem, other)), "partial_dtype");
  other = tuning;
  other.chunks.begin[1] += 8;
  EXPECT_EQ(differs_in(signature_of(kProblem, other)), "chunk_begin[1]");
  other = tuning;
  other.chunks = even_chunks(256, 2);
  EXPECT_EQ(differs_in(signature_of(kProblem, other)), "num_chunks");
  EXPECT_EQ(differs_in(make_signature(kProblem, tuning, 0, 8192, Transfer::kPush, Path::kFused)),
            "plane_stride");
  EXPECT_EQ(differs_in(make_signature(kProblem, tuning, 0, 4096, Transfer::kPull, Path::kFused)),
            "transfer");
  EXPECT_EQ(differs_in(make_signature(kProblem, tuning, 0, 4096, Transfer::kPush, Path::kSerial)),
            "path");
}

TEST(CallSignature, SentenceNamesFieldRankAndBothValues) {
  const Status tag = signature_mismatch(kSigLayerTag, 1, 7, 3);
  EXPECT_EQ(tag.code(), StatusCode::kSignatureMismatch);
  EXPECT_EQ(tag.culprit_rank(), 1);
  EXPECT_THAT(tag.message(), HasSubstr("layer_tag of rank 1 is 7, expected 3 as on rank 0"));
  EXPECT_THAT(signature_mismatch(kSigDType, 2, 1, 0).message(),
              HasSubstr("dtype of rank 2 is fp16, expected bf16"));
  EXPECT_THAT(signature_mismatch(kSigChunkBegin + 2, 1, 64, 128).message(),
              HasSubstr("chunk_begin[2] of rank 1 is 64, expected 128"));
}

}  // namespace
}  // namespace slipstream
