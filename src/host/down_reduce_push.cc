#include "host/down_reduce_push.h"

#include <algorithm>

#include "core/numeric.h"
#include "host/host_gemm.h"

namespace slipstream::host {

using protocol::GateState;
using protocol::mutated;
using protocol::Mutation;
using protocol::SpinContext;

namespace {

std::int64_t num_tile_visits(const HostCall& call) {
  return call.shape.num_chunks * call.shape.num_tiles;
}
std::int64_t num_job_visits(const HostCall& call) {
  return call.shape.num_chunks * call.schedule.counts->num_jobs;
}

// A chunk's buffer was that of `ring_chunks` chunks before: all of that chunk's jobs have read it.
GateState ring_state(const HostCall& call, std::int32_t chunk) {
  const std::int64_t before = chunk - call.shape.ring_chunks;
  if (before < 0) return GateState::kFull;
  return call.buffers.chunk_read[before].poll(
      static_cast<std::uint32_t>(call.schedule.counts->num_jobs));
}

GateState job_state(const HostCall& call, const JobVisit& job) {
  GateState state = GateState::kFull;
  if (job.token < 0) return state;
  const std::int64_t topk = call.layer.problem.topk;
  for (std::int64_t k = 0; k < topk; ++k) {
    const std::int32_t tile = call.schedule.slot_tile[job.token * topk + k];
    if (tile < 0) continue;
    const GateState of_tile = call.tile_done(job.chunk, tile).poll(1);
    if (of_tile == GateState::kClosed) return of_tile;
    if (of_tile == GateState::kOpened) state = of_tile;
  }
  return state;
}

void compute_tile(const HostCall& call, const TileVisit& visit) {
  const TokenTile& tile = call.schedule.token_tile[visit.tile];
  const ColumnChunks& chunks = call.chunks();
  const std::int64_t width = call.shape.width;
  const WeightRows down = call.layer.weights.down(tile.expert);
  gemm_nt(tile.num_rows, chunks.width(visit.chunk), width, call.buffers.y + tile.row_begin * width,
          width, down.row(chunks.begin[visit.chunk]), down.row_stride,
          call.ring_row(visit.chunk, tile.row_begin), call.shape.max_chunk_width);
}

// Weighted sum of the token's rows in k order, whatever order the tiles were done in.
void sum_rows(const HostCall& call, const JobVisit& job, float* sum) {
  const std::int64_t topk = call.layer.problem.topk;
  const std::int32_t width = call.chunks().width(job.chunk);
  std::fill_n(sum, width, 0.0F);
  for (std::int64_t k = 0; k < topk; ++k) {
    const std::int64_t pair = job.token * topk + k;
    const std::int32_t slot = call.schedule.slots[pair];
    if (slot < 0) continue;
    const float weight = call.rank.topk_weights[static_cast<std::size_t>(pair)];
    const float* row = call.ring_row(job.chunk, slot);
    for (std::int32_t i = 0; i < width; ++i) sum[i] += weight * row[i];
  }
}

void push(const HostCall& call, const JobVisit& job, const float* sum) {
  const std::int64_t local = job.token - call.schedule.owner_token_begin[job.owner];
  const DType dtype = call.layer.tuning.partial_dtype;
  from_float(sum, dtype, call.chunks().width(job.chunk),
             call.staged_row(job.owner, call.my_rank(), local) +
                 call.chunks().begin[job.chunk] * std::int64_t{dtype_bytes(dtype)});
}

// The last job of (owner, chunk) tells the owner. Every owner has one: the null job of an owner
// without rows is elected at once.
void elect(const HostCall& call, const SpinContext& spin, const JobVisit& job) {
  std::int32_t num_expected = call.schedule.owner_num_jobs[job.owner];
  if (mutated(Mutation::kRoleTokensAsElectionCount)) {
    num_expected =
        call.schedule.owner_token_begin[job.owner + 1] - call.schedule.owner_token_begin[job.owner];
  }
  const bool is_elected =
      call.election(job.owner, job.chunk).arrive(static_cast<std::uint32_t>(num_expected));
  if (is_elected || mutated(Mutation::kRoleEarlyWatermark)) {
    protocol::publish_watermark(spin, job.owner, job.chunk,
                                static_cast<std::int32_t>(call.shape.num_chunks));
  }
}

void run_job(const HostCall& call, const SpinContext& spin, const JobVisit& job, GateState state,
             float* sum) {
  if (mutated(Mutation::kRoleMissingNullJob) && job.token < 0) return;
  if (mutated(Mutation::kRoleMissingCompletionWait)) elect(call, spin, job);
  const bool has_rows = job.token >= 0 && state == GateState::kFull;
  if (has_rows) sum_rows(call, job, sum);
  call.buffers.chunk_read[job.chunk].arrive();
  if (has_rows) push(call, job, sum);
  if (!mutated(Mutation::kRoleMissingCompletionWait)) elect(call, spin, job);
}

// Takes the next job if it is ready. kClosed: it is not. What it did comes back otherwise, also
// when another block was faster.
GateState try_job(HostCall& call, const SpinContext& spin, float* sum) {
  const std::int64_t position = call.jobs.relaxed_peek();
  if (position >= num_job_visits(call)) return GateState::kClosed;
  const JobVisit job = job_order_at(call.schedule, position);
  const GateState state = job_state(call, job);
  if (state != GateState::kClosed && call.jobs.relaxed_take_if(position))
    run_job(call, spin, job, state, sum);
  return state;
}

GateState try_tile(HostCall& call) {
  const std::int64_t position = call.down_tiles.relaxed_peek();
  if (position >= num_tile_visits(call)) return GateState::kClosed;
  const TileVisit visit = tile_order_at(call.schedule, position);
  const GateState state = ring_state(call, visit.chunk);
  if (state == GateState::kClosed || !call.down_tiles.relaxed_take_if(position)) return state;
  // Opened by a failure: jobs may still be reading the buffer.
  if (state == GateState::kFull) compute_tile(call, visit);
  call.tile_done(visit.chunk, visit.tile).arrive();
  return state;
}

// kRoleReaderNotJoined only: a look at the peers' memory that no election is behind.
void read_counts_again(const HostCall& call) {
  for (std::int32_t peer = 0; peer < call.num_ranks(); ++peer) {
    const volatile CallHeader* header = call.rank.peers.region(peer).header;
    [[maybe_unused]] const std::int32_t num_tokens = header->num_tokens;
  }
}

bool is_finished(const HostCall& call) {
  return call.jobs.relaxed_peek() >= num_job_visits(call) &&
         call.down_tiles.relaxed_peek() >= num_tile_visits(call);
}

// What next could be ready: looked at without taking it.
bool has_ready_work(const HostCall& call) {
  if (is_finished(call)) return true;
  const std::int64_t job = call.jobs.relaxed_peek();
  if (job < num_job_visits(call) &&
      job_state(call, job_order_at(call.schedule, job)) != GateState::kClosed)
    return true;
  const std::int64_t tile = call.down_tiles.relaxed_peek();
  return tile < num_tile_visits(call) &&
         ring_state(call, tile_order_at(call.schedule, tile).chunk) != GateState::kClosed;
}

}  // namespace

// A ready job goes before the next tile: its rows are still in the cache and its owner waits for
// it. Why it cannot lock up, with any number of blocks running at once: a block takes a job or a
// tile only when it is ready, so whatever is taken gets done without a wait. Suppose the next job
// and the next tile are both not ready. The tile's chunk then waits for a job of an earlier chunk;
// the next job is of that chunk or an earlier one (jobs are handed out by chunk), so every tile it
// needs comes before the next tile, that is: has been taken by a block that is running and will
// arrive.
void down_reduce_push(HostCall& call, const SpinContext& spin, std::int64_t ticket) {
  if (!call.is_accepted) return;
  float* sum = scratch_of_block(call.buffers, call.shape, ticket).sum;
  while (!is_finished(call)) {
    if (try_job(call, spin, sum) != GateState::kClosed) continue;
    if (try_tile(call) != GateState::kClosed) continue;
    const protocol::WaitSite site{protocol::Primitive::kReadyWork, -1,
                                  static_cast<std::int32_t>(call.jobs.relaxed_peek()), 1};
    const protocol::SpinResult result = spin.until(site, [&] {
      const bool is_ready = has_ready_work(call);
      return protocol::Observation{is_ready, is_ready ? 1U : 0U};
    });
    if (mutated(Mutation::kRoleExitOnFailure) && result != protocol::SpinResult::kReady) return;
  }
  if (mutated(Mutation::kRoleReaderNotJoined)) read_counts_again(call);
}

}  // namespace slipstream::host
