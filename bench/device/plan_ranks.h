// PlanRanks: W ranks with regions and call state on the GPUs that are there (rank r on GPU r mod
// n, so one GPU folds all of them), which can run publish_plan and close a call. Used by the tests
// and the benchmark of publish_plan. Plain cudaMalloc and peer access: providers have tests of
// their own.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fused/publish_plan.h"
#include "schedule/schedule.h"
#include "slipstream/problem.h"
#include "slipstream/tuning.h"

namespace slipstream::testing {

int num_gpus();

// Ends the program with a sentence and exit code 1: there is nothing to compare after one.
void check_cuda(cudaError_t error, const char* what);
void check_status(const Status& status);

struct PlanCall {
  std::vector<std::int32_t> tokens_per_rank;
  std::vector<std::int32_t> topk_ids;  // [S, K], rank 0's tokens first
  std::vector<float> topk_weights;     // [S, K]
  bool in_place = false;
};

struct PlanOutcome {
  fused::Verdict verdict;         // as the host reads it
  Schedule schedule;              // tables downloaded
  std::vector<float> weights;     // [S, K] as gathered
  std::vector<std::byte> tokens;  // the region's tokens [T, H]
  std::vector<std::uint32_t> gates;
};

class PlanRanks {
 public:
  PlanRanks(const Problem& problem, const Tuning& tuning, double limit_seconds);
  ~PlanRanks();
  PlanRanks(const PlanRanks&) = delete;

  int num_ranks() const { return problem_.num_ranks; }

  // Uploads rank r's part of the call (with random tokens), launches publish_plan and the closing
  // launch. Each rank from a thread of its own. Call from one thread.
  void run(const PlanCall& call);
  // One rank alone, from the calling thread; asynchronous.
  void upload(int rank, const PlanCall& call);
  void launch(int rank);
  void wait(int rank);
  PlanOutcome download(int rank);
  // The same part of the call in place of what launch() would copy.
  fused::PublishPlanParams& params(int rank) { return ranks_[rank].params; }
  cudaStream_t stream(int rank) { return ranks_[rank].stream; }
  void select(int rank);
  bool failure(int rank, protocol::WaitReport& report);
  protocol::ResetOutcome reset(int rank);
  std::vector<std::byte> uploaded_tokens(int rank) const { return ranks_[rank].host_tokens; }
  // Overwrites tables, counters and gathered routing with 0xff, as NaN poison.
  void poison(int rank);

 private:
  struct Rank {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::byte* region = nullptr;
    std::byte* state_base = nullptr;
    std::int64_t state_bytes = 0;
    std::byte* tokens = nullptr;
    std::int32_t* topk_ids = nullptr;
    float* topk_weights = nullptr;
    protocol::WaitRecord* record = nullptr;   // pinned
    fused::Verdict* verdict = nullptr;        // pinned
    protocol::ResetOutcome* reset = nullptr;  // pinned
    fused::PublishPlanParams params;
    std::vector<std::byte> host_tokens;
  };

  Problem problem_;
  Tuning tuning_;
  std::vector<Rank> ranks_;
};

}  // namespace slipstream::testing
