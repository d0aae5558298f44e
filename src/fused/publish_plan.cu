// The kernels of publish_plan and their launchers. The bodies only assign roles.
#include "fused/publish_plan.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "fused/cuda_status.h"

namespace slipstream::fused {

namespace {

// ---- kernels ------------------------------------------------------------------------------------

__device__ void write_verdict(const PublishPlanParams& params, Verdict verdict) {
  const ScheduleCounts& counts = *params.state.tables.counts;
  if (verdict.code == VerdictCode::kGood && counts.num_invalid_ids > 0) {
    verdict.code = VerdictCode::kInvalidIds;
    verdict.index = counts.first_invalid_pair;
    verdict.count = counts.num_invalid_ids;
  }
  *params.state.verdict = verdict;
  *params.host_verdict = verdict;
}

// Nobody uses the other epoch's joints: its call is over, and the next one starts after this
// launch.
__device__ void wipe_control(PlanControl& control) {
  control.places.relaxed_seed();
  control.copies.relaxed_seed();
  control.copied.relaxed_seed();
  control.counted.relaxed_seed(0);
  control.assigned.relaxed_seed(0);
}

__global__ void __launch_bounds__(kPlanThreads, 1)
    publish_plan_kernel(const __grid_constant__ PublishPlanParams params, std::int32_t num_warps) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ std::int64_t shared_place;
  __shared__ CallView view;
  __shared__ protocol::SpinContext shared_spin;
  cudaGridDependencySynchronize();  // nothing of the last call may run any more

  // One thread asks for all: a thousand acquiring loads would take longer than the rest.
  if (threadIdx.x == 0) {
    shared_spin = protocol::begin_call(params.endpoint, static_cast<std::int32_t>(blockIdx.x));
    shared_place = params.state.control[shared_spin.tag.epoch % 2].places.relaxed_take(kAnyPlace);
  }
  __syncthreads();
  const protocol::SpinContext spin = shared_spin;
  PlanControl& control = params.state.control[spin.tag.epoch % 2];
  const std::int64_t place = shared_place;
  if (place == 0 && threadIdx.x == 0) wipe_control(params.state.control[(spin.tag.epoch + 1) % 2]);

  copy_and_publish(params, control, spin, place);
  if (place >= kMaxPlanBlocks) return;

  await_peers(params, spin, view);
  bool speaks = place == 0;  // a rejected call's verdict is the same in every block
  if (view.verdict.code == VerdictCode::kGood) {
    speaks = build(params, control, spin, view, shared, num_warps, place);
  }
  if (threadIdx.x != 0) return;
  const bool failed = spin.failed();
  if (failed) view.verdict.code = VerdictCode::kGroupFailed;
  if (speaks || failed) write_verdict(params, view.verdict);
}

// One block. Lane q of warp 0 serves peer q; chunks are few.
__global__ void close_call_kernel(const __grid_constant__ PublishPlanParams params) {
  cudaGridDependencySynchronize();
  const protocol::SpinContext spin = protocol::begin_call(params.endpoint, 0);
  const std::int32_t peer = static_cast<std::int32_t>(threadIdx.x);
  if (peer < spin.num_ranks()) {
    protocol::publish_rejection(spin, peer);
    protocol::wait_rejection(spin, peer);
  }
  __syncthreads();
  if (threadIdx.x == 0) params.endpoint.state->clock.leave(1);
}

__global__ void collective_reset_kernel(const __grid_constant__ protocol::Endpoint endpoint,
                                        PlanControl* control, protocol::ResetOutcome* outcome) {
  cudaGridDependencySynchronize();
  *outcome = protocol::collective_reset(endpoint);
  if (outcome->result != protocol::SpinResult::kReady) return;
  wipe_control(control[0]);
  wipe_control(control[1]);
}

// ---- launchers ----------------------------------------------------------------------------------

// Beside the dynamic shared memory the kernel has some static one.
constexpr int kStaticSharedBytes = 2 * 1024;

struct DeviceLimits {
  int num_sms = 0;
  int dynamic_shared_bytes = 0;
};

Status device_limits(DeviceLimits& limits) {
  int device = 0;
  int optin_bytes = 0;
  SLIPSTREAM_RETURN_IF_CUDA(cudaGetDevice(&device));
  SLIPSTREAM_RETURN_IF_CUDA(
      cudaDeviceGetAttribute(&limits.num_sms, cudaDevAttrMultiProcessorCount, device));
  SLIPSTREAM_RETURN_IF_CUDA(
      cudaDeviceGetAttribute(&optin_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  limits.dynamic_shared_bytes = optin_bytes - kStaticSharedBytes;
  return Status::ok();
}

bool is_in_place(const PublishPlanParams& params) {
  const Region own = params.peers.own();
  return params.input.tokens == own.tokens && params.input.topk_ids == own.topk_ids &&
         params.input.topk_weights == own.topk_weights;
}

}  // namespace

Status prepare_publish_plan() {
  DeviceLimits limits;
  if (Status status = device_limits(limits); !status.is_ok()) return status;
  SLIPSTREAM_RETURN_IF_CUDA(cudaFuncSetAttribute(publish_plan_kernel,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 limits.dynamic_shared_bytes));
  // Lazy loading would load a module in the middle of a peer's wait: ask for each kernel now.
  cudaFuncAttributes unused;
  SLIPSTREAM_RETURN_IF_CUDA(cudaFuncGetAttributes(&unused, publish_plan_kernel));
  SLIPSTREAM_RETURN_IF_CUDA(cudaFuncGetAttributes(&unused, close_call_kernel));
  SLIPSTREAM_RETURN_IF_CUDA(cudaFuncGetAttributes(&unused, collective_reset_kernel));
  return Status::ok();
}

Status launch_publish_plan(const PublishPlanParams& params, const PublishPlanLaunch& launch,
                           CUstream_st* stream) {
  DeviceLimits limits;
  if (Status status = device_limits(limits); !status.is_ok()) return status;
  int num_blocks = launch.num_blocks > 0 ? launch.num_blocks : limits.num_sms;
  // Nothing to copy: more blocks would only come and go.
  if (is_in_place(params)) num_blocks = std::min(num_blocks, kMaxPlanBlocks);
  const std::int32_t num_warps =
      fitting_warps(params.shape, limits.dynamic_shared_bytes, kPlanWarps);
  const auto shared_bytes = static_cast<std::size_t>(team_scratch_bytes(params.shape, num_warps));
  publish_plan_kernel<<<num_blocks, kPlanThreads, shared_bytes, stream>>>(params, num_warps);
  SLIPSTREAM_RETURN_IF_CUDA(cudaGetLastError());
  return Status::ok();
}

Status launch_close_call(const PublishPlanParams& params, CUstream_st* stream) {
  close_call_kernel<<<1, 32, 0, stream>>>(params);
  SLIPSTREAM_RETURN_IF_CUDA(cudaGetLastError());
  return Status::ok();
}

Status launch_collective_reset(const protocol::Endpoint& endpoint, const CallState& state,
                               protocol::ResetOutcome* outcome, CUstream_st* stream) {
  collective_reset_kernel<<<1, 1, 0, stream>>>(endpoint, state.control, outcome);
  SLIPSTREAM_RETURN_IF_CUDA(cudaGetLastError());
  return Status::ok();
}

Status verdict_status(const Verdict& verdict, const ScheduleShape& shape, std::int32_t max_tokens) {
  switch (verdict.code) {
    case VerdictCode::kGood:
    case VerdictCode::kGroupFailed:  // the wait record says more
      return Status::ok();
    case VerdictCode::kSignatureMismatch:
      return signature_mismatch(verdict.index, verdict.peer, verdict.value, verdict.own_value);
    case VerdictCode::kInvalidTokenCount:
      return Status(StatusCode::kInvalidRouting, Subsystem::kRouting,
                    {.what = "num_tokens",
                     .observed = std::to_string(verdict.value),
                     .expected = "0.." + std::to_string(max_tokens),
                     .hint = "make the layer with a larger max_tokens",
                     .culprit_rank = verdict.peer});
    case VerdictCode::kInvalidIds:
      return Status(
          StatusCode::kInvalidRouting, Subsystem::kRouting,
          {.what = "topk_ids of global token " + std::to_string(verdict.index / shape.topk) +
                   ", k " + std::to_string(verdict.index % shape.topk),
           .observed = "outside (" + std::to_string(verdict.count) + " such ids)",
           .expected = "0.." + std::to_string(shape.num_experts - 1) + " or -1",
           .hint = "mask padded tokens with -1"});
  }
  return Status(StatusCode::kInternal, Subsystem::kLayer, {.what = "verdict code"});
}

}  // namespace slipstream::fused
