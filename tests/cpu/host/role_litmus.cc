// What the roles owe the protocol, one test for each step that tests/cpu/protocol/mutations.json
// takes out of the shipped role code. Ranks are threads with three blocks each; ThreadSanitizer
// watches. Plain checks instead of GoogleTest, since this is compiled once per mutation.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "../protocol/litmus.h"
#include "host/down_reduce_push.h"
#include "host/drive.h"
#include "host/final_reduce.h"
#include "host/gather_gate_up.h"
#include "host/publish_plan.h"

namespace slipstream::host {
namespace {

using protocol::litmus::run_threads;
using std::chrono::milliseconds;

constexpr int kBlocks = 3;

struct RankInput {
  std::vector<float> tokens;
  std::vector<std::int32_t> topk_ids;
  std::vector<float> topk_weights;
};

float value_at(std::uint32_t seed, std::uint32_t idx) {
  const std::uint32_t bits = (seed * 7919U + idx) * 2654435761U;
  return static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F;
}

std::vector<float> values(std::uint32_t seed, std::int64_t count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::uint32_t i = 0; i < result.size(); ++i) result[i] = value_at(seed, i);
  return result;
}

// Ranks with a layer each, without the public handles around them.
class Rig {
 public:
  explicit Rig(int num_ranks, std::int32_t max_tokens = 12, milliseconds limit = milliseconds(5000))
      : problem({.num_ranks = num_ranks,
                 .num_experts = 3,
                 .hidden = 12,
                 .intermediate = 4 * num_ranks,
                 .topk = 2,
                 .max_tokens = max_tokens,
                 .dtype = DType::kFP32}),
        ranks(static_cast<std::size_t>(num_ranks)),
        layers(ranks.size()) {
    const std::int64_t width = problem.intermediate_per_rank();
    gate_up = values(1, problem.num_experts * 2 * width * problem.hidden);
    down = values(2, problem.num_experts * width * problem.hidden);
    Rendezvous rendezvous(num_ranks);
    run_threads(num_ranks, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      ranks[r] = HostRank::create(problem, rank, rendezvous, milliseconds(10'000)).value();
      ranks[r]->set_timeout(limit);
      make_layer(rank);
      CHECK_THAT(ranks[r]->ensure_local(local_bytes(largest_local_shape(layers[r]))).is_ok());
      CHECK_THAT(ranks[r]->launcher.ensure_helpers(kBlocks - 1).is_ok());
    });
  }

  RankInput input(int rank, std::int32_t num_tokens, std::uint32_t seed) const {
    const std::uint32_t mixed = seed * 16 + static_cast<std::uint32_t>(rank);
    RankInput result{values(mixed, std::int64_t{num_tokens} * problem.hidden),
                     {},
                     values(mixed + 8, std::int64_t{num_tokens} * problem.topk)};
    for (std::uint32_t i = 0; i < result.topk_weights.size(); ++i)
      result.topk_ids.push_back(static_cast<std::int32_t>((i + mixed) % 3));
    return result;
  }

  LayerInput view(const RankInput& data) const {
    const auto num_tokens = static_cast<std::int32_t>(data.tokens.size()) / problem.hidden;
    return {dense_view(data.tokens.data(), DType::kFP32, num_tokens, problem.hidden),
            {data.topk_ids.data(), data.topk_weights.data(), num_tokens, problem.topk}};
  }

  // One call of one rank.
  Status run(int rank, const LayerInput& data, std::vector<float>& out) {
    const auto r = static_cast<std::size_t>(rank);
    out.assign(static_cast<std::size_t>(data.tokens.rows * problem.hidden), -77.0F);
    HostCall call(*ranks[r], layers[r], data,
                  dense_view(out.data(), DType::kFP32, data.tokens.rows, problem.hidden), kBlocks);
    PhaseTimes times;
    return run_with_threads(call, times);
  }

  // What a call with these inputs gives when one thread drives all ranks.
  std::vector<std::vector<float>> expected(const std::vector<RankInput>& inputs) {
    std::vector<std::vector<float>> outs(ranks.size());
    run_threads(problem.num_ranks, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      const LayerInput data = view(inputs[r]);
      outs[r].assign(inputs[r].tokens.size(), -77.0F);
      HostCall call(*ranks[r], layers[r], data,
                    dense_view(outs[r].data(), DType::kFP32, data.tokens.rows, problem.hidden), 1);
      PhaseTimes times;
      const auto limit = ranks[r]->endpoint.remote_limit_ns;
      CHECK_THAT(ranks[r]->meeting->run(call, times).is_ok());
      ranks[r]->endpoint.set_limit(limit);
    });
    return outs;
  }

  std::uint32_t epoch(int rank) const {
    return ranks[static_cast<std::size_t>(rank)]->state.clock.now().epoch;
  }

  Problem problem;
  std::vector<float> gate_up, down;
  std::vector<std::shared_ptr<HostRank>> ranks;
  std::vector<HostLayer> layers;

 private:
  void make_layer(int rank) {
    HostLayer& layer = layers[static_cast<std::size_t>(rank)];
    const std::int64_t width = problem.intermediate_per_rank();
    layer.problem = problem;
    layer.tuning.tile_max_rows = 8;
    layer.tuning.chunks = even_chunks(problem.hidden, 3, 4);
    layer.tuning.ring_chunks = 1;
    layer.weights = HostWeights(
        problem, {.gate_up = dense_view(gate_up.data(), DType::kFP32,
                                        problem.num_experts * 2 * width, problem.hidden),
                  .down = dense_view(down.data(), DType::kFP32,
                                     problem.num_experts * problem.hidden, width)});
    layer.signature = make_signature(
        problem, layer.tuning, 0, ranks[static_cast<std::size_t>(rank)]->peers.shape.plane_bytes(),
        Transfer::kPush, Path::kFused);
    layer.schedule_shape = schedule_shape(problem, layer.tuning, rank);
    layer.num_blocks = kBlocks;
  }
};

// `num_calls` calls in which rank r brings num_tokens(r, call) tokens; each rank at its own pace.
// The outputs must be those of the sequential drive.
void run_calls(Rig& rig, int num_calls,
               const std::function<std::int32_t(int rank, int call)>& num_tokens) {
  constexpr int kPeriod = 6;
  const int num_ranks = rig.problem.num_ranks;
  std::vector<std::vector<RankInput>> inputs(kPeriod);
  std::vector<std::vector<std::vector<float>>> want;
  for (int i = 0; i < kPeriod; ++i) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      inputs[i].push_back(rig.input(rank, num_tokens(rank, i), static_cast<std::uint32_t>(i + 1)));
    }
    want.push_back(rig.expected(inputs[i]));
  }
  run_threads(num_ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<float> out;
    for (int call = 0; call < num_calls; ++call) {
      if ((call * 7 + rank * 3) % 5 == 0) std::this_thread::sleep_for(milliseconds(1));
      const auto i = static_cast<std::size_t>(call % kPeriod);
      const Status status = rig.run(rank, rig.view(inputs[i][r]), out);
      CHECK_THAT(status.is_ok());
      if (!status.is_ok()) return;
      CHECK_THAT(out == want[i][r]);
    }
  });
}

std::int32_t some_tokens(int rank, int call) { return 6 + (rank * 5 + call * 3) % 7; }

LITMUS(inputs_are_published_when_they_are_written) {
  Rig rig(2);
  run_calls(rig, 60, some_tokens);
}

LITMUS(parts_arrive_when_they_are_complete) {
  Rig rig(2);
  run_calls(rig, 60, some_tokens);
}

LITMUS(readers_are_joined_before_the_watermark) {
  Rig rig(2);
  run_calls(rig, 60, some_tokens);
}

LITMUS(call_without_tokens_waits_for_its_peers) {
  Rig rig(3);
  run_calls(rig, 60,
            [](int rank, int call) { return rank == call % 3 ? 0 : some_tokens(rank, call); });
}

LITMUS(owner_without_rows_gets_its_watermark) {
  Rig rig(2, 12, milliseconds(1500));
  run_calls(rig, 6, [](int rank, int) { return rank == 0 ? 0 : 5; });
}

LITMUS(tokens_without_a_row_do_not_count_as_jobs) {
  Rig rig(2, 12, milliseconds(1500));
  run_threads(2, [&](int rank) {
    RankInput data = rig.input(rank, 5, 1);
    data.topk_ids[2] = data.topk_ids[3] = -1;  // token 1
    std::vector<float> out;
    CHECK_THAT(rig.run(rank, rig.view(data), out).is_ok());
    for (int column = 0; column < rig.problem.hidden; ++column)
      CHECK_THAT(out[static_cast<std::size_t>(rig.problem.hidden + column)] == 0.0F);
  });
}

// The caller's part of the protocol: tokens in place may change when run() has returned, not
// before.
LITMUS(inputs_in_place_wait_for_the_last_call) {
  Rig rig(2);
  run_threads(2, [&](int rank) {
    const Region own = rig.ranks[static_cast<std::size_t>(rank)]->peers.own();
    const auto write = [&](int call) {
      const RankInput data = rig.input(rank, 8, static_cast<std::uint32_t>(call));
      std::copy(data.tokens.begin(), data.tokens.end(), reinterpret_cast<float*>(own.tokens));
    };
    const RankInput data = rig.input(rank, 8, 0);
    LayerInput in_place = rig.view(data);
    in_place.tokens.data = own.tokens;
    std::vector<float> out;
    write(0);
    for (int call = 1; call < 40; ++call) {
      std::thread early;
      if (protocol::mutated(protocol::Mutation::kRoleInPlaceWithoutOrder))
        early = std::thread(write, call);
      CHECK_THAT(rig.run(rank, in_place, out).is_ok());
      if (early.joinable()) early.join();
      write(call);
    }
  });
}

LITMUS(rejected_call_advances_the_epoch) {
  Rig rig(2);
  run_threads(2, [&](int rank) {
    RankInput data = rig.input(rank, 5, 1);
    data.topk_ids[1] = rank == 0 ? 1 : 99;
    std::vector<float> out;
    CHECK_THAT(rig.run(rank, rig.view(data), out).code() == StatusCode::kInvalidRouting);
    CHECK_THAT(rig.epoch(rank) == protocol::kFirstEpoch + 1);
  });
}

LITMUS(failed_call_advances_the_epoch) {
  Rig rig(2, 12, milliseconds(100));
  const RankInput data = rig.input(0, 5, 1);
  std::vector<float> out;
  const Status status = rig.run(0, rig.view(data), out);  // rank 1 never comes
  CHECK_THAT(status.code() == StatusCode::kTimeout && status.culprit_rank() == 1);
  CHECK_THAT(rig.epoch(0) == protocol::kFirstEpoch + 1);
}

// A call of rank 0, planned with nobody at work yet.
struct PlannedCall {
  explicit PlannedCall(std::int32_t its_num_tokens = 10)
      : num_tokens(its_num_tokens),
        rig(2, num_tokens),
        data(rig.input(0, num_tokens, 1)),
        peer_data(rig.input(1, num_tokens, 1)),
        out(data.tokens.size()),
        call(*rig.ranks[0], rig.layers[0], rig.view(data), out_view(), kBlocks),
        peer_call(*rig.ranks[1], rig.layers[1], rig.view(peer_data), out_view(), kBlocks),
        spin(protocol::begin_call(rig.ranks[0]->endpoint, 0)) {
    publish_inputs(call, spin);
    publish_inputs(peer_call, protocol::begin_call(rig.ranks[1]->endpoint, 0));
    plan(call, spin);
    CHECK_THAT(call.is_accepted);
  }

  TensorView out_view() {
    return dense_view(out.data(), DType::kFP32, num_tokens, rig.problem.hidden);
  }

  bool has_watermark(std::int32_t owner, std::int32_t chunk) const {
    return rig.ranks[0]->endpoint.signals[owner]->watermark[0].poll(spin.tag, chunk);
  }

  // Rank 1 tells rank 0 that the group has failed.
  void report_failure() {
    rig.ranks[0]->endpoint.signals[0]->status[1].relaxed_report(
        {spin.tag.generation, 1, protocol::FailureReason::kTimeout});
  }

  const std::int32_t num_tokens;
  Rig rig;
  RankInput data, peer_data;
  std::vector<float> out;
  HostCall call, peer_call;
  protocol::SpinContext spin;
};

// The tiles of chunk 0 are done but for the last one, so some jobs of each owner are done and some
// wait.
LITMUS(watermark_waits_for_every_job) {
  PlannedCall planned;
  HostCall& call = planned.call;
  const auto num_tiles = static_cast<std::int32_t>(call.shape.num_tiles);
  for (std::int32_t tile = 0; tile < num_tiles; ++tile) {
    CHECK_THAT(call.down_tiles.relaxed_take_if(tile));
    if (tile + 1 < num_tiles) call.tile_done(0, tile).arrive();
  }
  std::thread block([&] { down_reduce_push(call, planned.spin, 1); });
  std::this_thread::sleep_for(milliseconds(50));
  CHECK_THAT(call.jobs.relaxed_peek() > 0);
  const std::int32_t last_token = call.schedule.job_order[call.schedule.counts->num_jobs - 1];
  CHECK_THAT(!planned.has_watermark(owner_of_token(call.schedule, last_token), 0));
  call.tile_done(0, num_tiles - 1).arrive();
  block.join();
  for (std::int32_t owner = 0; owner < 2; ++owner)
    for (std::int32_t chunk = 0; chunk < call.shape.num_chunks; ++chunk)
      CHECK_THAT(planned.has_watermark(owner, chunk));
}

// Two pieces a chunk. One block has waited for the chunk and taken its first piece; another one
// takes the second. What it reads was written by a rank that it has not heard of but by waiting
// itself.
LITMUS(every_block_that_reduces_has_waited) {
  PlannedCall planned(100);
  HostCall& call = planned.call;
  protocol::RankSignals& mine = planned.rig.ranks[0]->endpoint.mine();
  std::thread block([&] {
    while (call.pieces.relaxed_peek() < 2) final_reduce(call, planned.spin, 1);
  });
  std::thread peers([&] {
    for (std::int32_t writer = 0; writer < 2; ++writer) {
      // Element by element: GCC makes a memset of constant size unseen by ThreadSanitizer.
      auto* plane = reinterpret_cast<float*>(call.staged_row(0, writer, 0));
      for (int i = 0; i < 100 * planned.rig.problem.hidden; ++i) plane[i] = value_at(5, i);
      mine.watermark[writer].publish(planned.spin.tag, 0, 3);
    }
  });
  for (std::int32_t writer = 0; writer < 2; ++writer) {
    CHECK_THAT(protocol::wait_watermark(planned.spin, writer, 0) == protocol::SpinResult::kReady);
  }
  static_cast<void>(call.pieces.relaxed_take_if(0));
  block.join();
  peers.join();
}

// One block holds the first tokens and does not deliver them; the others wait at the gates. When
// the group fails they go on to the end: every tile is taken, though nothing is computed.
LITMUS(failed_gather_gate_up_runs_to_its_end) {
  PlannedCall planned;
  HostCall& call = planned.call;
  CHECK_THAT(call.pulls.relaxed_take(100) == 0);
  std::thread block([&] { gather_gate_up(call, planned.spin, 1); });
  std::this_thread::sleep_for(milliseconds(20));
  CHECK_THAT(call.gate_up_tiles.relaxed_peek() < call.shape.num_tiles);
  planned.report_failure();
  block.join();
  CHECK_THAT(call.gate_up_tiles.relaxed_peek() == call.shape.num_tiles);
}

// One block holds the first tile of kernel 2. After the failure the others still do every job: all
// elections are complete, all tiles taken, and no watermark is written.
LITMUS(failed_down_reduce_push_runs_to_its_end) {
  PlannedCall planned;
  HostCall& call = planned.call;
  gather_gate_up(call, planned.spin, 0);
  CHECK_THAT(call.down_tiles.relaxed_take_if(0));
  std::thread block([&] { down_reduce_push(call, planned.spin, 1); });
  std::this_thread::sleep_for(milliseconds(20));
  planned.report_failure();
  block.join();
  CHECK_THAT(call.down_tiles.relaxed_peek() == call.shape.num_chunks * call.shape.num_tiles);
  for (std::int32_t chunk = 0; chunk < call.shape.num_chunks; ++chunk) {
    for (std::int32_t owner = 0; owner < 2; ++owner) {
      const auto num_jobs = static_cast<std::uint32_t>(call.schedule.owner_num_jobs[owner]);
      CHECK_THAT(call.election(owner, chunk).arrive(num_jobs + 1));  // the others have arrived
      CHECK_THAT(!planned.rig.ranks[0]->endpoint.signals[owner]->watermark[0].poll(planned.spin.tag,
                                                                                   chunk));
    }
  }
}

}  // namespace
}  // namespace slipstream::host

int main(int argc, char** argv) { return slipstream::protocol::litmus::run_main(argc, argv); }
