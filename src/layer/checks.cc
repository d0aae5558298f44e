#include "layer/checks.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>

namespace slipstream {

namespace {

constexpr std::int64_t kMaxStride = std::numeric_limits<std::int32_t>::max();

Status wrong(std::string what, std::string observed, std::string expected, std::string hint = {}) {
  return invalid_argument(Subsystem::kLayer, {.what = std::move(what),
                                              .observed = std::move(observed),
                                              .expected = std::move(expected),
                                              .hint = std::move(hint)});
}

// `shape` says in the problem's letters where rows and cols come from: "[E * I, H]".
Status check_tensor(const char* name, const char* shape, const TensorView& view, DType dtype,
                    std::int64_t rows, std::int64_t cols) {
  if (view.rows != rows) {
    return wrong(fmt::format("rows of {}", name), fmt::format("{}", view.rows),
                 fmt::format("{} for {}", rows, shape));
  }
  if (rows == 0) return Status::ok();
  if (view.cols != cols) {
    return wrong(fmt::format("columns of {}", name), fmt::format("{}", view.cols),
                 fmt::format("{} for {}", cols, shape));
  }
  if (view.dtype != dtype) {
    return wrong(fmt::format("dtype of {}", name), std::string(to_string(view.dtype)),
                 fmt::format("{}, the problem's", to_string(dtype)));
  }
  if (rows > 1 && (view.row_stride < cols || view.row_stride > kMaxStride)) {
    return wrong(fmt::format("row stride of {}", name), fmt::format("{}", view.row_stride),
                 fmt::format("{}..{} elements", cols, kMaxStride),
                 "rows may lie apart but not in each other; a transposed tensor must be copied");
  }
  if (view.data == nullptr) {
    return wrong(fmt::format("data of {}", name), "null",
                 fmt::format("{} x {} elements", rows, cols),
                 "null is fine for a tensor without rows only");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if (address % static_cast<std::uintptr_t>(dtype_bytes(dtype)) != 0) {
    return wrong(fmt::format("address of {}", name), fmt::format("{:#x}", address),
                 fmt::format("a multiple of {} bytes", dtype_bytes(dtype)));
  }
  return Status::ok();
}

struct ByteSpan {
  std::uintptr_t begin;
  std::uintptr_t end;
};

ByteSpan byte_span(const TensorView& view) {
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  const std::int64_t elements = (view.rows - 1) * view.row_stride + view.cols;
  return {begin, begin + static_cast<std::uintptr_t>(elements * dtype_bytes(view.dtype))};
}

// Routing arrays seen as tensors of 4-byte elements: only their bytes matter here.
TensorView ids_view(const std::int32_t* ids, std::int64_t rows, std::int64_t cols) {
  return dense_view(static_cast<const void*>(ids), DType::kFP32, rows, cols);
}

// `input` may lie exactly where `buffer` begins, dense, or apart from it.
Status check_in_place(const char* name, const TensorView& input, const TensorView& buffer) {
  if (!overlaps(input, buffer)) return Status::ok();
  const bool is_dense = input.rows <= 1 || input.row_stride == input.cols;
  if (input.data == buffer.data && is_dense) return Status::ok();
  return wrong(
      fmt::format("{} inside the layer's own input buffer", name),
      fmt::format("{} bytes from its begin, row stride {}",
                  static_cast<const char*>(input.data) - static_cast<const char*>(buffer.data),
                  input.row_stride),
      fmt::format("its begin and a row stride of {}", input.cols),
      "pass the pointers of input_buffers() as they are, or memory of your own");
}

}  // namespace

bool overlaps(const TensorView& a, const TensorView& b) {
  if (a.empty() || b.empty() || a.data == nullptr || b.data == nullptr) return false;
  const ByteSpan span_a = byte_span(a);
  const ByteSpan span_b = byte_span(b);
  if (span_a.end <= span_b.begin || span_b.end <= span_a.begin) return false;
  const std::int64_t stride_bytes = a.row_stride * dtype_bytes(a.dtype);
  if (a.rows == 1 || b.rows == 1 || stride_bytes != b.row_stride * dtype_bytes(b.dtype))
    return true;
  // Equal strides: rows of b begin at one offset inside the rows of a.
  const auto stride = static_cast<std::uintptr_t>(stride_bytes);
  const auto width_a = static_cast<std::uintptr_t>(a.cols * dtype_bytes(a.dtype));
  const auto width_b = static_cast<std::uintptr_t>(b.cols * dtype_bytes(b.dtype));
  const std::uintptr_t offset = span_b.begin >= span_a.begin
                                    ? (span_b.begin - span_a.begin) % stride
                                    : stride - 1 - (span_a.begin - span_b.begin - 1) % stride;
  return offset < width_a || offset + width_b > stride;
}

Status check_weights(const Problem& problem, const Weights& weights) {
  const std::int64_t experts = problem.num_experts;
  const std::int64_t width = problem.intermediate_per_rank();
  const bool is_fused = weights.gate_up.data != nullptr || weights.gate_up.rows != 0;
  const bool is_apart = weights.gate.data != nullptr || weights.gate.rows != 0 ||
                        weights.up.data != nullptr || weights.up.rows != 0;
  if (is_fused == is_apart) {
    return wrong("weights",
                 is_fused ? "gate_up beside gate or up" : "neither gate_up nor gate and up",
                 "gate_up, or gate and up", "leave the views of the other form empty");
  }
  Status status;
  if (is_fused) {
    status = check_tensor("weights.gate_up", "[E * 2 * I, H]", weights.gate_up, problem.dtype,
                          experts * 2 * width, problem.hidden);
  } else {
    status = check_tensor("weights.gate", "[E * I, H]", weights.gate, problem.dtype,
                          experts * width, problem.hidden);
    if (status.is_ok()) {
      status = check_tensor("weights.up", "[E * I, H]", weights.up, problem.dtype, experts * width,
                            problem.hidden);
    }
  }
  if (!status.is_ok()) return status;
  return check_tensor("weights.down", "[E * H, I]", weights.down, problem.dtype,
                      experts * problem.hidden, width);
}

Status check_call(const Problem& problem, const LayerInput& input, const TensorView& out,
                  const InputBuffers& buffers) {
  const RoutingView& routing = input.routing;
  if (Status status = validate(routing); !status.is_ok()) return status;
  if (routing.num_tokens > problem.max_tokens) {
    return wrong("routing.num_tokens", fmt::format("{}", routing.num_tokens),
                 fmt::format("at most {}, the problem's max_tokens", problem.max_tokens),
                 "create the layer with a larger max_tokens, or run the tokens in several calls");
  }
  // A rank without tokens may leave the whole view empty.
  if (routing.topk != problem.topk && routing.num_tokens > 0) {
    return wrong("routing.topk", fmt::format("{}", routing.topk),
                 fmt::format("{}, the problem's", problem.topk));
  }
  const std::int64_t rows = routing.num_tokens;
  Status status =
      check_tensor("tokens", "[T, H]", input.tokens, problem.dtype, rows, problem.hidden);
  if (!status.is_ok()) return status;
  status = check_tensor("out", "[T, H]", out, problem.dtype, rows, problem.hidden);
  if (!status.is_ok() || rows == 0) return status;

  const TensorView ids = ids_view(routing.topk_ids, rows, problem.topk);
  const TensorView topk_weights =
      dense_view(routing.topk_weights, DType::kFP32, rows, problem.topk);
  const struct {
    const char* name;
    const TensorView& input;
    TensorView buffer;
  } inputs[] = {{"tokens", input.tokens, buffers.tokens},
                {"topk_ids", ids, ids_view(buffers.topk_ids, problem.max_tokens, problem.topk)},
                {"topk_weights", topk_weights,
                 dense_view(buffers.topk_weights, DType::kFP32, problem.max_tokens, problem.topk)}};
  for (const auto& tensor : inputs) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.input.data);
    if (address % static_cast<std::uintptr_t>(dtype_bytes(tensor.input.dtype)) != 0) {
      return wrong(fmt::format("address of {}", tensor.name), fmt::format("{:#x}", address),
                   fmt::format("a multiple of {} bytes", dtype_bytes(tensor.input.dtype)));
    }
    status = check_in_place(tensor.name, tensor.input, tensor.buffer);
    if (!status.is_ok()) return status;
    if (overlaps(out, tensor.input)) {
      return wrong("out", fmt::format("memory that {} also uses", tensor.name), "memory of its own",
                   "the layer does not run in place");
    }
  }
  return Status::ok();
}

}  // namespace slipstream
