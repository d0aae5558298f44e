// TMA tensor maps: one checked call over cuTensorMapEncodeTiled, which is looked up at run time so
// that the library does not link the driver.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "slipstream/status.h"
#include "slipstream/tensor.h"

namespace slipstream {

// Dimensions from the innermost; `stride_bytes` belongs to the same dimension and is not read for
// the innermost, whose elements are adjacent. Strides may repeat: dimensions may overlap.
struct TensorMapDim {
  std::int64_t size;
  std::int64_t stride_bytes;
  std::int32_t box;
};

// A map of 16-bit elements with the 128-byte swizzle; elements outside read as zero and are not
// written. Errors: kUnsupported without a driver that has tensor maps, kInvalidArgument with the
// values where the driver refuses them.
Status make_tensor_map(CUtensorMap& map, const void* base, DType dtype,
                       std::initializer_list<TensorMapDim> dims);

}  // namespace slipstream
