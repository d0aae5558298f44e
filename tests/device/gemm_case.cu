// GemmCase. See gemm_case.h.
#include "gemm_case.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/numeric.h"

namespace slipstream::testing {

namespace {

constexpr std::uint16_t kPoison = 0xffff;  // a NaN in bf16 and in fp16
constexpr int kGuardRows = 3;              // before and after the output
constexpr int kGuardColumns = 16;          // after every row

std::vector<std::uint16_t> poisoned(std::size_t size) {
  return std::vector<std::uint16_t>(size, kPoison);
}

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::uint16_t next(DType dtype) {
    // 16 bits are enough and a table-free conversion is quick.
    const float value =
        static_cast<float>(static_cast<std::int32_t>(engine_() & 0xffff) - 0x8000) / 32768.0F;
    return dtype == DType::kBF16 ? float_to_bf16(value) : float_to_fp16(value);
  }

 private:
  std::minstd_rand engine_;
};

struct ReferenceArgs {
  const std::uint16_t* weights;
  const std::uint16_t* tokens;
  const std::int32_t* token_of_row;  // -1: no such row
  const std::int32_t* expert_of_row;
  float* out;
  std::int64_t token_stride, expert_stride, gate_offset, up_offset;
  std::int32_t num_rows, columns, k;
  bool swiglu;
};

template <class T>
__device__ float element(const std::uint16_t* p, std::int64_t i) {
  return static_cast<float>(reinterpret_cast<const T*>(p)[i]);
}

template <class T>
__global__ void reference_kernel(ReferenceArgs a) {
  const std::int32_t column = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  const std::int32_t row = static_cast<std::int32_t>(blockIdx.y);
  if (column >= a.columns || a.token_of_row[row] < 0) return;
  const std::int64_t x = a.token_of_row[row] * a.token_stride;
  const std::int64_t w = a.gate_offset + a.expert_of_row[row] * a.expert_stride +
                         static_cast<std::int64_t>(column) * a.k;
  float gate = 0, up = 0;
  for (std::int32_t i = 0; i < a.k; ++i) {
    gate += element<T>(a.tokens, x + i) * element<T>(a.weights, w + i);
    if (a.swiglu) up += element<T>(a.tokens, x + i) * element<T>(a.weights, w + a.up_offset + i);
  }
  a.out[static_cast<std::int64_t>(row) * a.columns + column] =
      a.swiglu ? gate / (1.0F + expf(-gate)) * up : gate;
}

}  // namespace

GemmCase::GemmCase(const GemmShape& shape, const GemmOptions& options, std::int32_t topk,
                   const std::vector<std::int32_t>& topk_ids, std::uint32_t seed)
    : shape_(shape), options_(options) {
  const bool swiglu = options.epilogue == EpilogueKind::kSwiGlu;
  const bool gather = options.source == OperandSource::kGather;
  const auto num_tokens = static_cast<std::int32_t>(topk_ids.size()) / topk;
  ScheduleShape table_shape;
  table_shape.num_experts = shape.num_experts;
  table_shape.topk = topk;
  table_shape.tile_policy = options.tile_policy;
  table_shape.tile_max_rows = options.tile_max_rows;
  const std::int32_t tokens_per_rank[] = {num_tokens};
  schedule = build_golden(table_shape, tokens_per_rank, topk_ids);

  Random random(seed);
  // Tokens: K elements of data a row, then NaN to the stride: a K tail must be zero-filled.
  token_stride_ = shape.k + 8;
  const std::int32_t rows = schedule.counts.num_rows;
  const std::int32_t token_rows = gather ? num_tokens : rows;
  std::vector<std::uint16_t> token_data = poisoned((token_rows + 1) * token_stride_);
  for (std::int32_t r = 0; r < token_rows; ++r) {
    if (!gather && schedule.row_source[r] < 0) continue;  // padding stays NaN
    for (std::int32_t i = 0; i < shape.k; ++i)
      token_data[r * token_stride_ + i] = random.next(options.dtype);
  }
  tokens = DeviceBuffer<std::uint16_t>(token_data);
  tokens_ready = DeviceBuffer<std::uint16_t>(token_data);

  const std::int64_t matrix = std::int64_t{shape.columns} * shape.k;
  const std::int64_t all = matrix * shape.num_experts;
  std::vector<std::uint16_t> weight_data(all * (swiglu ? 2 : 1));
  for (std::uint16_t& w : weight_data) w = random.next(options.dtype);
  weights_ = DeviceBuffer<std::uint16_t>(weight_data);
  const bool apart = options.weights_apart != 0;
  expert_stride_ = swiglu && !apart ? 2 * matrix : matrix;
  gate_offset_ = options.weights_apart == 2 ? all : 0;
  up_offset_ = apart ? (options.weights_apart == 2 ? -all : all) : matrix;

  const bool ring = options.ring_planes > 1;
  std::int32_t out_columns = shape.columns;
  if (ring) {
    out_columns = 0;
    for (std::int32_t c = 0; c < options.chunks.num_chunks; ++c)
      out_columns = std::max(out_columns, options.chunks.width(c));
  }
  out_stride_ = out_columns + kGuardColumns;
  const std::int64_t plane = (rows + 2 * kGuardRows) * out_stride_;
  out_ = DeviceBuffer<std::uint16_t>(poisoned(plane * options.ring_planes));

  counts_ = DeviceBuffer<ScheduleCounts>(std::vector<ScheduleCounts>{schedule.counts});
  token_tile_ = DeviceBuffer<TokenTile>(schedule.token_tile);
  slack_ = DeviceBuffer<std::int32_t>(schedule.slack);
  row_source_ = DeviceBuffer<std::int32_t>(schedule.row_source);
  dispenser_ = DeviceBuffer<protocol::Dispenser>(1);
  failure = DeviceBuffer<protocol::FailureWord>(1);
  failure.fill_bytes(0);
  gates = DeviceBuffer<protocol::TokenGate>(schedule.token_tile.size());
  static_assert(sizeof(protocol::TokenGate) == sizeof(std::int32_t));
  check_cuda(cudaMemcpy(gates.get(), schedule.slack.data(),
                        schedule.slack.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice),
             "seeding gates");
  done = DeviceBuffer<protocol::TileDone>(schedule.token_tile.size() * num_chunks());
  done.fill_bytes(0);

  spec.dtype = options.dtype;
  spec.epilogue = options.epilogue;
  spec.source = options.source;
  spec.num_experts = shape.num_experts;
  spec.num_columns = shape.columns;
  spec.num_k = shape.k;
  spec.weights = weights_.get() + gate_offset_;
  spec.up = apart ? weights_.get() + gate_offset_ + up_offset_ : nullptr;
  spec.tokens = TensorView{tokens.get(), options.dtype, token_rows, shape.k, token_stride_};
  spec.out = TensorView{out_.get() + kGuardRows * out_stride_, options.dtype, rows, out_columns,
                        out_stride_};
  spec.ring_planes = options.ring_planes;
  spec.plane_stride = plane;
  spec.schedule.shape = table_shape;
  spec.schedule.counts = counts_.get();
  spec.schedule.token_tile = token_tile_.get();
  spec.schedule.slack = slack_.get();
  spec.schedule.row_source = row_source_.get();
  spec.chunks = options.chunks;
  spec.done = {done.get(), static_cast<std::int32_t>(schedule.token_tile.size())};
  spec.dispenser = options.dispenser ? dispenser_.get() : nullptr;
}

std::int32_t GemmCase::num_chunks() const { return std::max(options_.chunks.num_chunks, 1); }

std::string GemmCase::run(cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(dispenser_.get(), 0, sizeof(protocol::Dispenser), stream),
             "seeding the dispenser");
  Result<GroupedGemm> gemm = GroupedGemm::create(spec);
  if (!gemm.is_ok()) return gemm.status().message();
  if (Status s = gemm.value().launch(stream); !s.is_ok()) return s.message();
  if (stream != nullptr) return "";
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return cudaGetErrorString(error);
  const std::vector<protocol::TileDone> counts = done.download();
  const auto num_tiles = static_cast<std::int32_t>(schedule.token_tile.size());
  for (std::int32_t i = 0; i < num_tiles * num_chunks(); ++i) {
    std::int32_t count = 0;
    std::memcpy(&count, &counts[i], sizeof(count));
    if (count != gemm.value().done_arrivals(i / num_tiles))
      return "done count of (chunk, tile) " + std::to_string(i) + " is " + std::to_string(count) +
             ", expected " + std::to_string(gemm.value().done_arrivals(i / num_tiles));
  }
  return "";
}

std::size_t GemmCase::out_index(std::int32_t row, std::int32_t column) const {
  std::int64_t plane = 0;
  if (options_.ring_planes > 1) {
    std::int32_t c = 0;
    while (column >= options_.chunks.begin[c + 1]) ++c;
    plane = c % options_.ring_planes;
    column -= options_.chunks.begin[c];
  }
  return plane * spec.plane_stride + (row + kGuardRows) * out_stride_ + column;
}

std::string GemmCase::compare_row(std::int32_t row, const float* reference,
                                  const std::vector<std::uint16_t>& out) const {
  // bf16 keeps 8 bits, fp16 11: one rounding of the result, and fp32 sums in another order.
  const double limit = options_.dtype == DType::kBF16 ? 4e-3 : 1e-3;
  double difference = 0, norm = 1e-30;
  for (std::int32_t c = 0; c < shape_.columns; ++c) {
    const std::uint16_t bits = out[out_index(row, c)];
    const float value = options_.dtype == DType::kBF16 ? bf16_to_float(bits) : fp16_to_float(bits);
    if (!std::isfinite(value))
      return "row " + std::to_string(row) + " column " + std::to_string(c) + " is not finite";
    difference += (value - reference[c]) * (value - reference[c]);
    norm += static_cast<double>(reference[c]) * reference[c];
  }
  const double error = std::sqrt(difference / norm);
  if (error < limit) return "";
  return "row " + std::to_string(row) + " has relative error " + std::to_string(error);
}

std::string GemmCase::check(const std::vector<bool>& expected_tiles) {
  const std::int32_t rows = schedule.counts.num_rows;
  const bool gather = options_.source == OperandSource::kGather;
  std::vector<std::int32_t> token_of_row(rows, -1), expert_of_row(rows, 0);
  std::vector<bool> written(rows, false);
  for (std::size_t t = 0; t < schedule.token_tile.size(); ++t) {
    const TokenTile& tile = schedule.token_tile[t];
    for (std::int32_t r = tile.row_begin; r < tile.row_begin + tile.num_rows; ++r) {
      token_of_row[r] = gather ? schedule.row_source[r] / schedule.shape.topk : r;
      expert_of_row[r] = tile.expert;
      written[r] = expected_tiles.empty() || expected_tiles[t];
    }
  }
  std::vector<float> reference(static_cast<std::size_t>(rows) * shape_.columns);
  if (rows > 0) {
    DeviceBuffer<std::int32_t> device_token(token_of_row), device_expert(expert_of_row);
    DeviceBuffer<float> device_out(reference.size());
    const ReferenceArgs args{weights_.get(),
                             tokens_ready.get(),
                             device_token.get(),
                             device_expert.get(),
                             device_out.get(),
                             token_stride_,
                             expert_stride_,
                             gate_offset_,
                             up_offset_,
                             rows,
                             shape_.columns,
                             shape_.k,
                             options_.epilogue == EpilogueKind::kSwiGlu};
    const dim3 grid((shape_.columns + 127) / 128, rows);
    if (options_.dtype == DType::kBF16)
      reference_kernel<__nv_bfloat16><<<grid, 128>>>(args);
    else
      reference_kernel<__half><<<grid, 128>>>(args);
    check_cuda(cudaGetLastError(), "the reference");
    reference = device_out.download();
  }
  const std::vector<std::uint16_t> out = out_.download();
  std::vector<bool> owned(out.size(), false);
  for (std::int32_t r = 0; r < rows; ++r) {
    if (token_of_row[r] < 0) continue;
    for (std::int32_t c = 0; c < shape_.columns; ++c) owned[out_index(r, c)] = true;
    if (!written[r]) continue;
    std::string message = compare_row(r, &reference[std::size_t(r) * shape_.columns], out);
    if (!message.empty()) return message;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    // A ring plane is as wide as the widest chunk; a narrower one's last store may reach beyond it.
    const auto column = static_cast<std::int64_t>(i) % out_stride_;
    if (owned[i] || out[i] == kPoison) continue;
    if (options_.ring_planes > 1 && column < spec.out.cols && out[i] == 0) continue;
    return "element " + std::to_string(i) + " belongs to nobody and was written";
  }
  return "";
}

}  // namespace slipstream::testing
