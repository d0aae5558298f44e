// TMA tensor maps. See tensor_map.h.
#include "gemm/tensor_map.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

namespace slipstream {

namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// CUDA 12.0 is the first version with tensor maps.
EncodeTiled find_encode_tiled() {
  constexpr unsigned kFirstVersion = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &entry, kFirstVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(entry);
}

}  // namespace

Status make_tensor_map(CUtensorMap& map, const void* base, DType dtype,
                       std::initializer_list<TensorMapDim> dims) {
  static const EncodeTiled encode_tiled = find_encode_tiled();
  if (encode_tiled == nullptr) {
    return Status(StatusCode::kUnsupported, Subsystem::kGemm,
                  {.what = "the CUDA driver",
                   .observed = "without cuTensorMapEncodeTiled",
                   .expected = "12.0 or newer",
                   .hint = "update the driver, or use --backend host"});
  }
  constexpr std::size_t kMaxDims = 5;
  std::array<cuuint64_t, kMaxDims> sizes{};
  std::array<cuuint64_t, kMaxDims> strides{};  // strides[d] belongs to dimension d + 1
  std::array<cuuint32_t, kMaxDims> box{};
  std::array<cuuint32_t, kMaxDims> element_strides{};
  std::size_t d = 0;
  for (const TensorMapDim& dim : dims) {
    sizes[d] = static_cast<cuuint64_t>(dim.size);
    if (d > 0) strides[d - 1] = static_cast<cuuint64_t>(dim.stride_bytes);
    box[d] = static_cast<cuuint32_t>(dim.box);
    element_strides[d] = 1;
    ++d;
  }
  const CUresult result = encode_tiled(
      &map,
      dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      static_cast<cuuint32_t>(dims.size()), const_cast<void*>(base), sizes.data(), strides.data(),
      box.data(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    const std::vector<std::int64_t> seen_sizes(sizes.begin(), sizes.begin() + d);
    const std::vector<std::int64_t> seen_strides(strides.begin(), strides.begin() + d - 1);
    return invalid_argument(
        Subsystem::kGemm,
        {.what = "a tensor for TMA",
         .observed =
             fmt::format("base {}, sizes {}, strides {} bytes (driver error {})", fmt::ptr(base),
                         seen_sizes, seen_strides, static_cast<int>(result)),
         .expected = "a 16-byte aligned base and strides that are multiples of 16 below 2^40",
         .hint = "pass a contiguous tensor of the CUDA device"});
  }
  return Status::ok();
}

}  // namespace slipstream
