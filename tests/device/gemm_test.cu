// The Hopper grouped GEMM against a naive product in fp32: every kernel, dtype and kind of routing;
// ragged widths; closed gates; chunks and rings. Skipped without a Hopper GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "gemm_case.h"

namespace slipstream::testing {
namespace {

bool has_hopper() {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

class GemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_hopper()) GTEST_SKIP() << "needs a GPU of compute capability 9.0";
  }
};

struct KernelKind {
  const char* name;
  EpilogueKind epilogue;
  OperandSource source;
  std::int32_t tile_max_rows;
};
constexpr KernelKind kKernels[] = {
    {"down rows", EpilogueKind::kStore, OperandSource::kRows, 288},
    {"gate/up rows", EpilogueKind::kSwiGlu, OperandSource::kRows, 288},
    {"gate/up gather", EpilogueKind::kSwiGlu, OperandSource::kGather, 288},
    {"down rows, few", EpilogueKind::kStore, OperandSource::kRows, 64},
    {"gate/up rows, few", EpilogueKind::kSwiGlu, OperandSource::kRows, 64},
    {"gate/up gather, few", EpilogueKind::kSwiGlu, OperandSource::kGather, 64},
};
constexpr const KernelKind& kDown = kKernels[0];
constexpr const KernelKind& kGateUpRows = kKernels[1];
constexpr const KernelKind& kGateUpGather = kKernels[2];

GemmOptions options_of(const KernelKind& kernel, DType dtype) {
  GemmOptions options;
  options.dtype = dtype;
  options.epilogue = kernel.epilogue;
  options.source = kernel.source;
  options.tile_max_rows = kernel.tile_max_rows;
  return options;
}

struct Routing {
  const char* name;
  std::int32_t topk;
  std::vector<std::int32_t> ids;
};

std::vector<std::int32_t> ids_with_counts(const std::vector<std::int32_t>& counts,
                                          std::uint32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::size_t e = 0; e < counts.size(); ++e) ids.insert(ids.end(), counts[e], e);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  return ids;
}

// 4 experts.
std::vector<Routing> routings(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> uniform(3 * 400), zipf(2 * 300), sparse(2 * 100);
  for (auto& id : uniform) id = static_cast<std::int32_t>(random() % 4);
  std::discrete_distribution<std::int32_t> falling({1.0, 0.4, 0.23, 0.16});
  for (auto& id : zipf) id = falling(random);
  for (auto& id : sparse) id = random() % 3 == 0 ? -1 : 1;
  return {
      {"balanced", 1, ids_with_counts({128, 128, 128, 128}, seed)},
      {"uniform", 3, uniform},
      {"zipf", 2, zipf},
      {"empty experts and skipped ids", 2, sparse},
      {"decode", 1, ids_with_counts({1, 8, 9, 17}, seed)},
      {"tile edges", 1, ids_with_counts({288, 289, 273, 7}, seed)},
      {"one row", 1, ids_with_counts({0, 0, 1, 0}, seed)},
      {"one expert", 1, ids_with_counts({0, 900, 0, 0}, seed)},
      {"no rows", 1, {-1, -1}},
  };
}

constexpr GemmShape kShapes[] = {
    {4, 128, 64}, {4, 96, 176}, {4, 176, 96}, {4, 8, 8}, {4, 360, 520}, {4, 512, 264},
};

TEST_F(GemmTest, EveryKernelDTypeRoutingAndShape) {
  std::uint32_t seed = 20261129;
  for (const KernelKind& kernel : kKernels) {
    for (const DType dtype : {DType::kBF16, DType::kFP16}) {
      for (const GemmShape& shape : kShapes) {
        for (const Routing& routing : routings(seed)) {
          ++seed;
          SCOPED_TRACE(std::string(kernel.name) + ", " + std::string(to_string(dtype)) + ", " +
                       std::to_string(shape.columns) + " x " + std::to_string(shape.k) + ", " +
                       routing.name + ", seed " + std::to_string(seed));
          GemmOptions options = options_of(kernel, dtype);
          options.dispenser = seed % 2 == 0;
          GemmCase gemm(shape, options, routing.topk, routing.ids, seed);
          ASSERT_EQ(gemm.run(), "");
          ASSERT_EQ(gemm.check(), "");
        }
      }
    }
  }
}

TEST_F(GemmTest, EveryTokenCount) {
  // One tile of every size, so that each of wgmma's widths and each split runs.
  for (const KernelKind& kernel : kKernels) {
    std::vector<std::int32_t> counts;
    for (std::int32_t rows = 1; rows <= kernel.tile_max_rows; rows += 1 + rows % 3)
      counts.push_back(rows);
    GemmOptions options = options_of(kernel, DType::kBF16);
    SCOPED_TRACE(kernel.name);
    GemmCase gemm({static_cast<std::int32_t>(counts.size()), 192, 136}, options, 1,
                  ids_with_counts(counts, 7), 7);
    ASSERT_EQ(gemm.run(), "");
    ASSERT_EQ(gemm.check(), "");
  }
}

TEST_F(GemmTest, Fixed128AndSmallTiles) {
  for (const KernelKind& kernel : kKernels) {
    SCOPED_TRACE(kernel.name);
    GemmOptions options = options_of(kernel, DType::kBF16);
    options.tile_policy = TilePolicy::kFixed128;
    GemmCase fixed({4, 176, 96}, options, 1, ids_with_counts({200, 1, 0, 128}, 8), 8);
    ASSERT_EQ(fixed.run(), "");
    ASSERT_EQ(fixed.check(), "");
    options.tile_policy = TilePolicy::kBalanced;
    options.tile_max_rows = 24;
    options.dispenser = true;
    GemmCase small({4, 176, 96}, options, 1, ids_with_counts({200, 1, 0, 128}, 9), 9);
    ASSERT_EQ(small.run(), "");
    ASSERT_EQ(small.check(), "");
  }
}

TEST_F(GemmTest, ChunksWithAndWithoutARing) {
  ColumnChunks chunks;
  chunks.num_chunks = 3;
  const std::int32_t begin[] = {0, 192, 256, 360};
  std::copy(std::begin(begin), std::end(begin), chunks.begin);
  for (const int ring_planes : {1, 3}) {
    for (const bool dispenser : {false, true}) {
      GemmOptions options = options_of(kDown, DType::kBF16);
      options.chunks = chunks;
      options.ring_planes = ring_planes;
      options.dispenser = dispenser;
      GemmCase gemm({4, 360, 136}, options, 1, ids_with_counts({300, 5, 0, 64}, 10), 10);
      ASSERT_EQ(gemm.run(), "");
      ASSERT_EQ(gemm.check(), "") << "ring planes " << ring_planes;
    }
  }
}

TEST_F(GemmTest, GateAndUpApart) {
  for (const int weights_apart : {1, 2}) {
    GemmOptions options = options_of(kGateUpRows, DType::kFP16);
    options.weights_apart = weights_apart;
    GemmCase gemm({3, 96, 72}, options, 1, ids_with_counts({30, 5, 40}, 11), 11);
    ASSERT_EQ(gemm.run(), "");
    ASSERT_EQ(gemm.check(), "") << "weights_apart " << weights_apart;
  }
}

TEST_F(GemmTest, SameBitsEveryRun) {
  GemmOptions options = options_of(kGateUpGather, DType::kBF16);
  options.dispenser = true;
  GemmCase gemm({4, 360, 520}, options, 1, ids_with_counts({300, 5, 0, 64}, 12), 12);
  ASSERT_EQ(gemm.run(), "");
  const auto* out = static_cast<const std::uint16_t*>(gemm.spec.out.data);
  const std::size_t size = gemm.spec.out.rows * gemm.spec.out.row_stride;
  std::vector<std::uint16_t> first(size), again(size);
  check_cuda(cudaMemcpy(first.data(), out, size * 2, cudaMemcpyDeviceToHost), "first run");
  for (int run = 0; run < 5; ++run) {
    gemm.done.fill_bytes(0);
    ASSERT_EQ(gemm.run(), "");
    check_cuda(cudaMemcpy(again.data(), out, size * 2, cudaMemcpyDeviceToHost), "another run");
    ASSERT_EQ(std::memcmp(first.data(), again.data(), size * 2), 0) << "run " << run;
  }
}

// Delivers a tile's rows and arrives at its gate, tile by tile in the given order, with pauses;
// after `num_released` tiles it raises the failure word instead, if asked to.
struct ReleaseArgs {
  const std::int32_t* order;
  std::int32_t num_released;
  const TokenTile* tiles;
  const std::uint16_t* source;
  std::uint16_t* target;
  std::int64_t stride;
  protocol::TokenGate* gates;
  protocol::FailureWord* fail;  // null: no failure
};

__global__ void release_kernel(ReleaseArgs a) {
  for (std::int32_t i = 0; i < a.num_released; ++i) {
    const TokenTile tile = a.tiles[a.order[i]];
    for (std::int64_t e = threadIdx.x; e < tile.num_rows * a.stride; e += blockDim.x)
      a.target[tile.row_begin * a.stride + e] = a.source[tile.row_begin * a.stride + e];
    __syncthreads();
    if (threadIdx.x == 0) a.gates[a.order[i]].arrive(tile.num_rows);
    __nanosleep(20000);
  }
  if (a.fail != nullptr && threadIdx.x == 0)
    a.fail->relaxed_raise(protocol::Failure{1, 0, protocol::FailureReason::kPeerFailed});
}

enum class End { kAllReleased, kFailsMidway };

// Rows are withheld (NaN) until their gate opens. Gates need room on the GPU for who opens them.
void run_gated(const KernelKind& kernel, bool reversed, End end) {
  SCOPED_TRACE(kernel.name);
  GemmOptions options = options_of(kernel, DType::kBF16);
  options.tile_max_rows = kernel.tile_max_rows == 288 ? 72 : 64;  // several tiles an expert
  GemmCase gemm({4, 192, 264}, options, 1, ids_with_counts({100, 30, 0, 120}, 13), 13);
  gemm.spec.gate = {gemm.gates.get(), gemm.failure.get(), 1, 5'000'000'000};
  gemm.spec.num_blocks = 64;
  const auto num_tiles = static_cast<std::int32_t>(gemm.schedule.token_tile.size());
  const bool gather = kernel.source == OperandSource::kGather;
  if (!gather) gemm.tokens.fill_bytes(0xff);
  std::vector<std::int32_t> order(num_tiles);
  for (std::int32_t t = 0; t < num_tiles; ++t) order[t] = reversed ? num_tiles - 1 - t : t;
  const std::int32_t released = end == End::kAllReleased ? num_tiles : num_tiles / 2;
  DeviceBuffer<std::int32_t> device_order(order);
  cudaStream_t gemm_stream, release_stream;
  check_cuda(cudaStreamCreateWithFlags(&gemm_stream, cudaStreamNonBlocking), "stream");
  check_cuda(cudaStreamCreateWithFlags(&release_stream, cudaStreamNonBlocking), "stream");
  // Loaded now: loading a kernel may wait for all running ones, which wait for it.
  release_kernel<<<1, 256, 0, release_stream>>>({});
  check_cuda(cudaDeviceSynchronize(), "loading");
  ASSERT_EQ(gemm.run(gemm_stream), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_EQ(cudaStreamQuery(gemm_stream), cudaErrorNotReady) << "the gates did not hold";
  // Gathered tokens are all there; only the gates are late.
  release_kernel<<<1, 256, 0, release_stream>>>(
      {device_order.get(), released, gemm.spec.schedule.token_tile, gemm.tokens_ready.get(),
       gemm.tokens.get(), gather ? 0 : gemm.spec.tokens.row_stride, gemm.gates.get(),
       end == End::kFailsMidway ? gemm.failure.get() : nullptr});
  check_cuda(cudaGetLastError(), "release");
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<bool> expected(num_tiles, false);
  for (std::int32_t i = 0; i < released; ++i) expected[order[i]] = true;
  EXPECT_EQ(gemm.check(expected), "");
  check_cuda(cudaStreamDestroy(gemm_stream), "stream");
  check_cuda(cudaStreamDestroy(release_stream), "stream");
}

TEST_F(GemmTest, GatesReleasedLateAndInOrder) {
  for (const KernelKind& kernel : kKernels) run_gated(kernel, false, End::kAllReleased);
}
TEST_F(GemmTest, GatesReleasedOutOfOrder) {
  for (const KernelKind& kernel : kKernels) run_gated(kernel, true, End::kAllReleased);
}
TEST_F(GemmTest, FailureInTheMiddleOpensTheRest) {
  for (const KernelKind& kernel : kKernels) run_gated(kernel, false, End::kFailsMidway);
}

TEST_F(GemmTest, GateThatNeverOpensTimesOut) {
  GemmCase gemm({4, 192, 264}, options_of(kGateUpGather, DType::kBF16), 1,
                ids_with_counts({100, 30, 0, 120}, 14), 14);
  gemm.spec.gate = {gemm.gates.get(), gemm.failure.get(), 1, 50'000'000};
  ASSERT_EQ(gemm.run(), "");
  const protocol::Failure failure = gemm.failure.download()[0].relaxed_read();
  EXPECT_TRUE(failure.is_of(1));
  EXPECT_EQ(failure.reason, protocol::FailureReason::kTimeout);
}

TEST_F(GemmTest, CapturedLaunchFollowsNewRouting) {
  GemmOptions options = options_of(kGateUpGather, DType::kBF16);
  GemmCase gemm({4, 128, 136}, options, 1, ids_with_counts({64, 64, 64, 64}, 15), 15);
  Result<GroupedGemm> launcher = GroupedGemm::create(gemm.spec);
  ASSERT_TRUE(launcher.is_ok()) << launcher.status().message();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  ASSERT_TRUE(launcher.value().launch(stream).is_ok());
  check_cuda(cudaStreamEndCapture(stream, &graph), "capture");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
  // The second routing has the same number of rows, in other tiles.
  for (const std::vector<std::int32_t>& counts :
       {std::vector<std::int32_t>{64, 64, 64, 64}, std::vector<std::int32_t>{0, 3, 250, 3}}) {
    const std::vector<std::int32_t> ids = ids_with_counts(counts, 16);
    const std::int32_t tokens_per_rank[] = {static_cast<std::int32_t>(ids.size())};
    gemm.schedule = build_golden(gemm.schedule.shape, tokens_per_rank, ids);
    const ScheduleView& view = gemm.spec.schedule;
    check_cuda(
        cudaMemcpy(const_cast<TokenTile*>(view.token_tile), gemm.schedule.token_tile.data(),
                   gemm.schedule.token_tile.size() * sizeof(TokenTile), cudaMemcpyHostToDevice),
        "tiles");
    check_cuda(cudaMemcpy(const_cast<ScheduleCounts*>(view.counts), &gemm.schedule.counts,
                          sizeof(ScheduleCounts), cudaMemcpyHostToDevice),
               "counts");
    check_cuda(
        cudaMemcpy(const_cast<std::int32_t*>(view.row_source), gemm.schedule.row_source.data(),
                   gemm.schedule.row_source.size() * 4, cudaMemcpyHostToDevice),
        "rows");
    check_cuda(cudaGraphLaunch(exec, stream), "replay");
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(gemm.check(), "");
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(GemmTest, RefusesWhatAlignmentCannotServe) {
  const auto refusal = [](auto change) {
    GemmCase gemm({4, 128, 64}, GemmOptions{}, 1, {0, 1, 2, 3}, 17);
    change(gemm.spec);
    Result<GroupedGemm> result = GroupedGemm::create(gemm.spec);
    return result.is_ok() ? std::string("accepted") : result.status().message();
  };
  const std::string k = refusal([](GroupedGemmSpec& s) { s.num_k = 511; });
  EXPECT_NE(k.find("504 and 512"), std::string::npos) << k;
  const std::string width = refusal([](GroupedGemmSpec& s) { s.num_columns = 4; });
  EXPECT_NE(width.find("nearest width is 8"), std::string::npos) << width;
  EXPECT_NE(refusal([](GroupedGemmSpec& s) { s.dtype = DType::kFP32; }), "accepted");
  EXPECT_NE(refusal([](GroupedGemmSpec& s) { s.weights = nullptr; }), "accepted");
  EXPECT_NE(refusal([](GroupedGemmSpec& s) { s.tokens.row_stride = 65; }), "accepted");
  EXPECT_NE(
      refusal([](GroupedGemmSpec& s) { s.out.data = static_cast<std::uint16_t*>(s.out.data) + 1; }),
      "accepted");
  EXPECT_NE(refusal([](GroupedGemmSpec& s) { s.schedule.shape.tile_max_rows = 296; }), "accepted");
  EXPECT_NE(refusal([](GroupedGemmSpec& s) {
              s.chunks.num_chunks = 2;
              s.chunks.begin[1] = 60;
              s.chunks.begin[2] = 128;
            }),
            "accepted");
}

}  // namespace
}  // namespace slipstream::testing
