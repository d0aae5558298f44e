// publish_plan on the GPUs that are there, ranks folded where they are fewer: tables equal to
// golden element for element, inputs published whole, errors of both kinds.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "plan_ranks.h"
#include "schedule/golden.h"
#include "schedule/invariants.h"
#include "schedule/routing_generator.h"

namespace slipstream::testing {
namespace {

class PublishPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

Problem problem_of(int num_ranks, int num_experts, int topk, int max_tokens, int hidden = 64) {
  return Problem{.num_ranks = num_ranks,
                 .num_experts = num_experts,
                 .hidden = hidden,
                 .intermediate = 64 * num_ranks,
                 .topk = topk,
                 .max_tokens = max_tokens,
                 .dtype = DType::kBF16};
}

PlanCall call_of(const Problem& problem, const std::vector<std::int32_t>& tokens,
                 const char* distribution, std::uint64_t seed) {
  PlanCall call;
  call.tokens_per_rank = tokens;
  const std::int64_t num_tokens = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  const RoutingDistribution parsed = parse_routing_distribution(distribution).value();
  Routing routing = generate_routing(parsed, static_cast<std::int32_t>(num_tokens),
                                     problem.num_experts, problem.topk, seed)
                        .value();
  call.topk_ids = std::move(routing.topk_ids);
  call.topk_weights = std::move(routing.topk_weights);
  return call;
}

void expect_golden(PlanRanks& ranks, const PlanCall& call, const std::string& what) {
  for (int r = 0; r < ranks.num_ranks(); ++r) {
    const PlanOutcome outcome = ranks.download(r);
    ASSERT_EQ(outcome.verdict.code, fused::VerdictCode::kGood) << what << " rank " << r;
    const Schedule golden =
        build_golden(outcome.schedule.shape, call.tokens_per_rank, call.topk_ids);
    const Status equal = compare_schedules(golden.view(), outcome.schedule.view());
    ASSERT_TRUE(equal.is_ok()) << what << " rank " << r << ": " << equal.message();
    ASSERT_EQ(outcome.weights, call.topk_weights) << what << " rank " << r;
    ASSERT_EQ(outcome.tokens, ranks.uploaded_tokens(r)) << what << " rank " << r;
    for (std::size_t tile = 0; tile < outcome.gates.size(); ++tile)
      ASSERT_EQ(outcome.gates[tile], static_cast<std::uint32_t>(golden.slack[tile]));
  }
}

void run_and_expect_golden(PlanRanks& ranks, const PlanCall& call, const std::string& what) {
  for (int r = 0; r < ranks.num_ranks(); ++r) ranks.poison(r);
  ranks.run(call);
  expect_golden(ranks, call, what);
}

std::vector<std::int32_t> ragged_tokens(int num_ranks, int max_tokens, std::mt19937& random) {
  std::vector<std::int32_t> tokens(num_ranks);
  for (std::int32_t& count : tokens) {
    count = static_cast<std::int32_t>(random() % (max_tokens + 1));
    if (random() % 4 == 0) count = 0;
    if (random() % 8 == 0) count = 1;
  }
  return tokens;
}

TEST_F(PublishPlan, EqualsGoldenOverTheMatrix) {
  std::mt19937 random(20261129);
  for (int num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    for (const auto& [num_experts, topk] : {std::pair{1, 1}, {8, 2}, {60, 6}, {64, 8}, {512, 10}}) {
      for (TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128}) {
        const Problem problem = problem_of(num_ranks, num_experts, topk, 150);
        Tuning tuning = default_tuning(problem, 512);
        tuning.tile_policy = policy;
        tuning.row_order = random() % 2 == 0 ? RowOrder::kLocalFirst : RowOrder::kAscending;
        tuning.num_segments = 1 + static_cast<int>(random() % 3);
        tuning.tile_max_rows = 8 * (1 + static_cast<int>(random() % 36));
        PlanRanks ranks(problem, tuning, 10);
        for (const char* distribution : {"balanced", "uniform", "zipf:1.2", "one"}) {
          PlanCall call =
              call_of(problem, ragged_tokens(num_ranks, 150, random), distribution, random());
          call.in_place = random() % 2 == 0;
          // Some tokens are masked.
          for (std::int32_t& id : call.topk_ids)
            if (random() % 16 == 0) id = -1;
          run_and_expect_golden(ranks, call,
                                std::to_string(num_ranks) + " ranks, E " +
                                    std::to_string(num_experts) + ", " + distribution);
          if (HasFatalFailure()) return;
        }
        PlanCall empty = call_of(problem, std::vector<std::int32_t>(num_ranks, 0), "uniform", 1);
        run_and_expect_golden(ranks, empty, "no tokens");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The whole of device memory's builder: more rows than a block's shared memory holds, many groups.
TEST_F(PublishPlan, LargeCallsEqualGolden) {
  std::mt19937 random(7);
  for (const auto& [num_experts, topk, tokens, segments] :
       {std::tuple{64, 8, 2048, 1}, {512, 8, 4096, 2}, {1024, 10, 1500, 4}, {3, 2, 60000, 1}}) {
    for (TilePolicy policy : {TilePolicy::kBalanced, TilePolicy::kFixed128}) {
      const Problem problem = problem_of(2, num_experts, topk, tokens, 8);
      Tuning tuning = default_tuning(problem, 512);
      tuning.tile_policy = policy;
      tuning.num_segments = segments;
      PlanRanks ranks(problem, tuning, 10);
      for (const char* distribution : {"uniform", "zipf:1.2"}) {
        const PlanCall call = call_of(problem, {tokens, tokens - 77}, distribution, random());
        run_and_expect_golden(ranks, call, std::to_string(tokens) + " tokens a rank");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(PublishPlan, HundredsOfCallsShrinkAndGrow) {
  std::mt19937 random(99);
  const Problem problem = problem_of(4, 64, 8, 300);
  PlanRanks ranks(problem, default_tuning(problem, 512), 10);
  for (int i = 0; i < 200; ++i) {
    const PlanCall call = call_of(problem, ragged_tokens(4, 300, random), "uniform", random());
    ranks.run(call);
    expect_golden(ranks, call, "call " + std::to_string(i));
    if (HasFatalFailure()) return;
  }
}

TEST_F(PublishPlan, CapturedOnceReplayedWithOtherRouting) {
  std::mt19937 random(5);
  const Problem problem = problem_of(2, 64, 8, 256);
  PlanRanks ranks(problem, default_tuning(problem, 512), 10);
  const std::vector<std::int32_t> tokens{256, 131};
  ranks.run(call_of(problem, tokens, "uniform", 1));
  std::vector<cudaGraphExec_t> graphs(2);
  for (int r = 0; r < 2; ++r) {
    ranks.select(r);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(ranks.stream(r), cudaStreamCaptureModeThreadLocal),
               "capture");
    ranks.launch(r);
    check_cuda(cudaStreamEndCapture(ranks.stream(r), &graph), "capture");
    check_cuda(cudaGraphInstantiate(&graphs[r], graph, 0), "instantiate");
    check_cuda(cudaGraphDestroy(graph), "graph");
  }
  for (int i = 0; i < 50; ++i) {
    const PlanCall call = call_of(problem, tokens, "zipf:1.0", random());
    for (int r = 0; r < 2; ++r) ranks.upload(r, call);
    for (int r = 0; r < 2; ++r) {
      ranks.select(r);
      check_cuda(cudaGraphLaunch(graphs[r], ranks.stream(r)), "replay");
    }
    for (int r = 0; r < 2; ++r) ranks.wait(r);
    expect_golden(ranks, call, "replay " + std::to_string(i));
    if (HasFatalFailure()) return;
  }
  for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
}

// Every rank finds the same error, the next call is right.
TEST_F(PublishPlan, CallErrorsAreSeenByAllAndPass) {
  const Problem problem = problem_of(3, 16, 2, 40);
  const Tuning tuning = default_tuning(problem, 512);
  PlanRanks ranks(problem, tuning, 10);
  const PlanCall good = call_of(problem, {40, 0, 7}, "uniform", 3);
  PlanCall bad_ids = good;
  bad_ids.topk_ids[13] = 16;
  bad_ids.topk_ids[90] = -2;
  ranks.run(bad_ids);
  for (int r = 0; r < 3; ++r) {
    const fused::Verdict verdict = ranks.download(r).verdict;
    EXPECT_EQ(verdict.code, fused::VerdictCode::kInvalidIds);
    EXPECT_EQ(verdict.index, 13);
    EXPECT_EQ(verdict.count, 2);
    EXPECT_TRUE(fused::verdict_status(verdict, ranks.params(r).shape, 40).is_call_error());
  }
  run_and_expect_golden(ranks, good, "after invalid ids");

  const CallSignature right = ranks.params(2).signature;
  ranks.params(2).signature.values[kSigLayerTag] = 7;
  ranks.run(good);
  for (int r = 0; r < 3; ++r) {
    const fused::Verdict verdict = ranks.download(r).verdict;
    EXPECT_EQ(verdict.code, fused::VerdictCode::kSignatureMismatch);
    EXPECT_EQ(verdict.peer, 2);
    EXPECT_EQ(verdict.index, kSigLayerTag);
    EXPECT_EQ(verdict.value, 7);
    EXPECT_EQ(verdict.own_value, 0);
  }
  ranks.params(2).signature = right;
  run_and_expect_golden(ranks, good, "after a signature mismatch");

  for (int r = 0; r < 3; ++r) ranks.upload(r, good);
  std::vector<std::thread> threads;
  ranks.params(1).input.num_tokens = 41;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&ranks, r] {
      ranks.launch(r);
      ranks.wait(r);
    });
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < 3; ++r) {
    const fused::Verdict verdict = ranks.download(r).verdict;
    EXPECT_EQ(verdict.code, fused::VerdictCode::kInvalidTokenCount);
    EXPECT_EQ(verdict.peer, 1);
    EXPECT_EQ(verdict.value, 41);
  }
  run_and_expect_golden(ranks, good, "after an impossible count");
}

// A rank that comes late is waited for; one that never comes is named within the limit; the error
// sticks until all ranks reset; the context lives.
TEST_F(PublishPlan, LateStalledAndReset) {
  const Problem problem = problem_of(3, 16, 2, 40);
  PlanRanks ranks(problem, default_tuning(problem, 512), 1.0);
  const PlanCall call = call_of(problem, {40, 5, 7}, "uniform", 3);
  for (int r = 0; r < 3; ++r) ranks.upload(r, call);
  ranks.launch(0);
  ranks.launch(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  ranks.launch(1);
  for (int r = 0; r < 3; ++r) ranks.wait(r);
  expect_golden(ranks, call, "a late rank");

  const auto begin = std::chrono::steady_clock::now();
  ranks.launch(0);
  ranks.launch(2);
  ranks.wait(0);
  ranks.wait(2);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 2.0);
  bool one_timed_out = false;
  for (int r : {0, 2}) {
    EXPECT_EQ(ranks.download(r).verdict.code, fused::VerdictCode::kGroupFailed);
    protocol::WaitReport report;
    ASSERT_TRUE(ranks.failure(r, report));
    EXPECT_EQ(report.failure.culprit, 1);
    one_timed_out |= report.failure.reason == protocol::FailureReason::kTimeout;
  }
  EXPECT_TRUE(one_timed_out);

  // Sticky: the missing rank comes, and nobody works on with it.
  for (int r = 0; r < 3; ++r) ranks.launch(r);
  for (int r = 0; r < 3; ++r) ranks.wait(r);
  for (int r = 0; r < 3; ++r)
    EXPECT_EQ(ranks.download(r).verdict.code, fused::VerdictCode::kGroupFailed) << r;

  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back(
        [&ranks, r] { EXPECT_EQ(ranks.reset(r).result, protocol::SpinResult::kReady) << r; });
  for (std::thread& thread : threads) thread.join();
  run_and_expect_golden(ranks, call, "after the reset");
}

// A reset that not all ranks join says who is missing.
TEST_F(PublishPlan, ResetNamesTheMissingRank) {
  const Problem problem = problem_of(2, 16, 2, 40);
  PlanRanks ranks(problem, default_tuning(problem, 512), 0.5);
  const protocol::ResetOutcome outcome = ranks.reset(0);
  EXPECT_EQ(outcome.result, protocol::SpinResult::kTimeout);
  EXPECT_EQ(outcome.missing_rank, 1);
}

}  // namespace
}  // namespace slipstream::testing
