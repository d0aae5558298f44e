// Every mistake in an argument is a sentence with the tensor, the value and the way out, and leaves
// the layer usable.
#include "layer/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "layer_fixture.h"
#include "slipstream/layer.h"

namespace slipstream::testing {
namespace {

using ::testing::HasSubstr;

// One rank, so that a mistake found early keeps nobody waiting.
struct OneRank {
  Problem problem = small_problem(1);
  std::vector<RankWeights> weights = random_weights(problem, 1);
  RankGroup group = RankGroup::in_process(1).value();

  std::string create_error(const Problem& p, const Weights& w, const LayerOptions& o = {},
                           int rank = 0) const {
    const auto layer = Layer::create(p, group, rank, w, o);
    EXPECT_FALSE(layer.is_ok());
    return layer.status().message();
  }
};

TEST(LayerCreate, RefusesWrongWeights) {
  const OneRank one;
  const Weights good = one.weights[0].view();
  const auto error = [&](auto&& change) {
    Weights weights = good;
    change(weights);
    return one.create_error(one.problem, weights);
  };
  EXPECT_THAT(error([](Weights& w) { w.gate_up.rows -= 1; }),
              HasSubstr("rows of weights.gate_up is 191, expected 192 for [E * 2 * I, H]"));
  EXPECT_THAT(error([](Weights& w) { w.down.cols += 1; }),
              HasSubstr("columns of weights.down is 25, expected 24"));
  EXPECT_THAT(error([](Weights& w) { w.down.dtype = DType::kBF16; }),
              HasSubstr("dtype of weights.down is bf16, expected fp32"));
  EXPECT_THAT(error([](Weights& w) { w.down.row_stride = 23; }),
              HasSubstr("row stride of weights.down is 23, expected 24.."));
  EXPECT_THAT(error([](Weights& w) { w.down.row_stride = -24; }), HasSubstr("is -24"));
  EXPECT_THAT(error([](Weights& w) { w.down.data = nullptr; }),
              HasSubstr("data of weights.down is null"));
  EXPECT_THAT(error([](Weights& w) { w.down.data = static_cast<char*>(w.down.data) + 2; }),
              HasSubstr("address of weights.down"));
  EXPECT_THAT(error([](Weights& w) { w.gate = w.gate_up; }),
              HasSubstr("weights is gate_up beside gate or up"));
  EXPECT_THAT(error([](Weights& w) { w.gate_up = {}; }),
              HasSubstr("neither gate_up nor gate and up"));
  EXPECT_THAT(error([](Weights& w) {
                w.gate = w.gate_up;
                w.gate.rows /= 2;
                w.gate_up = {};
              }),
              HasSubstr("rows of weights.up is 0, expected 96"));
}

TEST(LayerCreate, RefusesWrongOptions) {
  const OneRank one;
  const Weights weights = one.weights[0].view();
  LayerOptions options;
  options.threads_per_rank = 0;
  EXPECT_THAT(one.create_error(one.problem, weights, options),
              HasSubstr("threads_per_rank is 0, expected 1..1024"));
  options = {};
  options.timeout = std::chrono::milliseconds(0);
  EXPECT_THAT(one.create_error(one.problem, weights, options), HasSubstr("timeout is 0 ms"));
  options = {};
  options.tuning = Tuning{};
  EXPECT_THAT(one.create_error(one.problem, weights, options),
              HasSubstr("width of a column chunk is 0"));
  EXPECT_THAT(one.create_error(one.problem, weights, {}, 1), HasSubstr("rank is 1, expected 0..0"));
  EXPECT_THAT(one.create_error(small_problem(2), weights),
              HasSubstr("num_ranks of the problem is 2"));
  Problem problem = one.problem;
  problem.hidden = 0;
  EXPECT_THAT(one.create_error(problem, weights), HasSubstr("hidden is 0"));
  options = {};
  options.backend = Backend::kCuda;
  const auto cuda = Layer::create(one.problem, one.group, 0, weights, options);
  EXPECT_EQ(cuda.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(cuda.status().message(), HasSubstr("use backend host or auto"));
}

TEST(LayerCreate, RefusesAWorkspaceThatIsTooSmallOrSomebodyElses) {
  const OneRank one;
  Problem limits = one.problem;
  limits.hidden = 39;
  LayerOptions options;
  options.workspace = Workspace::create(limits, one.group, 0).value();
  EXPECT_THAT(one.create_error(one.problem, one.weights[0].view(), options),
              HasSubstr("hidden of the layer is 40, expected at most 39"));
  options.workspace = Workspace::create(one.problem, RankGroup::in_process(1).value(), 0).value();
  EXPECT_THAT(one.create_error(one.problem, one.weights[0].view(), options),
              HasSubstr("another group"));
}

TEST(LayerCreate, GroupsHaveOneToEightRanks) {
  EXPECT_THAT(RankGroup::in_process(0).status().message(),
              HasSubstr("num_ranks is 0, expected 1..8"));
  EXPECT_FALSE(RankGroup::in_process(9).is_ok());
}

TEST(LayerCreate, NamesTheRankThatNeverComes) {
  const Problem problem = small_problem(3);
  const RankGroup group = RankGroup::in_process(3).value();
  const auto statuses = on_all_ranks(3, [&](int rank) {
    if (rank == 1) return Status::ok();
    return Workspace::create(problem, group, rank, Backend::kHost, std::chrono::milliseconds(50))
        .status();
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].code(), StatusCode::kTimeout);
    EXPECT_EQ(statuses[rank].culprit_rank(), 1) << statuses[rank].message();
  }
}

TEST(LayerCreate, RanksMustAgreeOnTheWorkspace) {
  const RankGroup group = RankGroup::in_process(2).value();
  const auto statuses = on_all_ranks(2, [&](int rank) {
    Problem problem = small_problem(2);
    if (rank == 1) problem.max_tokens += 1;
    return Workspace::create(problem, group, rank).status();
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("max_tokens of rank 1 is 41, expected 40 as on rank 0"));
  }
}

struct OneLayer : OneRank {
  LayerGroup group{problem, weights, LayerOptions{}};
  std::vector<RankData> inputs = random_inputs(problem, {6}, 2);
  GuardedTensor out{DType::kFP32, 6, 40, 0};

  std::string run_error(const LayerInput& input, const TensorView& view) {
    const Status status = group.layers[0].run(input, view);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  }
};

TEST(LayerRun, RefusesWrongInputsAndGoesOn) {
  OneLayer one;
  const LayerInput good = one.inputs[0].input();
  const TensorView out = one.out.view();
  const auto error = [&](auto&& change) {
    LayerInput input = good;
    TensorView view = out;
    change(input, view);
    return one.run_error(input, view);
  };
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.tokens.rows = 5; }),
              HasSubstr("rows of tokens is 5, expected 6"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.tokens.cols = 39; }),
              HasSubstr("columns of tokens is 39"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.tokens.dtype = DType::kFP16; }),
              HasSubstr("dtype of tokens is fp16, expected fp32"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.tokens.row_stride = 8; }),
              HasSubstr("row stride of tokens is 8"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.tokens.data = nullptr; }),
              HasSubstr("data of tokens is null"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.routing.topk = 3; }),
              HasSubstr("routing.topk is 3, expected 2"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.routing.num_tokens = 41; }),
              HasSubstr("routing.num_tokens is 41, expected at most 40"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.routing.num_tokens = -1; }),
              HasSubstr("num_tokens is -1"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) { i.routing.topk_ids = nullptr; }),
              HasSubstr("topk_ids is null"));
  EXPECT_THAT(error([](LayerInput& i, TensorView&) {
                i.routing.topk_ids = reinterpret_cast<const std::int32_t*>(
                    reinterpret_cast<const char*>(i.routing.topk_ids) + 1);
              }),
              HasSubstr("address of topk_ids"));
  EXPECT_THAT(error([](LayerInput&, TensorView& o) { o.rows = 7; }), HasSubstr("rows of out is 7"));
  EXPECT_THAT(error([](LayerInput& i, TensorView& o) { o.data = i.tokens.data; }),
              HasSubstr("out is memory that tokens also uses"));
  const CallResult result = run_call(one.group.layers, one.inputs);
  EXPECT_TRUE(result.status.is_ok());
  EXPECT_LE(error_of(one.problem, result, one.inputs, one.weights), 1e-6);
}

TEST(LayerRun, RefusesHalfAnInputBuffer) {
  OneLayer one;
  LayerInput input = one.inputs[0].input();
  const InputBuffers buffers = one.group.layers[0].input_buffers();
  input.tokens = dense_view(static_cast<float*>(buffers.tokens.data) + 40, DType::kFP32, 6, 40);
  EXPECT_THAT(one.run_error(input, one.out.view()),
              HasSubstr("tokens inside the layer's own input buffer is 160 bytes from its begin"));
}

TEST(Overlaps, KnowsSlicesOfAWiderTensor) {
  float memory[64];
  const auto slice = [&](std::int64_t begin, std::int64_t rows, std::int64_t cols,
                         std::int64_t stride) {
    TensorView view = dense_view(memory + begin, DType::kFP32, rows, cols);
    view.row_stride = stride;
    return view;
  };
  EXPECT_FALSE(overlaps(slice(0, 4, 8, 16), slice(8, 4, 8, 16)));
  EXPECT_FALSE(overlaps(slice(8, 4, 8, 16), slice(0, 4, 8, 16)));
  EXPECT_TRUE(overlaps(slice(0, 4, 9, 16), slice(8, 4, 8, 16)));
  EXPECT_TRUE(overlaps(slice(8, 4, 8, 16), slice(0, 4, 9, 16)));
  EXPECT_TRUE(overlaps(slice(0, 4, 8, 16), slice(12, 3, 8, 16)));  // wraps into the next row
  EXPECT_FALSE(overlaps(slice(0, 2, 8, 8), slice(16, 2, 8, 8)));
  EXPECT_TRUE(overlaps(slice(0, 2, 8, 8), slice(15, 2, 8, 8)));
  EXPECT_TRUE(overlaps(slice(0, 4, 2, 16), slice(17, 1, 4, 4)));
  EXPECT_FALSE(overlaps(slice(0, 2, 8, 8), TensorView{}));
}

TEST(Backends, HaveNames) {
  EXPECT_EQ(parse_backend("host").value(), Backend::kHost);
  EXPECT_EQ(parse_backend("auto").value(), Backend::kAuto);
  EXPECT_THAT(parse_backend("gpu").status().message(), HasSubstr("backend is 'gpu'"));
}

}  // namespace
}  // namespace slipstream::testing
