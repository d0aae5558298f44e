// Litmus test of the way data and signals take between two GPUs (symmetric_litmus_kernels.h), and
// proof that it can fail. SLIPSTREAM_LITMUS_ROUNDS sets the rounds: 100k by default, millions for
// the lab book.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "symmetric/cuda_region.h"
#include "symmetric/cuda_support.h"
#include "symmetric_litmus_kernels.h"

namespace slipstream::testing {
namespace {

int num_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return count;
}

std::uint32_t num_rounds() {
  const char* text = std::getenv("SLIPSTREAM_LITMUS_ROUNDS");
  return text == nullptr ? 100'000 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

// One rank's half of the game.
struct Side {
  int device = 0;
  std::unique_ptr<CudaStream> stream;
  LitmusState* state = nullptr;

  ~Side() { (void)cudaFree(state); }
};

struct Outcome {
  LitmusState states[2];
  double seconds = 0;
};

void prepare(Side& side, int device) {
  side.device = device;
  const DeviceGuard guard(device);
  Result<CudaStream> stream = CudaStream::create();
  ASSERT_TRUE(stream.is_ok()) << stream.status().message();
  side.stream = std::make_unique<CudaStream>(std::move(stream).value());
  void* state = nullptr;
  ASSERT_EQ(cudaMalloc(&state, sizeof(LitmusState)), cudaSuccess);
  side.state = static_cast<LitmusState*>(state);
  LitmusState zero{};
  zero.first_stale = ~0ULL;
  ASSERT_EQ(cudaMemcpy(state, &zero, sizeof(zero), cudaMemcpyHostToDevice), cudaSuccess);
}

void play(const std::vector<int>& devices, std::uint32_t rounds, LitmusFault fault, bool with_load,
          Outcome& outcome) {
  RegionShape shape{.num_ranks = 2, .topk = 1, .max_tokens = 1};
  shape.token_row_bytes = sizeof(LitmusPage);
  auto regions = create_vmm_regions(shape, devices);
  ASSERT_TRUE(regions.is_ok()) << regions.status().message();
  Side sides[2];
  for (int rank = 0; rank < 2; ++rank) prepare(sides[rank], devices[rank]);
  if (::testing::Test::HasFatalFailure()) return;
  // An empty game first: it loads the kernel everywhere.
  for (const std::uint32_t n : {0U, rounds}) {
    for (int rank = 0; rank < 2; ++rank) {
      const DeviceGuard guard(devices[rank]);
      ASSERT_EQ(cudaMemset(&sides[rank].state->num_readers_done, 0, sizeof(unsigned int)),
                cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 2; ++rank) {
      const DeviceGuard guard(devices[rank]);
      const PeerTable& table = regions.value()[rank].table();
      LitmusParams params;
      params.mine = reinterpret_cast<LitmusPage*>(table.base[rank]);
      params.theirs = reinterpret_cast<LitmusPage*>(table.base[1 - rank]);
      params.state = sides[rank].state;
      params.num_rounds = n;
      params.seed_mine = 17 + rank;
      params.seed_theirs = 17 + (1 - rank);
      params.fault = fault;
      params.with_load = with_load && n > 0;
      launch_litmus(params, sides[rank].stream->get());
    }
    for (int rank = 0; rank < 2; ++rank) {
      const DeviceGuard guard(devices[rank]);
      const Status status = sides[rank].stream->synchronize("litmus");
      ASSERT_TRUE(status.is_ok()) << status.message();
      ASSERT_EQ(cudaMemcpy(&outcome.states[rank], sides[rank].state, sizeof(LitmusState),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
}

void expect_clean(const Outcome& outcome) {
  for (int rank = 0; rank < 2; ++rank) {
    const LitmusState& state = outcome.states[rank];
    EXPECT_EQ(state.num_failed_waits, 0U) << "rank " << rank;
    EXPECT_EQ(state.num_stale_words, 0U)
        << "rank " << rank << ", first at round " << (state.first_stale >> 32) << " word "
        << (state.first_stale & 0xffffffff);
  }
}

class Litmus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(Litmus, FoldedOnOneGpu) {
  Outcome outcome;
  play({0, 0}, num_rounds(), LitmusFault::kNone, true, outcome);
  expect_clean(outcome);
  std::printf("%u rounds each way in %.2f s\n", num_rounds(), outcome.seconds);
}

TEST_F(Litmus, BetweenTwoGpusUnderLoad) {
  if (num_gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  Outcome outcome;
  play({0, 1}, num_rounds(), LitmusFault::kNone, true, outcome);
  expect_clean(outcome);
  std::printf("%u rounds each way in %.2f s\n", num_rounds(), outcome.seconds);
}

TEST_F(Litmus, BetweenTwoGpusWithoutLoad) {
  if (num_gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  Outcome outcome;
  play({0, 1}, num_rounds(), LitmusFault::kNone, false, outcome);
  expect_clean(outcome);
  std::printf("%u rounds each way in %.2f s\n", num_rounds(), outcome.seconds);
}

// Each planted fault must show within few rounds: or the tests above prove nothing.
TEST_F(Litmus, NoticesPlantedFaults) {
  const std::vector<int> devices = {0, num_gpus() > 1 ? 1 : 0};
  for (const LitmusFault fault : {LitmusFault::kOneWriterSignals, LitmusFault::kArriveBeforeData,
                                  LitmusFault::kReadersAskForRoundBefore}) {
    Outcome outcome;
    play(devices, 20'000, fault, true, outcome);
    const auto stale = outcome.states[0].num_stale_words + outcome.states[1].num_stale_words;
    EXPECT_GT(stale, 0U) << "fault " << static_cast<int>(fault);
    std::printf("fault %d: %llu stale words\n", static_cast<int>(fault), stale);
  }
}

}  // namespace
}  // namespace slipstream::testing
