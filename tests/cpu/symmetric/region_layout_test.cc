#include "symmetric/region_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "symmetric/host_region.h"

namespace slipstream {
namespace {

struct Field {
  std::uintptr_t begin;
  std::int64_t bytes;
};

std::vector<Field> fields_of(const RegionShape& shape, std::byte* base) {
  Region region = region_at(base, shape);
  std::vector<Field> fields;
  for_each_region_field(shape, region, [&](auto*& pointer, std::int64_t bytes) {
    fields.push_back({reinterpret_cast<std::uintptr_t>(pointer), bytes});
  });
  return fields;
}

TEST(RegionLayout, FieldsAreAlignedDisjointAndInside) {
  for (const Problem limits : {Problem{.num_ranks = 8,
                              .num_experts = 4,
                              .hidden = 7,
                              .intermediate = 8,
                              .topk = 3,
                              .max_tokens = 13,
                              .dtype = DType::kBF16},
                               Problem{.num_ranks = 1,
                               .num_experts = 1,
                               .hidden = 1,
                               .intermediate = 1,
                               .topk = 1,
                               .max_tokens = 0,
                               .dtype = DType::kFP32}}) {
    const RegionShape shape = region_shape(limits);
    auto region = HostRegion::create(shape);
    ASSERT_TRUE(region.is_ok());
    std::byte* base = region.value()->base();
    auto end = reinterpret_cast<std::uintptr_t>(base);
    EXPECT_EQ(end % kRegionAlignment, 0U);
    for (const Field& field : fields_of(shape, base)) {
      EXPECT_EQ(field.begin % kRegionAlignment, 0U);
      EXPECT_GE(field.begin, end);
      end = field.begin + static_cast<std::uintptr_t>(field.bytes);
    }
    EXPECT_LE(end, reinterpret_cast<std::uintptr_t>(base) + region_bytes(shape));
  }
}

TEST(RegionLayout, SizesHoldTheLargestCall) {
  const Problem limits{.num_ranks = 2,
                       .num_experts = 4,
                       .hidden = 5,
                       .intermediate = 2,
                       .topk = 3,
                       .max_tokens = 11,
                       .dtype = DType::kFP16};
  const RegionShape shape = region_shape(limits);
  alignas(kRegionAlignment) static std::byte base[1];
  const auto fields = fields_of(shape, base);
  EXPECT_EQ(fields[0].bytes, 11 * 5 * 2);  // tokens
  EXPECT_EQ(fields[1].bytes, 11 * 3 * 4);  // ids
  EXPECT_EQ(fields[2].bytes, 11 * 3 * 4);  // weights
  EXPECT_GE(shape.plane_bytes(), 11 * 5 * 4);
  EXPECT_EQ(shape.plane_bytes() % kRegionAlignment, 0);
}

TEST(RegionLayout, SignalsAreAlignedAndInside) {
  const RegionShape shape{
      .num_ranks = 3, .topk = 1, .max_tokens = 1, .token_row_bytes = 4, .partial_row_bytes = 4};
  auto host_region = HostRegion::create(shape);
  ASSERT_TRUE(host_region.is_ok());
  const Region region = region_at(host_region.value()->base(), shape);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.signals) % alignof(protocol::RankSignals), 0U);
  EXPECT_LE(reinterpret_cast<std::byte*>(region.signals + 1),
            host_region.value()->base() + region_bytes(shape));
}

TEST(HostRegion, IsZeroedAndSaysHowMuchItWanted) {
  RegionShape shape{
      .num_ranks = 2, .topk = 2, .max_tokens = 9, .token_row_bytes = 12, .partial_row_bytes = 12};
  auto region = HostRegion::create(shape);
  ASSERT_TRUE(region.is_ok());
  for (std::int64_t i = 0; i < region_bytes(shape); ++i)
    ASSERT_EQ(region.value()->base()[i], std::byte{0}) << i;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those abort instead
  shape.token_row_bytes = std::int64_t{1} << 58;
  const auto failed = HostRegion::create(shape);
  EXPECT_EQ(failed.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(failed.status().message().find("bytes"), std::string::npos);
#endif
}

}  // namespace
}  // namespace slipstream
