// The roles of publish_plan: copy and publish, await the peers, build the tables. publish_plan.cu
// assigns them. Read publish_plan.h first.
//
// A block that has copied what it could takes part in planning if it is among the first
// kMaxPlanBlocks to arrive; the others leave.
#pragma once

#include <cstdint>

#include "fused/call_state.h"
#include "fused/publish_plan.h"
#include "protocol/call.h"
#include "schedule/builder_phases.h"

namespace slipstream::fused {

// ---- copy and publish ---------------------------------------------------------------------------

inline constexpr std::int64_t kCopyBytes = 64 * 1024;  // a part
inline constexpr std::int32_t kCopyPairs = 8 * 1024;

// What of the input has to be copied, in parts. Part 0 is the header; it always exists.
struct CopyParts {
  std::int32_t num_tokens;
  std::int32_t rows_per_part;
  std::int32_t num_token_parts;
  std::int32_t num_routing_parts;

  __device__ CopyParts(const PublishPlanParams& params, const Region& own) {
    const CallInput& input = params.input;
    num_tokens = input.device_num_tokens != nullptr ? *input.device_num_tokens : input.num_tokens;
    // An impossible count is published as it is, so that every rank rejects it; nothing is copied.
    const std::int32_t rows =
        num_tokens < 0 || num_tokens > params.peers.shape.max_tokens ? 0 : num_tokens;
    const std::int64_t fitting = kCopyBytes / max(params.token_row_bytes, std::int64_t{1});
    rows_per_part = static_cast<std::int32_t>(max(fitting, std::int64_t{1}));
    num_token_parts = input.tokens == own.tokens ? 0 : (rows + rows_per_part - 1) / rows_per_part;
    const std::int64_t pairs = std::int64_t{rows} * params.shape.topk;
    num_routing_parts = input.topk_ids == own.topk_ids && input.topk_weights == own.topk_weights
                            ? 0
                            : static_cast<std::int32_t>((pairs + kCopyPairs - 1) / kCopyPairs);
  }

  __device__ std::int32_t num_parts() const { return 1 + num_token_parts + num_routing_parts; }
};

// A warp a row: no division, and a row's vectors are adjacent.
template <class Vector>
__device__ void copy_row_vectors(const PublishPlanParams& params, std::byte* target,
                                 std::int32_t row_begin, std::int32_t row_end) {
  const auto row_vectors =
      static_cast<std::int32_t>(params.token_row_bytes / std::int64_t{sizeof(Vector)});
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  for (std::int32_t row = row_begin + static_cast<std::int32_t>(threadIdx.x / 32); row < row_end;
       row += kPlanWarps) {
    auto* const to = reinterpret_cast<Vector*>(target + row * params.token_row_bytes);
    const auto* const from = reinterpret_cast<const Vector*>(params.input.tokens +
                                                             row * params.input.token_stride_bytes);
#pragma unroll 4
    for (std::int32_t i = lane; i < row_vectors; i += 32) to[i] = from[i];
  }
}

__device__ inline void copy_token_rows(const PublishPlanParams& params, const Region& own,
                                       std::int32_t row_begin, std::int32_t row_end) {
  const auto misaligned = reinterpret_cast<std::uintptr_t>(params.input.tokens) |
                          static_cast<std::uintptr_t>(params.input.token_stride_bytes) |
                          static_cast<std::uintptr_t>(params.token_row_bytes);
  if (misaligned % 16 == 0) {
    copy_row_vectors<uint4>(params, own.tokens, row_begin, row_end);
  } else if (misaligned % 4 == 0) {
    copy_row_vectors<std::uint32_t>(params, own.tokens, row_begin, row_end);
  } else {
    copy_row_vectors<std::uint16_t>(params, own.tokens, row_begin, row_end);
  }
}

__device__ inline void copy_part(const PublishPlanParams& params, const Region& own,
                                 const CopyParts& parts, std::int32_t part) {
  if (part == 0) {
    if (threadIdx.x == 0) own.header->num_tokens = parts.num_tokens;
#pragma unroll 1
    for (std::int32_t i = threadIdx.x; i < kNumSignatureFields; i += blockDim.x)
      own.signature[i] = params.signature.values[i];
    return;
  }
  part -= 1;
  if (part < parts.num_routing_parts) {
    const std::int64_t all_pairs = std::int64_t{parts.num_tokens} * params.shape.topk;
    const std::int64_t begin = std::int64_t{part} * kCopyPairs;
    const std::int64_t end = min(begin + kCopyPairs, all_pairs);
#pragma unroll 1
    for (std::int64_t pair = begin + threadIdx.x; pair < end; pair += blockDim.x) {
      own.topk_ids[pair] = params.input.topk_ids[pair];
      own.topk_weights[pair] = params.input.topk_weights[pair];
    }
    return;
  }
  part -= parts.num_routing_parts;
  const std::int32_t row_begin = part * parts.rows_per_part;
  copy_token_rows(params, own, row_begin, min(row_begin + parts.rows_per_part, parts.num_tokens));
}

// Takes parts until none is left. The block that finishes the last one publishes to all peers.
__device__ inline void copy_and_publish(const PublishPlanParams& params, PlanControl& control,
                                        const protocol::SpinContext& spin, std::int64_t place) {
  __shared__ std::int64_t shared_part;
  __shared__ bool shared_elected;
  const Region own = params.regions[params.peers.rank];
  const CopyParts parts(params, own);
  if (parts.num_parts() == 1) {  // all in place: the header needs no joint
    if (place != 0) return;
    copy_part(params, own, parts, 0);
    __syncthreads();
    if (threadIdx.x < spin.num_ranks()) protocol::publish_inputs(spin, threadIdx.x);
    return;
  }
  for (;;) {
    if (threadIdx.x == 0) shared_part = control.copies.relaxed_take(parts.num_parts());
    __syncthreads();
    const std::int64_t part = shared_part;
    if (part == protocol::kNoTicket) return;
    copy_part(params, own, parts, static_cast<std::int32_t>(part));
    __syncthreads();
    if (threadIdx.x == 0) shared_elected = control.copied.arrive(parts.num_parts());
    __syncthreads();
    if (shared_elected && threadIdx.x < spin.num_ranks())
      protocol::publish_inputs(spin, threadIdx.x);
  }
}

// ---- await the peers ----------------------------------------------------------------------------

// What a planning block knows of the call after it has waited for everybody.
struct CallView {
  std::int32_t tokens[kMaxRanks];
  std::int32_t token_begin[kMaxRanks + 1];
  Verdict verdict;
};

// Thread q waits for rank q and reads its header; warp q compares its signature with rank 0's, so
// that all ranks find the same difference. Every block that reads peers' data comes through here.
__device__ inline void await_peers(const PublishPlanParams& params,
                                   const protocol::SpinContext& spin, CallView& view) {
  __shared__ protocol::SpinResult results[kMaxRanks];
  __shared__ std::int32_t differing[kMaxRanks];
  const std::int32_t num_ranks = spin.num_ranks();
  const std::int32_t warp = threadIdx.x / 32;
  const std::int32_t lane = threadIdx.x % 32;
  // A warp a peer: the first lane waits, all lanes read behind it.
  if (warp < num_ranks) {
    protocol::SpinResult result = protocol::SpinResult::kReady;
    if (lane == 0) {
      result = protocol::wait_inputs(spin, warp);
      // The differences are told against rank 0's signature.
      if (result == protocol::SpinResult::kReady) result = protocol::wait_inputs(spin, 0);
      results[warp] = result;
    }
    const bool ready = __shfl_sync(~0U, static_cast<int>(result), 0) ==
                       static_cast<int>(protocol::SpinResult::kReady);
    std::int32_t field = kNumSignatureFields;
    if (ready) {
      const Region region = params.regions[warp];
      const Region first = params.regions[0];
      const std::int32_t num_tokens = region.header->num_tokens;
#pragma unroll
      for (std::int32_t begin = (kNumSignatureFields - 1) / 32 * 32; begin >= 0; begin -= 32) {
        const std::int32_t i = min(begin + lane, kNumSignatureFields - 1);
        if (region.signature[i] != first.signature[i]) field = i;
      }
      if (lane == 0) view.tokens[warp] = num_tokens;
    }
    field = static_cast<std::int32_t>(__reduce_min_sync(~0U, static_cast<unsigned>(field)));
    if (lane == 0) differing[warp] = field;
  } else if (warp < kMaxRanks && lane == 0) {
    view.tokens[warp] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Verdict verdict{VerdictCode::kGood, -1, 0, 0, 0, 0, spin.tag.epoch};
    for (std::int32_t rank = num_ranks - 1; rank >= 0; --rank) {
      const std::int32_t num_tokens = view.tokens[rank];
      if (num_tokens >= 0 && num_tokens <= params.peers.shape.max_tokens) continue;
      verdict.code = VerdictCode::kInvalidTokenCount;
      verdict.peer = rank;
      verdict.value = num_tokens;
    }
    for (std::int32_t rank = num_ranks - 1; rank >= 0; --rank) {
      if (differing[rank] == kNumSignatureFields) continue;
      verdict.code = VerdictCode::kSignatureMismatch;
      verdict.peer = rank;
      verdict.index = differing[rank];
      verdict.value = params.regions[rank].signature[differing[rank]];
      verdict.own_value = params.regions[0].signature[differing[rank]];
    }
    for (std::int32_t rank = 0; rank < num_ranks; ++rank)
      if (results[rank] != protocol::SpinResult::kReady) verdict.code = VerdictCode::kGroupFailed;
    view.token_begin[0] = 0;
    for (std::int32_t rank = 0; rank < kMaxRanks; ++rank) {
      const bool good = verdict.code == VerdictCode::kGood;
      view.token_begin[rank + 1] = view.token_begin[rank] + (good ? view.tokens[rank] : 0);
    }
    view.verdict = verdict;
  }
  __syncthreads();
}

// ---- gather the routing and build ---------------------------------------------------------------

using PlanTeam = BlockTeam<kPlanThreads>;

inline constexpr std::int64_t kAnyPlace = std::int64_t{1} << 40;

// Copies ids and weights of pairs [begin, end) of the [S, K] arrays that the ranks hold in pieces.
__device__ inline void gather_pairs(const PublishPlanParams& params, const CallView& view,
                                    std::int64_t begin, std::int64_t end) {
  const std::int64_t topk = params.shape.topk;
#pragma unroll 1
  for (std::int32_t rank = 0; rank < params.shape.num_ranks; ++rank) {
    const std::int64_t rank_begin = view.token_begin[rank] * topk;
    const std::int64_t from = max(begin, rank_begin);
    const std::int64_t to = min(end, view.token_begin[rank + 1] * topk);
    if (from >= to) continue;
    const Region region = params.regions[rank];
    // Eight loads in flight, half of them weights: each costs a round trip over the link.
    constexpr int kInFlight = 4;
#pragma unroll 1
    for (std::int64_t first = from + threadIdx.x; first < to; first += kInFlight * kPlanThreads) {
      std::int32_t ids[kInFlight];
      float weights[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t pair = first + i * kPlanThreads;
        if (pair >= to) continue;
        ids[i] = region.topk_ids[pair - rank_begin];
        weights[i] = region.topk_weights[pair - rank_begin];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t pair = first + i * kPlanThreads;
        if (pair >= to) continue;
        params.state.topk_ids[pair] = ids[i];
        params.state.topk_weights[pair] = weights[i];
      }
    }
  }
}

// The routing of one share's tokens: consecutive in rotated order, so at most two ranges.
__device__ inline void gather_share(const PublishPlanParams& params, const CallView& view,
                                    const BuilderArgs& args, std::int32_t share) {
  const builder::OwnerRanges owners(args);
  const builder::Range tokens = builder::share_tokens(args, owners, share);
  const std::int32_t first = owners.first_token(params.shape);
  const std::int32_t until_wrap = owners.num_tokens() - first;
  const std::int64_t topk = params.shape.topk;
  const std::int32_t straight = min(tokens.end, until_wrap);
  gather_pairs(params, view, (tokens.begin + first) * topk, (straight + first) * topk);
  const std::int32_t wrapped = max(tokens.begin, until_wrap);
  gather_pairs(params, view, (wrapped - until_wrap) * topk, (tokens.end - until_wrap) * topk);
  __syncthreads();
}

// Seeds what kernels 1 and 2 count with. Shares deal it out.
__device__ inline void seed_counters(const PublishPlanParams& params, std::int32_t num_tiles,
                                     std::int32_t share, std::int32_t num_shares) {
  const CallState& state = params.state;
  const std::int32_t num_chunks = params.shape.chunks.num_chunks;
  const std::int32_t first = share * kPlanThreads + static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t step = num_shares * kPlanThreads;
#pragma unroll 1
  for (std::int32_t tile = first; tile < num_tiles; tile += step)
    state.token_gates[tile].relaxed_seed(state.tables.slack[tile]);
#pragma unroll 1
  for (std::int64_t i = first; i < std::int64_t{num_tiles} * num_chunks; i += step)
    state.tile_done[i].relaxed_seed(0);
#pragma unroll 1
  for (std::int32_t i = first; i < params.shape.num_ranks * num_chunks; i += step)
    state.elections[i].relaxed_seed();
#pragma unroll 1
  for (std::int32_t i = first; i < kNumDispensers; i += step) state.dispensers[i].relaxed_seed();
}

// False: the group has failed.
__device__ inline bool pass_joint(protocol::TileDone& joint, const protocol::SpinContext& spin,
                                  std::int32_t num_shares) {
  __shared__ bool shared_ready;
  if (threadIdx.x == 0)
    shared_ready = joint.wait(num_shares, spin, 0) == protocol::SpinResult::kReady;
  __syncthreads();
  return shared_ready;
}

__device__ inline void arrive_at(protocol::TileDone& joint) {
  __syncthreads();
  if (threadIdx.x == 0) joint.arrive();
}

// A share has work for every thread, and small calls are one block's.
__device__ inline std::int32_t num_plan_shares(const PublishPlanParams& params,
                                               const CallView& view) {
  const std::int64_t num_pairs = std::int64_t{view.token_begin[kMaxRanks]} * params.shape.topk;
  const std::int64_t fitting = (num_pairs + kPlanThreads - 1) / kPlanThreads;
  return static_cast<std::int32_t>(
      max(std::int64_t{1}, min(fitting, std::int64_t{kMaxPlanBlocks})));
}

// What the phases read again and again, once a block: a copy a thread would not stay in registers.
struct SharedBuilder {
  alignas(BuilderArgs) std::byte args_bytes[sizeof(BuilderArgs)];
  alignas(TeamScratch) std::byte team_bytes[sizeof(TeamScratch)];

  __device__ BuilderArgs& args() { return *reinterpret_cast<BuilderArgs*>(args_bytes); }
  __device__ TeamScratch& team() { return *reinterpret_cast<TeamScratch*>(team_bytes); }
};

__device__ inline void bind_builder(const PublishPlanParams& params, const CallView& view,
                                    std::byte* team_memory, std::int32_t num_warps,
                                    SharedBuilder& builder) {
  if (threadIdx.x == 0) {
    BuilderArgs args;
    args.shape = params.shape;
    args.num_shares = num_plan_shares(params, view);
    args.tokens_per_rank = view.tokens;
    args.topk_ids = params.state.topk_ids;
    args.tables = params.state.tables;
    args.scratch = bind_builder_scratch(params.state.builder_scratch, params.shape, kMaxPlanBlocks,
                                        rows_bound(params.shape, view.token_begin[kMaxRanks]));
    builder.args() = args;
    builder.team() = bind_team_scratch(team_memory, params.shape, num_warps);
  }
  __syncthreads();
}

// All tables. `place`: this block's; it is its first share. True for the block that has share 0 and
// thus knows the counts.
__device__ inline bool build(const PublishPlanParams& params, PlanControl& control,
                             const protocol::SpinContext& spin, const CallView& view,
                             std::byte* team_memory, std::int32_t num_warps, std::int64_t place) {
  __shared__ std::int64_t shared_share;
  __shared__ SharedBuilder shared_builder;
  if (place >= num_plan_shares(params, view)) return false;
  bind_builder(params, view, team_memory, num_warps, shared_builder);
  const BuilderArgs& args = shared_builder.args();
  const TeamScratch& team = shared_builder.team();
  const std::int32_t num_shares = args.num_shares;
  std::uint32_t owned = 0;
  std::int32_t counted = -1;
  for (std::int64_t share = place; share < num_shares;) {
    counted = static_cast<std::int32_t>(share);
    owned |= 1U << counted;
    gather_share(params, view, args, counted);
    builder::count_share<PlanTeam>(args, team, counted);
    if (num_shares == 1) break;
    arrive_at(control.counted);
    if (threadIdx.x == 0) shared_share = control.places.relaxed_take(kAnyPlace);
    __syncthreads();
    share = shared_share;
    __syncthreads();
  }
  if (num_shares > 1 && !pass_joint(control.counted, spin, num_shares)) return false;
#pragma unroll 1
  for (std::int32_t share = 0; share < num_shares; ++share) {
    if ((owned >> share & 1U) == 0) continue;
    __syncthreads();
    builder::assign_share<PlanTeam>(args, team, share, counted == share);
    if (num_shares > 1) arrive_at(control.assigned);
    counted = -1;  // used up
  }
  __syncthreads();
  if (num_shares > 1 && !pass_joint(control.assigned, spin, num_shares)) return false;
#pragma unroll 1
  for (std::int32_t share = 0; share < num_shares; ++share) {
    if ((owned >> share & 1U) == 0) continue;
    builder::order_share<PlanTeam>(args, team, share, true);
    seed_counters(params, team.tile_begin[params.shape.num_groups()], share, num_shares);
    __syncthreads();
  }
  return (owned & 1U) != 0;
}

}  // namespace slipstream::fused
