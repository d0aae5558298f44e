#include "slipstream/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream {
namespace {

using testing::HasSubstr;

Problem problem_with_hidden(std::int32_t hidden) {
  return Problem{.num_ranks = 2,
                 .num_experts = 8,
                 .hidden = hidden,
                 .intermediate = 64,
                 .topk = 2,
                 .max_tokens = 64,
                 .dtype = DType::kBF16};
}

TEST(Tuning, EvenChunksCoverAnyWidth) {
  for (std::int32_t hidden : {1, 63, 64, 65, 96, 2048, 2880, 5120, 7168}) {
    for (std::int32_t wanted : {1, 2, 3, 7, 8, 32}) {
      const ColumnChunks chunks = even_chunks(hidden, wanted);
      EXPECT_LE(chunks.num_chunks, wanted);
      EXPECT_EQ(chunks.begin[0], 0);
      EXPECT_EQ(chunks.begin[chunks.num_chunks], hidden);
      for (int c = 0; c < chunks.num_chunks; ++c) {
        EXPECT_GT(chunks.width(c), 0) << hidden << " " << wanted;
        EXPECT_EQ(chunks.begin[c] % 64, 0);
      }
    }
  }
}

TEST(Tuning, DefaultsAreValidForEveryShape) {
  for (std::int32_t hidden : {1, 96, 2880, 7168}) {
    for (std::int64_t tokens : {0, 1, 256, 257, 100000}) {
      const Problem problem = problem_with_hidden(hidden);
      const Status status = validate(default_tuning(problem, tokens), problem);
      EXPECT_TRUE(status.is_ok()) << status.message();
    }
  }
}

TEST(Tuning, RefusesWhatItCannotServe) {
  const Problem problem = problem_with_hidden(128);
  Tuning tuning = default_tuning(problem, 1);
  tuning.tile_max_rows = 100;
  EXPECT_THAT(validate(tuning, problem).message(), HasSubstr("tile_max_rows is 100"));
  tuning = default_tuning(problem, 1);
  tuning.chunks.begin[1] = 0;
  EXPECT_THAT(validate(tuning, problem).message(), HasSubstr("column chunk is 0"));
  tuning = default_tuning(problem, 1);
  tuning.chunks.begin[tuning.chunks.num_chunks] = 120;
  EXPECT_THAT(validate(tuning, problem).message(), HasSubstr("expected hidden, 128"));
  tuning = default_tuning(problem, 1);
  tuning.partial_dtype = DType::kFP16;
  EXPECT_THAT(validate(tuning, problem).message(), HasSubstr("overflows"));
}

TEST(Tuning, NamesRoundTrip) {
  for (TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128})
    EXPECT_EQ(parse_tile_policy(to_string(policy)).value(), policy);
  for (RowOrder order : {RowOrder::kLocalFirst, RowOrder::kAscending})
    EXPECT_EQ(parse_row_order(to_string(order)).value(), order);
  EXPECT_THAT(parse_delivery("teleport").status().message(), HasSubstr("gather or scatter"));
}

}  // namespace
}  // namespace slipstream
