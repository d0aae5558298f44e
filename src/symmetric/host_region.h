// HostRegion: the symmetric region of a rank that is a thread: plain memory of this process.
#pragma once

#include <cstdint>
#include <memory>

#include "slipstream/status.h"
#include "symmetric/region_layout.h"

namespace slipstream {

// Memory aligned to kRegionAlignment. Pages that nobody touches cost nothing, so capacities may be
// generous.
struct FreeDeleter {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte, FreeDeleter>;

// Zeroed. Null where the machine has not got that much.
AlignedBytes allocate_zeroed(std::int64_t num_bytes);

class HostRegion {
 public:
  // Errors: kOutOfMemory with the number of bytes.
  static Result<std::shared_ptr<HostRegion>> create(const RegionShape& shape);

  std::byte* base() const { return memory_.get(); }
  const RegionShape& shape() const { return shape_; }

 private:
  HostRegion(const RegionShape& shape, AlignedBytes memory)
      : shape_(shape), memory_(std::move(memory)) {}

  RegionShape shape_;
  AlignedBytes memory_;
};

}  // namespace slipstream
