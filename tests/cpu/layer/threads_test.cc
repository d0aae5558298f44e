// The protocol in earnest: ranks and their workers run at once, in any number, delayed at random,
// with other layers on the same workspace and other groups on the same cores. The bits are those of
// the sequential drive.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "host/drive.h"
#include "layer/impl.h"
#include "layer_fixture.h"
#include "slipstream/layer.h"

namespace slipstream::testing {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kManyCalls = 1500;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int kManyCalls = 10'000;
#else
constexpr int kManyCalls = 100'000;
#endif

LayerOptions options_of(HostDrive drive, int threads_per_rank, const Tuning& tuning,
                        int layer_tag = 0) {
  LayerOptions options;
  options.host_drive = drive;
  options.threads_per_rank = threads_per_rank;
  options.tuning = tuning;
  options.layer_tag = layer_tag;
  return options;
}

Tuning chunked(const Problem& problem, int num_chunks, int ring_chunks) {
  Tuning tuning;
  tuning.chunks = even_chunks(problem.hidden, num_chunks, 8);
  tuning.ring_chunks = ring_chunks;
  tuning.tile_max_rows = 8;  // many tiles, so that there is something to share
  return tuning;
}

TEST(Threads, AnyNumberGivesTheBitsOfTheSequentialDrive) {
  for (const int num_ranks : {1, 2, 4}) {
    const Problem problem = small_problem(num_ranks);
    const auto weights = random_weights(problem, 1);
    for (const Delivery delivery : {Delivery::kGather, Delivery::kScatter}) {
      Tuning tuning = chunked(problem, 5, delivery == Delivery::kGather ? 1 : 3);
      tuning.delivery = delivery;
      LayerGroup sequential(problem, weights, options_of(HostDrive::kSequential, 1, tuning));
      for (const int num_threads : {1, 2, 3, 8}) {
        SCOPED_TRACE(std::to_string(num_ranks) + " ranks, " + std::to_string(num_threads) +
                     " threads, " + std::string(to_string(delivery)));
        LayerGroup threads(problem, weights, options_of(HostDrive::kThreads, num_threads, tuning));
        for (std::uint32_t seed = 0; seed < 5; ++seed) {
          std::vector<std::int32_t> tokens;
          for (int rank = 0; rank < num_ranks; ++rank)
            tokens.push_back(static_cast<std::int32_t>((seed * 13 + rank * 17) % 41));
          const auto inputs = random_inputs(problem, tokens, seed);
          sequential.poison();
          threads.poison();
          const CallResult want = run_call(sequential.layers, inputs);
          const CallResult got = run_call(threads.layers, inputs);
          ASSERT_TRUE(want.status.is_ok()) << want.status.message();
          ASSERT_TRUE(got.status.is_ok()) << got.status.message();
          ASSERT_EQ(want.bits(), got.bits()) << "seed " << seed;
        }
      }
    }
  }
}

// More blocks than threads: a thread runs one block after the other, each launch to its end.
TEST(Threads, OneThreadRunsAllBlocksOfALaunch) {
  const Problem problem = small_problem(2);
  const auto weights = random_weights(problem, 1);
  const Tuning tuning = chunked(problem, 5, 1);
  LayerGroup sequential(problem, weights, options_of(HostDrive::kSequential, 1, tuning));
  LayerGroup group(problem, weights, options_of(HostDrive::kThreads, 1, tuning));
  const auto inputs = random_inputs(problem, {40, 23}, 9);
  const CallResult want = run_call(sequential.layers, inputs);

  on_all_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    host::HostRank& host_rank = *group.workspaces[r].impl()->host;
    host::HostLayer layer;
    layer.problem = problem;
    layer.tuning = tuning;
    layer.weights = host::HostWeights(problem, weights[r].view());
    layer.signature = make_signature(problem, tuning, 0, host_rank.peers.shape.plane_bytes(),
                                     Transfer::kPush, Path::kFused);
    layer.schedule_shape = schedule_shape(problem, tuning, rank);
    layer.num_blocks = 7;
    EXPECT_TRUE(
        host_rank.ensure_local(host::local_bytes(host::largest_local_shape(layer))).is_ok());
    for (int call_idx = 0; call_idx < 20; ++call_idx) {
      GuardedTensor out(problem.dtype, inputs[r].num_tokens, problem.hidden, 0);
      const LayerInput input = inputs[r].input();
      host::HostCall call(host_rank, layer, input, out.view(), layer.num_blocks);
      PhaseTimes times;
      const Status status = host::run_with_threads(call, times);
      EXPECT_TRUE(status.is_ok()) << status.message();
      EXPECT_EQ(out.bits(), want.outs[r].bits());
    }
    return Status::ok();
  });
}

// Each group's ranks call two layers in turns, on workspaces of their own; all groups at once.
TEST(Threads, SeveralLayersAndSeveralGroupsAtOnce) {
  const Problem problem = small_problem(2);
  Problem other = problem;
  other.hidden = 24;
  other.topk = 1;
  const auto weights = random_weights(problem, 1);
  const auto other_weights = random_weights(other, 2);
  const auto inputs = random_inputs(problem, {31, 8}, 3);
  const auto other_inputs = random_inputs(other, {2, 40}, 4);
  const Tuning tuning = chunked(problem, 4, 2);
  const Tuning other_tuning = chunked(other, 3, 1);

  LayerGroup sequential(problem, weights, options_of(HostDrive::kSequential, 1, tuning));
  auto sequential_other = sequential.add_layers(other, other_weights, [&](int) {
    return options_of(HostDrive::kSequential, 1, other_tuning, 5);
  });
  const auto want = run_call(sequential.layers, inputs).bits();
  const auto other_want = run_call(sequential_other, other_inputs).bits();

  std::vector<std::thread> instances;
  for (int instance = 0; instance < 3; ++instance) {
    instances.emplace_back([&, instance] {
      LayerGroup group(problem, weights, options_of(HostDrive::kThreads, 1 + instance, tuning));
      auto others = group.add_layers(other, other_weights, [&](int) {
        return options_of(HostDrive::kThreads, 3, other_tuning, 5);
      });
      for (int round = 0; round < 15; ++round) {
        ASSERT_EQ(run_call(group.layers, inputs).bits(), want);
        ASSERT_EQ(run_call(others, other_inputs).bits(), other_want);
      }
    });
  }
  for (std::thread& instance : instances) instance.join();
}

// Ranks that run through their calls on their own, never meeting but in the protocol. Every call
// has other tokens and another number of them; the outputs of all calls are compared by their sums.
TEST(Threads, ManyCallsWithRandomDelays) {
  constexpr int kNumInputs = 23;
  Problem problem = small_problem(3);
  problem.hidden = 8;
  problem.intermediate = 6;
  problem.max_tokens = 3;
  const auto weights = random_weights(problem, 1);
  Tuning tuning = chunked(problem, 2, 1);
  tuning.chunks = even_chunks(problem.hidden, 2, 4);
  std::vector<std::vector<RankData>> inputs;
  std::vector<CallResult> want;
  LayerGroup sequential(problem, weights, options_of(HostDrive::kSequential, 1, tuning));
  for (int i = 0; i < kNumInputs; ++i) {
    inputs.push_back(random_inputs(problem, {i % 4, (i + 1) % 3, (i / 3) % 4}, 50 + i));
    want.push_back(run_call(sequential.layers, inputs.back()));
    ASSERT_TRUE(want.back().status.is_ok());
  }

  LayerGroup group(problem, weights, [&](int rank) {
    return options_of(HostDrive::kThreads, rank == 0 ? 2 : 1, tuning);
  });
  const auto statuses = on_all_ranks(3, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::mt19937 random(77 + rank);
    for (int call = 0; call < kManyCalls; ++call) {
      const auto i = static_cast<std::size_t>(call % kNumInputs);
      GuardedTensor out(problem.dtype, inputs[i][r].num_tokens, problem.hidden, 1);
      if (random() % 64 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      const Status status = group.layers[r].run(inputs[i][r].input(), out.view());
      if (!status.is_ok()) return status;
      if (out.bits() != want[i].outs[r].bits()) {
        return Status(StatusCode::kInternal, Subsystem::kHost,
                      {.what = "bits of call " + std::to_string(call)});
      }
    }
    return Status::ok();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.message();
}

// The epoch passes 2^32 in the middle of the calls.
TEST(Threads, EpochsWrap) {
  const Problem problem = small_problem(3);
  const auto weights = random_weights(problem, 1);
  const Tuning tuning = chunked(problem, 3, 2);
  LayerGroup group(problem, weights, options_of(HostDrive::kThreads, 2, tuning));
  for (const Workspace& workspace : group.workspaces) {
    protocol::CallClock& clock = workspace.impl()->host->state.clock;
    clock.relaxed_start({clock.now().generation, 0xfffffffaU});
  }
  for (std::uint32_t call = 0; call < 12; ++call) {
    const auto inputs = random_inputs(problem, {static_cast<std::int32_t>(call), 7, 0}, 60 + call);
    const CallResult result = run_call(group.layers, inputs);
    ASSERT_TRUE(result.status.is_ok()) << result.status.message();
    EXPECT_LE(error_of(problem, result, inputs, weights), 1e-6) << "call " << call;
  }
  EXPECT_EQ(group.workspaces[0].impl()->host->state.clock.now().epoch, 6U);
}

}  // namespace
}  // namespace slipstream::testing
