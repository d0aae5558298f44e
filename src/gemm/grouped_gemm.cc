// Checks a spec, encodes its tensor maps, launches the engine's kernel. See grouped_gemm.h.
#include "gemm/grouped_gemm.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gemm/sm90_launch.h"
#include "gemm/tensor_map.h"

namespace slipstream {

namespace {

constexpr std::int64_t kAlignElements = 8;  // 16 bytes: TMA's and cp.async's granule

Status bad(std::string what, std::string observed, std::string expected, std::string hint = {}) {
  return invalid_argument(Subsystem::kGemm, {.what = std::move(what),
                                             .observed = std::move(observed),
                                             .expected = std::move(expected),
                                             .hint = std::move(hint)});
}

Status cuda_error(const char* what, cudaError_t error) {
  return Status(
      StatusCode::kBackendError, Subsystem::kGemm,
      {.what = what, .observed = cudaGetErrorString(error), .expected = "cudaSuccess", .hint = {}});
}

Status check_width(const char* name, std::int64_t width) {
  if (width > 0 && width % kAlignElements == 0) return Status::ok();
  const std::int64_t below = width / kAlignElements * kAlignElements;
  const std::int64_t above = std::max<std::int64_t>(below, 0) + kAlignElements;
  return bad(name, fmt::format("{}", width), "a positive multiple of 8 (rows of 16 bytes)",
             below > 0
                 ? fmt::format("the nearest widths are {} and {}: pad with zeros", below, above)
                 : fmt::format("the nearest width is {}: pad with zeros", above));
}

Status check_pointer(const char* name, const void* pointer) {
  if (pointer == nullptr) return bad(name, "null", "a device pointer");
  if (reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0) return Status::ok();
  return bad(name, fmt::format("{}", fmt::ptr(pointer)), "a 16-byte aligned pointer",
             "start the slice at a multiple of 8 elements");
}

Status check_tensor(const char* name, const TensorView& tensor, DType dtype, std::int64_t cols) {
  if (tensor.dtype != dtype) {
    return bad(fmt::format("{} dtype", name), std::string(to_string(tensor.dtype)),
               std::string(to_string(dtype)));
  }
  if (tensor.cols != cols)
    return bad(fmt::format("{} columns", name), fmt::format("{}", tensor.cols),
               fmt::format("{}", cols));
  if (tensor.row_stride < cols || tensor.row_stride % kAlignElements != 0) {
    return bad(fmt::format("{} row stride", name), fmt::format("{}", tensor.row_stride),
               fmt::format("a multiple of 8 of at least {}", cols));
  }
  if (tensor.rows < 0)
    return bad(fmt::format("{} rows", name), fmt::format("{}", tensor.rows), "0 or more");
  return tensor.rows == 0 ? Status::ok() : check_pointer(name, tensor.data);
}

ColumnChunks chunks_of(const GroupedGemmSpec& spec) {
  if (spec.chunks.num_chunks > 0) return spec.chunks;
  ColumnChunks one;
  one.num_chunks = 1;
  one.begin[1] = spec.num_columns;
  return one;
}

std::int32_t widest(const ColumnChunks& chunks) {
  std::int32_t width = 0;
  for (std::int32_t c = 0; c < chunks.num_chunks; ++c) width = std::max(width, chunks.width(c));
  return width;
}

Status check_chunks(const GroupedGemmSpec& spec, const ColumnChunks& chunks) {
  if (chunks.num_chunks > kMaxChunks)
    return bad("num_chunks", fmt::format("{}", chunks.num_chunks),
               fmt::format("1..{}", kMaxChunks));
  for (std::int32_t c = 0; c < chunks.num_chunks; ++c) {
    if (chunks.begin[c] % sm90::kStoreColumns != 0 || chunks.width(c) <= 0) {
      return bad(fmt::format("column chunk {}", c),
                 fmt::format("{}..{}", chunks.begin[c], chunks.begin[c + 1]),
                 "a begin that is a multiple of 64 and at least one column");
    }
  }
  if (chunks.begin[0] != 0 || chunks.begin[chunks.num_chunks] != spec.num_columns) {
    return bad("column chunks",
               fmt::format("{}..{}", chunks.begin[0], chunks.begin[chunks.num_chunks]),
               fmt::format("0..{}", spec.num_columns));
  }
  if (spec.ring_planes < 1)
    return bad("ring_planes", fmt::format("{}", spec.ring_planes), "1 or more");
  if (spec.ring_planes > 1 && (spec.plane_stride <= 0 || spec.plane_stride % kAlignElements != 0)) {
    return bad("plane_stride", fmt::format("{}", spec.plane_stride), "a positive multiple of 8");
  }
  return Status::ok();
}

std::int32_t tile_rows_of(const ScheduleShape& shape) {
  return shape.tile_policy == TilePolicy::kFixed128 ? 128 : shape.tile_max_rows;
}

Status check_tables(const GroupedGemmSpec& spec) {
  const ScheduleView& view = spec.schedule;
  if (view.counts == nullptr || view.token_tile == nullptr)
    return bad("schedule", "without counts or token_tile", "device tables");
  if (spec.source == OperandSource::kGather && view.row_source == nullptr)
    return bad("schedule row_source", "null", "a device table for the gather source");
  const std::int32_t tile_rows = tile_rows_of(view.shape);
  if (tile_rows > sm90::kTileMaxRows) {
    return bad("tile_max_rows", fmt::format("{}", tile_rows),
               fmt::format("at most {} on Hopper", sm90::kTileMaxRows));
  }
  if (spec.gate.gates != nullptr && spec.gate.failure == nullptr)
    return bad("gate failure word", "null", "a device word, so that a wait can end");
  return Status::ok();
}

}  // namespace

namespace sm90 {

Status check_spec(const GroupedGemmSpec& spec) {
  if (spec.dtype != DType::kBF16 && spec.dtype != DType::kFP16)
    return bad("dtype", std::string(to_string(spec.dtype)), "bf16 or fp16");
  if (spec.num_experts < 1 || spec.num_experts > kMaxExperts)
    return bad("num_experts", fmt::format("{}", spec.num_experts),
               fmt::format("1..{}", kMaxExperts));
  if (Status s = check_width("the GEMM's K", spec.num_k); !s.is_ok()) return s;
  if (Status s = check_width("the GEMM's output width", spec.num_columns); !s.is_ok()) return s;
  if (Status s = check_pointer("weights", spec.weights); !s.is_ok()) return s;
  if (spec.up != nullptr) {
    if (Status s = check_pointer("up weights", spec.up); !s.is_ok()) return s;
  }
  if (Status s = check_tensor("tokens", spec.tokens, spec.dtype, spec.num_k); !s.is_ok()) return s;
  const ColumnChunks chunks = chunks_of(spec);
  if (Status s = check_chunks(spec, chunks); !s.is_ok()) return s;
  const std::int32_t out_cols = spec.ring_planes > 1 ? widest(chunks) : spec.num_columns;
  if (Status s = check_tensor("out", spec.out, spec.dtype, out_cols); !s.is_ok()) return s;
  return check_tables(spec);
}

// The kernel for the smallest tiles that the schedule's fit in.
Result<Sm90Kernel> find_kernel(const GroupedGemmSpec& spec) {
  const Sm90Kernel* best = nullptr;
  for (const Sm90Kernel& kernel :
       spec.dtype == DType::kBF16 ? sm90_kernels_bf16() : sm90_kernels_fp16()) {
    const Sm90Config& config = kernel.config;
    if (config.source == spec.source && config.epilogue == spec.epilogue &&
        config.tile_rows >= tile_rows_of(spec.schedule.shape) &&
        (best == nullptr || config.tile_rows < best->config.tile_rows)) {
      best = &kernel;
    }
  }
  if (best != nullptr) return *best;
  return Status(StatusCode::kUnsupported, Subsystem::kGemm,
                {.what = "a grouped GEMM of this source and epilogue",
                 .observed = fmt::format("{} {}", static_cast<int>(spec.source),
                                         static_cast<int>(spec.epilogue)),
                 .expected = "one of the kernels in sm90_kernels.cuh",
                 .hint = "use rows + store, rows + SwiGLU or gather + SwiGLU"});
}

// Gate and up may lie anywhere: the map's pair dimension has the distance between them as its
// stride. Strides are positive, so the lower of the two comes first.
static Status weight_map(const GroupedGemmSpec& spec, int rows_per_load, Sm90Params& params) {
  const std::int64_t row_bytes = std::int64_t{spec.num_k} * dtype_bytes(spec.dtype);
  const std::int64_t matrix_bytes = row_bytes * spec.num_columns;
  if (spec.epilogue == EpilogueKind::kStore) {
    return make_tensor_map(params.weights, spec.weights, spec.dtype,
                           {{spec.num_k, 0, kStepK},
                            {spec.num_columns, row_bytes, rows_per_load},
                            {spec.num_experts, matrix_bytes, 1}});
  }
  const auto* gate = static_cast<const char*>(spec.weights);
  const auto* up = spec.up != nullptr ? static_cast<const char*>(spec.up) : gate + matrix_bytes;
  const std::int64_t expert_bytes = spec.up != nullptr ? matrix_bytes : 2 * matrix_bytes;
  params.up_first = up < gate ? 1 : 0;
  return make_tensor_map(params.weights, std::min(gate, up), spec.dtype,
                         {{spec.num_k, 0, kStepK},
                          {8, row_bytes, 8},
                          {2, std::max(gate, up) - std::min(gate, up), 2},
                          {spec.num_columns / 8, 8 * row_bytes, rows_per_load / 16},
                          {spec.num_experts, expert_bytes, 1}});
}

static Status output_map(const GroupedGemmSpec& spec, std::int32_t staging_rows,
                         Sm90Params& params) {
  const std::int64_t row_bytes = spec.out.row_stride * dtype_bytes(spec.dtype);
  const std::int64_t plane_bytes = spec.ring_planes > 1
                                       ? spec.plane_stride * dtype_bytes(spec.dtype)
                                       : row_bytes * spec.out.rows;
  const auto* base = static_cast<const char*>(spec.out.data) - staging_rows * row_bytes;
  return make_tensor_map(params.out, base, spec.dtype,
                         {{spec.out.cols, 0, kStoreColumns},
                          {staging_rows, row_bytes, staging_rows},
                          {spec.out.rows + 1, row_bytes, 1},
                          {spec.ring_planes, plane_bytes, 1}});
}

Status make_params(const GroupedGemmSpec& spec, const Sm90Config& config, int weight_rows_per_load,
                   Sm90Params& params) {
  params = Sm90Params{};
  if (Status s = weight_map(spec, weight_rows_per_load, params); !s.is_ok()) return s;
  if (Status s = output_map(spec, config.staging_rows, params); !s.is_ok()) return s;
  if (spec.source == OperandSource::kRows) {
    const std::int64_t row_bytes = spec.tokens.row_stride * dtype_bytes(spec.dtype);
    for (int i = 0; i < kMaxRowBoxes; ++i) {
      Status s =
          make_tensor_map(params.rows[i], spec.tokens.data, spec.dtype,
                          {{spec.num_k, 0, kStepK}, {spec.tokens.rows, row_bytes, 8 * (i + 1)}});
      if (!s.is_ok()) return s;
    }
  }
  const ScheduleView& view = spec.schedule;
  params.work = {view.counts, view.token_tile, chunks_of(spec), spec.ring_planes, spec.dispenser};
  params.gate = {spec.gate.gates, view.slack, spec.gate.failure, spec.gate.generation,
                 spec.gate.timeout_ns};
  params.done = {spec.done.done, spec.done.stride};
  params.gather = {spec.tokens.data, view.row_source,
                   static_cast<std::int32_t>(spec.tokens.row_stride / kAlignElements),
                   std::max(view.shape.topk, 1)};
  params.num_k = spec.num_k;
  return Status::ok();
}

}  // namespace sm90

std::int32_t preferred_tile_max_rows(std::int64_t num_rows, std::int32_t num_experts) {
  constexpr std::int64_t kFewRows = 24;  // mean; uniform routing then rarely needs two tiles of 64
  return num_rows <= kFewRows * num_experts ? 64 : sm90::kTileMaxRows;
}

struct GroupedGemm::Impl {
  sm90::Sm90Kernel kernel;
  sm90::Sm90Params params;
  std::int32_t num_blocks = 0;  // 0: no rows can ever come
};

Result<GroupedGemm> GroupedGemm::create(const GroupedGemmSpec& spec) {
  if (Status s = sm90::check_spec(spec); !s.is_ok()) return s;
  Result<sm90::Sm90Kernel> kernel = sm90::find_kernel(spec);
  if (!kernel.is_ok()) return kernel.status();
  int device = 0, major = 0, num_multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return cuda_error("looking at the device", error);
  if (major != 9) {
    return Status(StatusCode::kUnsupported, Subsystem::kGemm,
                  {.what = "the device's compute capability",
                   .observed = fmt::format("{}.x", major),
                   .expected = "9.0 (H100, H200)",
                   .hint = "use --backend host"});
  }
  auto impl = std::make_shared<Impl>();
  impl->kernel = kernel.value();
  if (spec.tokens.rows > 0 && spec.out.rows > 0) {
    Status s = sm90::make_params(spec, impl->kernel.config, impl->kernel.weight_rows_per_load,
                                 impl->params);
    if (!s.is_ok()) return s;
    error = cudaFuncSetAttribute(impl->kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 impl->kernel.shared_bytes);
    if (error != cudaSuccess) return cuda_error("asking for shared memory", error);
    const std::int32_t wanted = spec.num_blocks > 0 ? spec.num_blocks : num_multiprocessors;
    const std::int32_t cluster = impl->kernel.cluster_size;
    impl->num_blocks = std::max(wanted / cluster, 1) * cluster;
  }
  return GroupedGemm(std::move(impl));
}

Status GroupedGemm::launch(CUstream_st* stream) const {
  if (impl_->num_blocks == 0) return Status::ok();
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(impl_->kernel.cluster_size), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(impl_->num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(impl_->kernel.num_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(impl_->kernel.shared_bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = impl_->kernel.cluster_size > 1 ? 1 : 0;
  void* arguments[] = {const_cast<sm90::Sm90Params*>(&impl_->params)};
  const cudaError_t error = cudaLaunchKernelExC(&config, impl_->kernel.function, arguments);
  return error == cudaSuccess ? Status::ok() : cuda_error("launching a grouped GEMM", error);
}

std::int32_t GroupedGemm::done_arrivals(std::int32_t chunk) const {
  const std::int32_t width = impl_->params.work.chunks.width(chunk);
  const std::int32_t columns = impl_->kernel.block_columns;
  return (width + columns - 1) / columns * impl_->kernel.cluster_size;
}

}  // namespace slipstream
