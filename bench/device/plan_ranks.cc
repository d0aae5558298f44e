#include "plan_ranks.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace slipstream::testing {

int num_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

namespace {

// No destructors: peers' threads may wait inside CUDA.
[[noreturn]] void leave() {
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  leave();
}

void check_status(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  leave();
}

namespace {

template <class T>
T* device_alloc(std::int64_t count) {
  void* memory = nullptr;
  const std::size_t bytes = static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(T);
  check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
  return static_cast<T*>(memory);
}

template <class T>
T* pinned_alloc() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
             "cudaHostAlloc");
  std::memset(memory, 0, sizeof(T));
  return static_cast<T*>(memory);
}

template <class T>
std::vector<T> fetch(const T* device, std::int64_t count) {
  std::vector<T> host(static_cast<std::size_t>(count));
  if (count > 0) {
    check_cuda(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
  }
  return host;
}

}  // namespace

PlanRanks::PlanRanks(const Problem& problem, const Tuning& tuning, double limit_seconds)
    : problem_(problem), tuning_(tuning), ranks_(problem.num_ranks) {
  const int devices = num_gpus();
  const RegionShape shape = region_shape(problem);
  PeerTable peers;
  peers.shape = shape;
  for (int r = 0; r < num_ranks(); ++r) {
    Rank& rank = ranks_[r];
    rank.device = r % devices;
    select(r);
    for (int other = 0; other < devices; ++other) {
      if (other == rank.device) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
      if (error != cudaErrorPeerAccessAlreadyEnabled) check_cuda(error, "peer access");
      cudaGetLastError();
    }
    check_cuda(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "stream");
    rank.region = device_alloc<std::byte>(region_bytes(shape));
    peers.base[r] = rank.region;
    const ScheduleShape schedule = schedule_shape(problem, tuning, r);
    rank.state_bytes = fused::call_state_bytes(schedule, problem.max_tokens);
    rank.state_base = device_alloc<std::byte>(rank.state_bytes);
    rank.tokens = device_alloc<std::byte>(problem.max_tokens * shape.token_row_bytes);
    rank.topk_ids = device_alloc<std::int32_t>(std::int64_t{problem.max_tokens} * problem.topk);
    rank.topk_weights = device_alloc<float>(std::int64_t{problem.max_tokens} * problem.topk);
    rank.record = pinned_alloc<protocol::WaitRecord>();
    rank.verdict = pinned_alloc<fused::Verdict>();
    rank.reset = pinned_alloc<protocol::ResetOutcome>();
    check_status(fused::prepare_publish_plan());
    check_cuda(cudaDeviceSynchronize(), "set-up");
  }
  for (int r = 0; r < num_ranks(); ++r) {
    Rank& rank = ranks_[r];
    peers.rank = r;
    fused::PublishPlanParams& params = rank.params;
    params.peers = peers;
    for (int q = 0; q < num_ranks(); ++q) params.regions[q] = peers.region(q);
    params.shape = schedule_shape(problem, tuning, r);
    params.signature =
        make_signature(problem, tuning, 0, shape.plane_bytes(), Transfer::kPush, Path::kFused);
    params.token_row_bytes = shape.token_row_bytes;
    params.state = fused::call_state_at(rank.state_base, params.shape, problem.max_tokens);
    params.host_verdict = rank.verdict;
    protocol::Endpoint& endpoint = params.endpoint;
    endpoint.rank = r;
    endpoint.num_ranks = num_ranks();
    for (int q = 0; q < num_ranks(); ++q) endpoint.signals[q] = peers.region(q).signals;
    endpoint.state = params.state.rank_state;
    endpoint.record = rank.record;
    const ScheduleCapacity capacity =
        schedule_capacity(params.shape, std::int64_t{problem.max_tokens} * num_ranks());
    endpoint.token_gates = params.state.token_gates;
    endpoint.num_token_gates = capacity.num_tiles;
    endpoint.tile_done = params.state.tile_done;
    endpoint.num_tile_done = capacity.num_tiles * params.shape.chunks.num_chunks;
    endpoint.set_limit(static_cast<std::uint64_t>(limit_seconds * 1e9));
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks(); ++r)
    threads.emplace_back([this, r] {
      if (reset(r).result != protocol::SpinResult::kReady) {
        std::fprintf(stderr, "the first reset of rank %d did not end in time\n", r);
        leave();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

PlanRanks::~PlanRanks() {
  for (int r = 0; r < num_ranks(); ++r) {
    Rank& rank = ranks_[r];
    select(r);
    cudaDeviceSynchronize();
    for (void* memory : {static_cast<void*>(rank.region), static_cast<void*>(rank.state_base),
                         static_cast<void*>(rank.tokens), static_cast<void*>(rank.topk_ids),
                         static_cast<void*>(rank.topk_weights)})
      cudaFree(memory);
    cudaFreeHost(rank.record);
    cudaFreeHost(rank.verdict);
    cudaFreeHost(rank.reset);
    cudaStreamDestroy(rank.stream);
  }
}

void PlanRanks::select(int rank) {
  check_cuda(cudaSetDevice(ranks_[rank].device), "cudaSetDevice");
}

void PlanRanks::upload(int r, const PlanCall& call) {
  Rank& rank = ranks_[r];
  select(r);
  const std::int64_t first = std::accumulate(call.tokens_per_rank.begin(),
                                             call.tokens_per_rank.begin() + r, std::int64_t{0}) *
                             problem_.topk;
  const std::int32_t num_tokens = call.tokens_per_rank[r];
  const std::int64_t pairs = std::int64_t{num_tokens} * problem_.topk;
  const Region own = rank.params.peers.own();
  fused::CallInput& input = rank.params.input;
  input.tokens = call.in_place ? own.tokens : rank.tokens;
  input.token_stride_bytes = rank.params.token_row_bytes;
  input.topk_ids = call.in_place ? own.topk_ids : rank.topk_ids;
  input.topk_weights = call.in_place ? own.topk_weights : rank.topk_weights;
  input.num_tokens = num_tokens;
  std::mt19937 random(static_cast<unsigned>(first + 17 * r + 1));
  rank.host_tokens.resize(static_cast<std::size_t>(num_tokens * rank.params.token_row_bytes));
  for (std::byte& byte : rank.host_tokens) byte = static_cast<std::byte>(random());
  const auto put = [&](const void* target, const void* source, std::int64_t bytes) {
    if (bytes == 0) return;
    check_cuda(cudaMemcpyAsync(const_cast<void*>(target), source, bytes, cudaMemcpyHostToDevice,
                               rank.stream),
               "upload");
  };
  put(input.tokens, rank.host_tokens.data(), static_cast<std::int64_t>(rank.host_tokens.size()));
  put(input.topk_ids, call.topk_ids.data() + first, pairs * 4);
  put(input.topk_weights, call.topk_weights.data() + first, pairs * 4);
}

void PlanRanks::launch(int r) {
  select(r);
  check_status(fused::launch_publish_plan(ranks_[r].params, {}, ranks_[r].stream));
  check_status(fused::launch_close_call(ranks_[r].params, ranks_[r].stream));
}

void PlanRanks::wait(int r) {
  select(r);
  check_cuda(cudaStreamSynchronize(ranks_[r].stream), "a call");
}

void PlanRanks::run(const PlanCall& call) {
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks(); ++r) upload(r, call);
  for (int r = 0; r < num_ranks(); ++r)
    threads.emplace_back([this, r] {
      launch(r);
      wait(r);
    });
  for (std::thread& thread : threads) thread.join();
}

PlanOutcome PlanRanks::download(int r) {
  Rank& rank = ranks_[r];
  select(r);
  const fused::CallState& state = rank.params.state;
  const ScheduleTables& tables = state.tables;
  PlanOutcome outcome;
  outcome.verdict = *rank.verdict;
  Schedule& schedule = outcome.schedule;
  schedule.shape = rank.params.shape;
  schedule.counts = fetch(tables.counts, 1)[0];
  const ScheduleCounts& counts = schedule.counts;
  const std::int64_t pairs = std::int64_t{counts.num_tokens} * problem_.topk;
  schedule.owner_token_begin = fetch(tables.owner_token_begin, num_ranks() + 1);
  schedule.expert_row_begin = fetch(tables.expert_row_begin, schedule.shape.num_groups() + 1);
  schedule.expert_tile_begin = fetch(tables.expert_tile_begin, schedule.shape.num_groups() + 1);
  schedule.token_tile = fetch(tables.token_tile, counts.num_tiles);
  schedule.slack = fetch(tables.slack, counts.num_tiles);
  schedule.slots = fetch(tables.slots, pairs);
  schedule.slot_tile = fetch(tables.slot_tile, pairs);
  schedule.row_source = fetch(tables.row_source, counts.num_rows);
  schedule.pull_order = fetch(tables.pull_order, counts.num_pull_tokens);
  schedule.job_order = fetch(tables.job_order, counts.num_jobs);
  schedule.owner_num_jobs = fetch(tables.owner_num_jobs, num_ranks());
  outcome.weights = fetch(state.topk_weights, pairs);
  outcome.gates =
      fetch(reinterpret_cast<const std::uint32_t*>(state.token_gates), counts.num_tiles);
  outcome.tokens =
      fetch(rank.params.peers.own().tokens, static_cast<std::int64_t>(rank.host_tokens.size()));
  return outcome;
}

bool PlanRanks::failure(int r, protocol::WaitReport& report) {
  Rank& rank = ranks_[r];
  select(r);
  const protocol::RankState state = fetch(rank.params.state.rank_state, 1)[0];
  return rank.record->read(state.clock.now().generation, report);
}

protocol::ResetOutcome PlanRanks::reset(int r) {
  Rank& rank = ranks_[r];
  select(r);
  check_status(fused::launch_collective_reset(rank.params.endpoint, rank.params.state, rank.reset,
                                              rank.stream));
  wait(r);
  return *rank.reset;
}

void PlanRanks::poison(int r) {
  Rank& rank = ranks_[r];
  select(r);
  auto* const first = reinterpret_cast<std::byte*>(rank.params.state.tokens_per_rank);
  check_cuda(cudaMemset(first, 0xff, rank.state_base + rank.state_bytes - first), "poison");
}

}  // namespace slipstream::testing
