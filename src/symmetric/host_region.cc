#include "symmetric/host_region.h"

#include <fmt/format.h>

#include <cstdlib>

namespace slipstream {

namespace {

// calloc zeroes lazily but aligns to 16 bytes only: the block is enlarged and its true address kept
// in the word before the aligned one.
constexpr std::int64_t kSlackBytes = 2 * kRegionAlignment;

}  // namespace

void FreeDeleter::operator()(std::byte* memory) const {
  std::free(reinterpret_cast<void**>(memory)[-1]);
}

AlignedBytes allocate_zeroed(std::int64_t num_bytes) {
  void* block = std::calloc(static_cast<std::size_t>(num_bytes + kSlackBytes), 1);
  if (block == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(block) + sizeof(void*);
  const auto aligned =
      static_cast<std::uintptr_t>(align_region(static_cast<std::int64_t>(address)));
  reinterpret_cast<void**>(aligned)[-1] = block;
  return AlignedBytes(reinterpret_cast<std::byte*>(aligned));
}

Result<std::shared_ptr<HostRegion>> HostRegion::create(const RegionShape& shape) {
  const std::int64_t num_bytes = region_bytes(shape);
  AlignedBytes memory = allocate_zeroed(num_bytes);
  if (memory == nullptr) {
    return Status(StatusCode::kOutOfMemory, Subsystem::kSymmetric,
                  {.what = "symmetric region of this rank",
                   .observed = fmt::format("{} bytes", num_bytes),
                   .expected = "what the machine can give",
                   .hint = "lower max_tokens or hidden"});
  }
  return std::shared_ptr<HostRegion>(new HostRegion(shape, std::move(memory)));
}

}  // namespace slipstream
