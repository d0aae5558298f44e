#include "check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "core/numeric.h"
#include "reference/reference_layer.h"
#include "reference/relative_error.h"

namespace slipstream::cli {

namespace {

// About 5 s of the reference on two cores; it computes each row on its own.
constexpr double kCheckFlops = 2e10;

// Indices of `wanted` tokens out of `count`, first and last among them when there is room.
std::vector<std::int64_t> spread_tokens(std::int64_t count, std::int64_t wanted) {
  std::vector<std::int64_t> tokens;
  wanted = std::min(count, wanted);
  for (std::int64_t i = 0; i < wanted; ++i)
    tokens.push_back(wanted == 1 ? 0 : i * (count - 1) / (wanted - 1));
  return tokens;
}

// The chosen tokens of a run as a smaller run.
struct Selection {
  LayerData data;                                 // weights stay empty: views come from the whole
  std::vector<std::vector<std::int64_t>> tokens;  // [W], local indices
};

Problem without_weights(Problem problem) {
  problem.num_experts = 0;
  return problem;
}

Selection select_tokens(const LayerData& data) {
  const Problem& problem = data.problem();
  const double flops_per_token =
      6.0 * problem.topk * problem.hidden * static_cast<double>(problem.intermediate);
  const auto budget = static_cast<std::int64_t>(kCheckFlops / flops_per_token);
  std::int64_t total = 0;
  for (int r = 0; r < data.num_ranks(); ++r) total += data.rank(r).num_tokens;

  std::vector<std::vector<std::int64_t>> tokens;
  std::vector<std::int32_t> counts;
  for (int r = 0; r < data.num_ranks(); ++r) {
    const std::int64_t count = data.rank(r).num_tokens;
    const std::int64_t share =
        total <= budget ? count : std::max<std::int64_t>(2, budget * count / total);
    tokens.push_back(spread_tokens(count, share));
    counts.push_back(static_cast<std::int32_t>(tokens.back().size()));
  }
  Selection selection{LayerData(without_weights(problem), counts), std::move(tokens)};
  const std::int64_t row_bytes = std::int64_t{problem.hidden} * dtype_bytes(problem.dtype);
  for (int r = 0; r < data.num_ranks(); ++r) {
    const RankData& source = data.rank(r);
    RankData& target = selection.data.rank(r);
    std::int64_t i = 0;
    for (std::int64_t t : selection.tokens[static_cast<std::size_t>(r)]) {
      std::memcpy(target.tokens.data() + i * row_bytes, source.tokens.data() + t * row_bytes,
                  static_cast<std::size_t>(row_bytes));
      std::copy_n(source.topk_ids.begin() + t * problem.topk, problem.topk,
                  target.topk_ids.begin() + i * problem.topk);
      std::copy_n(source.topk_weights.begin() + t * problem.topk, problem.topk,
                  target.topk_weights.begin() + i * problem.topk);
      ++i;
    }
  }
  return selection;
}

TensorView row_of(const TensorView& view, std::int64_t row) {
  return dense_view(
      static_cast<const std::byte*>(view.data) + row * view.row_stride * dtype_bytes(view.dtype),
      view.dtype, 1, view.cols);
}

}  // namespace

double error_tolerance(DType dtype, DType partial_dtype) {
  const auto of = [](DType type) {
    switch (type) {
      case DType::kFP32: return 1e-6;
      case DType::kFP16: return 1e-3;
      case DType::kBF16: return 8e-3;
    }
    return 0.0;
  };
  return std::max(of(dtype), of(partial_dtype));
}

CheckResult check_outputs(const LayerData& data, const Tuning& tuning,
                          const std::vector<TensorView>& outs) {
  const Problem& problem = data.problem();
  const Selection selection = select_tokens(data);
  const std::vector<std::vector<double>> reference =
      reference_layer<double>(problem, selection.data.inputs(), data.weights());

  CheckResult result;
  result.tolerance = error_tolerance(problem.dtype, tuning.partial_dtype);
  result.row_tolerance = 4 * result.tolerance;
  const std::int64_t hidden = problem.hidden;
  std::vector<float> all_out;
  std::vector<double> all_reference;
  std::int64_t first_token = 0;
  for (std::size_t r = 0; r < outs.size(); ++r) {
    std::int64_t i = 0;
    for (std::int64_t t : selection.tokens[r]) {
      const std::span<const double> row(&reference[r][static_cast<std::size_t>(i * hidden)],
                                        static_cast<std::size_t>(hidden));
      const TensorView out_row = row_of(outs[r], t);
      const double error = slipstream::relative_error(out_row, row);
      if (!(error <= result.worst_row_error)) {
        result.worst_row_error = error;
        result.worst_token = first_token + t;
      }
      all_reference.insert(all_reference.end(), row.begin(), row.end());
      all_out.resize(all_reference.size());
      to_float(out_row.data, out_row.dtype, hidden, &all_out[all_out.size() - row.size()]);
      ++i;
    }
    result.num_tokens += i;
    result.total_tokens += outs[r].rows;
    first_token += outs[r].rows;
  }
  result.relative_error = slipstream::relative_error(
      dense_view(all_out.data(), DType::kFP32, result.num_tokens, hidden),
      std::span<const double>(all_reference));
  result.is_passed =
      result.relative_error <= result.tolerance && result.worst_row_error <= result.row_tolerance;
  return result;
}

}  // namespace slipstream::cli
