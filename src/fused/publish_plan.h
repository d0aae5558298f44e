// publish_plan, the first launch of a call: copies this rank's tokens and routing into its region
// (unless the caller wrote them there), publishes them, waits for the peers', checks that all ranks
// mean the same call, builds every table and seeds every counter that kernel 1 and kernel 2 use.
// One launch, no host synchronisation, capturable. Roles: publish_plan.cuh.
#pragma once

#include <cstdint>

#include "fused/call_state.h"
#include "protocol/endpoint.h"
#include "protocol/reset.h"
#include "slipstream/schedule.h"
#include "slipstream/status.h"
#include "symmetric/call_signature.h"
#include "symmetric/region_layout.h"

// cudaStream_t without CUDA's headers.
struct CUstream_st;

namespace slipstream::fused {

// This rank's input. Pointers are device memory. A pointer that equals the region's own field is
// taken as written in place and not copied.
struct CallInput {
  const std::byte* tokens = nullptr;  // [num_tokens, H]
  std::int64_t token_stride_bytes = 0;
  const std::int32_t* topk_ids = nullptr;  // [num_tokens, K]
  const float* topk_weights = nullptr;     // [num_tokens, K]
  std::int32_t num_tokens = 0;
  // Where not null, the count is read from here (device memory) when the launch runs; num_tokens is
  // then ignored. More than max_tokens is a call error on every rank.
  const std::int32_t* device_num_tokens = nullptr;
};

struct PublishPlanParams {
  protocol::Endpoint endpoint;
  PeerTable peers;
  Region regions[kMaxRanks];  // peers.region(q): finding them again costs more than a load
  ScheduleShape shape;
  CallSignature signature;
  std::int64_t token_row_bytes = 0;  // of the layer's H
  CallInput input;
  CallState state;
  Verdict* host_verdict = nullptr;  // pinned host memory, mapped; written after state.verdict
};

struct PublishPlanLaunch {
  std::int32_t num_blocks = 0;  // 0: as many as the device (or this rank's share of it) has SMs
};

// The SMs of the current device. Loads the kernel, so that no module is loaded while a peer spins.
Status prepare_publish_plan();

Status launch_publish_plan(const PublishPlanParams& params, const PublishPlanLaunch& launch,
                           CUstream_st* stream);

// Ends a call that runs no kernels 1 and 2: every rank sends this epoch's watermarks, waits for its
// peers' and advances the epoch. This is what rejected calls do; tests of publish_plan alone use it
// for good ones too.
Status launch_close_call(const PublishPlanParams& params, CUstream_st* stream);

// The collective reset on the device. `outcome` is pinned host memory.
Status launch_collective_reset(const protocol::Endpoint& endpoint, const CallState& state,
                               protocol::ResetOutcome* outcome, CUstream_st* stream);

// kInvalidRouting, kSignatureMismatch, ... of a verdict that is not good; ok otherwise.
Status verdict_status(const Verdict& verdict, const ScheduleShape& shape, std::int32_t max_tokens);

}  // namespace slipstream::fused
