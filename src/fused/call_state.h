// CallState: the device memory of one rank that the kernels of a call share: tables, counters,
// dispensers, the verdict. No peer sees it. publish_plan fills it once a call; kernel 1 and kernel
// 2 read the tables and consume the counters. Who allocates it: the CUDA workspace, zeroed. Next:
// publish_plan.h.
#pragma once

#include <cstdint>

#include "protocol/dispenser.h"
#include "protocol/election.h"
#include "protocol/endpoint.h"
#include "protocol/gate.h"
#include "schedule/builder_args.h"
#include "schedule/schedule.h"
#include "slipstream/config.h"
#include "slipstream/schedule.h"

namespace slipstream::fused {

enum class VerdictCode : std::int32_t {
  kGood = 0,
  kSignatureMismatch = 1,  // call errors: every rank finds the same one
  kInvalidTokenCount = 2,
  kInvalidIds = 3,
  kGroupFailed = 4,
};

// What publish_plan made of a call. Kernel 1 and 2 do their work only when it is good.
struct Verdict {
  VerdictCode code;
  std::int32_t peer;       // kSignatureMismatch, kInvalidTokenCount: the first rank that differs
  std::int32_t index;      // kSignatureMismatch: field; kInvalidIds: the first such j * K + k
  std::int32_t count;      // kInvalidIds: how many
  std::int64_t value;      // the peer's value; kInvalidIds: the id
  std::int64_t own_value;  // kSignatureMismatch: rank 0's value
  std::uint32_t epoch;     // of the call
};

// The dispensers that the roles of kernel 1 and kernel 2 draw from, seeded once a call.
enum DispenserIdx : std::int32_t {
  kGatherArrival,  // kernel 1: roles
  kGatherTokens,   // kernel 1: positions of pull_order
  kGateUpTiles,    // kernel 1: (tile, weight block) items
  kDownArrival,    // kernel 2: roles
  kDownTiles,      // kernel 2: positions of tile_order
  kDownJobs,       // kernel 2: positions of job_order
  kFinalReduce,    // kernel 2: row blocks of the final reduce
  kNumDispensers,
};

// publish_plan's own joints. One for odd and one for even epochs: each call wipes the other one, so
// that nothing must be reset while it is in use.
struct PlanControl {
  // Numbers 0, 1, ...: a block's first one is its place among the blocks of the launch and the
  // share of the tables that it builds; a block that is done with a share draws the next one. So
  // every share is some running block's, however few run, and whoever waits at a joint waits for
  // those.
  protocol::Dispenser places;
  protocol::Dispenser copies;  // parts of this rank's inputs, copied into the region
  protocol::Election copied;   // the last part's copier publishes
  protocol::TileDone counted;
  protocol::TileDone assigned;
};

struct CallState {
  protocol::RankState* rank_state = nullptr;  // [1]
  PlanControl* control = nullptr;             // [2], by epoch parity
  Verdict* verdict = nullptr;                 // [1]
  std::int32_t* tokens_per_rank = nullptr;    // [kMaxRanks], padded with 0
  std::int32_t* topk_ids = nullptr;           // [S, K] of all ranks
  float* topk_weights = nullptr;              // [S, K] of all ranks
  ScheduleTables tables;
  protocol::TokenGate* token_gates = nullptr;  // [max tiles]
  protocol::TileDone* tile_done = nullptr;     // [chunks, max tiles]
  protocol::Election* elections = nullptr;     // [W, chunks]
  protocol::Dispenser* dispensers = nullptr;   // [kNumDispensers]
  void* builder_scratch = nullptr;             // builder_scratch_bytes(), for kMaxPlanBlocks
};

// Blocks that wait for peers, at most, and thus plan: a kernel that waits for a remote rank holds
// few SMs, so that two instances on the same GPUs cannot lock each other out.
inline constexpr std::int32_t kMaxPlanBlocks = 8;
inline constexpr std::int32_t kPlanThreads = 512;
inline constexpr std::int32_t kPlanWarps = kPlanThreads / 32;

// THE field list: visit(pointer, num_elements), in the order in which they lie in memory.
template <class Visit>
void for_each_call_state_field(const ScheduleShape& shape, std::int64_t max_tokens_per_rank,
                               CallState& state, Visit&& visit) {
  const std::int64_t max_tokens = max_tokens_per_rank * shape.num_ranks;
  const ScheduleCapacity capacity = schedule_capacity(shape, max_tokens);
  const std::int64_t num_groups = shape.num_groups();
  visit(state.rank_state, std::int64_t{1});
  visit(state.control, std::int64_t{2});
  visit(state.verdict, std::int64_t{1});
  visit(state.tokens_per_rank, std::int64_t{kMaxRanks});
  visit(state.topk_ids, capacity.num_pairs);
  visit(state.topk_weights, capacity.num_pairs);
  visit(state.tables.counts, std::int64_t{1});
  visit(state.tables.owner_token_begin, std::int64_t{kMaxRanks + 1});
  visit(state.tables.expert_row_begin, num_groups + 1);
  visit(state.tables.expert_tile_begin, num_groups + 1);
  visit(state.tables.token_tile, capacity.num_tiles);
  visit(state.tables.slack, capacity.num_tiles);
  visit(state.tables.slots, capacity.num_pairs);
  visit(state.tables.slot_tile, capacity.num_pairs);
  visit(state.tables.row_source, capacity.num_rows);
  visit(state.tables.pull_order, capacity.num_jobs);
  visit(state.tables.job_order, capacity.num_jobs);
  visit(state.tables.owner_num_jobs, std::int64_t{kMaxRanks});
  visit(state.token_gates, capacity.num_tiles);
  visit(state.tile_done, capacity.num_tiles * shape.chunks.num_chunks);
  visit(state.elections, std::int64_t{shape.num_ranks} * shape.chunks.num_chunks);
  visit(state.dispensers, std::int64_t{kNumDispensers});
  auto* scratch = static_cast<std::byte*>(state.builder_scratch);
  visit(scratch, builder_scratch_bytes(shape, kMaxPlanBlocks, capacity.num_rows));
  state.builder_scratch = scratch;
}

inline constexpr std::int64_t kCallStateAlignment = 256;

inline std::int64_t align_call_state(std::int64_t bytes) {
  return (bytes + kCallStateAlignment - 1) / kCallStateAlignment * kCallStateAlignment;
}

inline std::int64_t call_state_bytes(const ScheduleShape& shape, std::int64_t max_tokens_per_rank) {
  std::int64_t bytes = 0;
  CallState unused;
  for_each_call_state_field(shape, max_tokens_per_rank, unused,
                            [&]<class T>(T*&, std::int64_t count) {
                              bytes += align_call_state(count * std::int64_t{sizeof(T)});
                            });
  return bytes;
}

// `base`: call_state_bytes() of device memory, zeroed.
inline CallState call_state_at(void* base, const ScheduleShape& shape,
                               std::int64_t max_tokens_per_rank) {
  CallState state;
  auto* next = static_cast<std::byte*>(base);
  for_each_call_state_field(shape, max_tokens_per_rank, state,
                            [&]<class T>(T*& pointer, std::int64_t count) {
                              pointer = reinterpret_cast<T*>(next);
                              next += align_call_state(count * std::int64_t{sizeof(T)});
                            });
  return state;
}

// The tables as kernels 1 and 2 read them.
inline ScheduleView schedule_view(const CallState& state, const ScheduleShape& shape) {
  const ScheduleTables& tables = state.tables;
  return ScheduleView{.shape = shape,
                      .counts = tables.counts,
                      .owner_token_begin = tables.owner_token_begin,
                      .expert_row_begin = tables.expert_row_begin,
                      .expert_tile_begin = tables.expert_tile_begin,
                      .token_tile = tables.token_tile,
                      .slack = tables.slack,
                      .slots = tables.slots,
                      .slot_tile = tables.slot_tile,
                      .row_source = tables.row_source,
                      .pull_order = tables.pull_order,
                      .job_order = tables.job_order,
                      .owner_num_jobs = tables.owner_num_jobs};
}

}  // namespace slipstream::fused
