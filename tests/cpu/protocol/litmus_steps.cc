// The steps of the protocol one by one: wrap, generations, refresh, bounds, failure, rejection,
// reset. Most need no ThreadSanitizer: leaving the step out gives a wrong answer. mutations.json
// says which step each test guards.
#include "litmus.h"

namespace slipstream::protocol::litmus {
namespace {

constexpr std::uint64_t kShort = 30 * kMillisecond;

SpinContext context_of(const Group& group, int rank, Tag tag) {
  return SpinContext{&group.endpoints[rank], tag, 7};
}

LITMUS(tag_compares_across_the_wrap) {
  const std::uint32_t begin = 0xffff'fff0U;
  for (std::uint32_t distance = 0; distance < 40; ++distance) {
    const Tag early{5, begin}, late{5, begin + distance};
    CHECK_THAT(late.reaches(early));
    CHECK_THAT(early.reaches(late) == (distance == 0));
  }
  CHECK_THAT(Tag::unpacked(Tag({7, 0xffff'ffffU}).packed()) == Tag({7, 0xffff'ffffU}));
}

LITMUS(tag_of_another_generation_never_counts) {
  CHECK_THAT(!Tag({1, 9}).reaches({2, 1}));
  CHECK_THAT(!Tag({2, 9}).reaches({1, 1}));
  CHECK_THAT(!Tag({0, 0}).reaches({0, 0}));
  CHECK_THAT(next_generation(0xffff'ffffU) == 1);
  CHECK_THAT(generation_reaches(1, 0xffff'ffffU) && !generation_reaches(0xffff'ffffU, 1));
}

// Every block that reads a peer's data waits for the signal itself.
LITMUS(slot_signal_serves_every_reader) {
  Group group(2, kShort);
  publish_inputs(context_of(group, 0, {1, 4}), 1);
  for (int reader = 0; reader < 3; ++reader)
    CHECK_THAT(wait_inputs(context_of(group, 1, {1, 4}), 0) == SpinResult::kReady);
  CHECK_THAT(wait_inputs(context_of(group, 1, {1, 3}), 0) == SpinResult::kReady);
}

// Chunk 7 rests while 2^31 calls of two chunks go by (only those that can change a slot are made).
LITMUS(resting_watermark_stays_in_the_past) {
  WatermarkRow row{};
  const std::uint32_t first = 0xfff0'0005U;
  row.publish({1, first}, 7, 8);
  const std::uint32_t next_refresh = (first / kRefreshPeriod + 1) * kRefreshPeriod;
  for (std::uint32_t call = 0; call < (1U << 31) / kRefreshPeriod + 2; ++call) {
    const Tag tag{1, next_refresh + call * kRefreshPeriod};
    row.publish(tag, 0, 2);
    CHECK_THAT(!row.poll(tag, 7));
    row.publish(tag, 1, 2);
    CHECK_THAT(!row.poll({1, tag.epoch + 1}, 7));
    CHECK_THAT(!row.poll({1, tag.epoch + 1}, kMaxChunks - 1));
  }
}

LITMUS(epoch_advances_with_the_last_leaver) {
  CallClock clock{};
  clock.relaxed_start({3, 0xffff'fffeU});
  for (std::uint32_t call = 0; call < 6; ++call) {
    const std::uint32_t num_leavers = 1 + call;  // another grid every call
    for (std::uint32_t leaver = 0; leaver < num_leavers; ++leaver) {
      CHECK_THAT(clock.now() == Tag({3, 0xffff'fffeU + call}));
      CHECK_THAT(clock.leave(num_leavers) == (leaver + 1 == num_leavers));
    }
  }
  CHECK_THAT(clock.now() == Tag({3, 4}));
}

LITMUS(dispenser_stops_at_its_end) {
  Dispenser dispenser{};
  dispenser.relaxed_seed();
  std::vector<int> num_taken(100);
  run_threads(4, [&](int) {
    for (int ask = 0; ask < 1000; ++ask) {
      const std::int64_t ticket = dispenser.relaxed_take(100);
      if (ticket == kNoTicket) continue;
      CHECK_THAT(ticket >= 0 && ticket < 100);
      ++num_taken[ticket];
    }
  });
  for (const int count : num_taken) CHECK_THAT(count == 1);
  CHECK_THAT(dispenser.relaxed_peek() <= 100 + 4);
}

// Takers that look first, beside takers that do not: still each position once.
LITMUS(dispenser_gives_out_what_was_looked_at) {
  Dispenser dispenser{};
  std::vector<int> num_taken(500);
  run_threads(4, [&](int thread) {
    while (true) {
      std::int64_t position = dispenser.relaxed_peek();
      if (position >= 500) return;
      if (thread == 0) {
        position = dispenser.relaxed_take(500);
        if (position == kNoTicket) return;
      } else if (!dispenser.relaxed_take_if(position)) {
        continue;
      }
      ++num_taken[position];
    }
  });
  for (const int count : num_taken) CHECK_THAT(count == 1);
  CHECK_THAT(!dispenser.relaxed_take_if(3));
}

LITMUS(wait_ends_at_its_limit) {
  Group group(3, kShort);
  const std::uint64_t begin = clock_ns();
  CHECK_THAT(wait_inputs(context_of(group, 0, {1, 8}), 2) == SpinResult::kTimeout);
  const std::uint64_t elapsed = clock_ns() - begin;
  CHECK_THAT(elapsed >= kShort && elapsed < kShort + 1000 * kMillisecond);
  WaitReport report;
  CHECK_THAT(group.records[0].read(1, report));
  CHECK_THAT(report.site.primitive == Primitive::kPublished && report.site.peer == 2);
  CHECK_THAT(report.failure.culprit == 2 && report.rank == 0 && report.block == 7);
  CHECK_THAT(report.site.expected == Tag({1, 8}).packed() && report.observed == 0);
}

// Rank 1 waits for rank 2 with seconds to go when rank 0 reports.
LITMUS(failure_of_a_peer_frees_a_waiter) {
  Group group(3, 2000 * kMillisecond);
  const std::uint64_t begin = clock_ns();
  run_threads(2, [&](int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      WaitReport report;
      report.failure = {1, 2, FailureReason::kTimeout};
      CHECK_THAT(context_of(group, 0, {1, 8}).fail(report));
    } else {
      CHECK_THAT(wait_watermark(context_of(group, 1, {1, 8}), 2, 0) == SpinResult::kAborted);
    }
  });
  CHECK_THAT(clock_ns() - begin < 1500 * kMillisecond);
  WaitReport report;
  CHECK_THAT(group.records[1].read(1, report) && report.reporter == 0);
  CHECK_THAT(report.failure.culprit == 2 && report.failure.reason == FailureReason::kPeerFailed);
}

// The same threads' own rank: a local wait has the longer limit and is freed by the remote one.
LITMUS(failure_frees_the_local_waiters) {
  Group group(2, kShort);
  TokenGate gate{};
  run_threads(2, [&](int thread) {
    const SpinContext spin = context_of(group, 0, {1, 8});
    if (thread == 0) {
      CHECK_THAT(gate.wait(3, spin, 0) == SpinResult::kAborted);
    } else {
      CHECK_THAT(wait_inputs(spin, 1) == SpinResult::kTimeout);
    }
  });
  WaitReport report;
  CHECK_THAT(group.records[0].read(1, report) && report.failure.culprit == 1);
}

LITMUS(failure_opens_every_gate) {
  Group group(2, kShort);
  std::vector<TokenGate> gates(9);
  std::vector<TileDone> tiles(5);
  group.endpoints[0].token_gates = gates.data();
  group.endpoints[0].num_token_gates = 9;
  group.endpoints[0].tile_done = tiles.data();
  group.endpoints[0].num_tile_done = 5;
  const SpinContext spin = context_of(group, 0, {1, 8});
  for (const TokenGate& gate : gates) CHECK_THAT(gate.poll(4) == GateState::kClosed);
  CHECK_THAT(wait_inputs(spin, 1) == SpinResult::kTimeout);
  for (TokenGate& gate : gates) {
    gate.arrive(2);  // roles run to their end and go on arriving
    CHECK_THAT(gate.poll(4) == GateState::kOpened);
    CHECK_THAT(gate.wait(4, spin, 0) == SpinResult::kAborted);
  }
  for (const TileDone& tile : tiles) CHECK_THAT(tile.poll(4) == GateState::kOpened);
}

LITMUS(first_failure_writes_the_record) {
  Group group(3, kShort);
  const SpinContext spin = context_of(group, 0, {1, 8});
  CHECK_THAT(wait_inputs(spin, 2) == SpinResult::kTimeout);
  WaitReport second;
  second.failure = {1, 1, FailureReason::kTimeout};
  CHECK_THAT(!spin.fail(second));
  CHECK_THAT(wait_inputs(spin, 1) == SpinResult::kAborted);
  WaitReport report;
  CHECK_THAT(group.records[0].read(1, report) && report.failure.culprit == 2);
  CHECK_THAT(!group.records[0].read(2, report));
}

LITMUS(failed_rank_publishes_nothing) {
  Group group(2, kShort);
  const SpinContext spin = context_of(group, 0, {1, 8});
  CHECK_THAT(wait_inputs(spin, 1) == SpinResult::kTimeout);
  for (const Tag tag : {Tag{1, 8}, Tag{1, 9}}) {  // this call, and a replay after it
    const SpinContext call = context_of(group, 0, tag);
    CHECK_THAT(!publish_inputs(call, 1) && !publish_watermark(call, 1, 0, 1));
    CHECK_THAT(!group.signals[1].published[0].poll(tag));
    CHECK_THAT(!group.signals[1].watermark[0].poll(tag, 0));
  }
  CHECK_THAT(begin_call(group.endpoints[1], 0).failed());
}

// Rejected calls in a row: each rank reads what its peers published and overwrites its own at once.
LITMUS(rejected_calls_stay_in_step) {
  constexpr int kNumRanks = 3;
  Group group(kNumRanks, 2000 * kMillisecond, {1, 0xffff'fff8U});
  long routing[kNumRanks] = {};
  run_threads(kNumRanks, [&](int rank) {
    for (int call = 0; call < 20; ++call) {
      const SpinContext spin = begin_call(group.endpoints[rank], 0);
      routing[rank] = call * 10 + rank;
      for (int peer = 0; peer < kNumRanks; ++peer) publish_inputs(spin, peer);
      for (int peer = 0; peer < kNumRanks; ++peer) {
        if (wait_inputs(spin, peer) != SpinResult::kReady) return CHECK_THAT(!"inputs");
        CHECK_THAT(routing[peer] == call * 10 + peer);
      }
      if (exchange_rejection(spin) != SpinResult::kReady) return CHECK_THAT(!"rejection");
      group.states[rank].clock.leave(1);
    }
  });
}

// Rank 1 failed later than rank 0 and still reads rank 0's tokens when rank 0 resets and writes new
// ones.
LITMUS(reset_waits_for_every_peer) {
  Group group(2);
  long tokens = 1;
  run_threads(2, [&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      CHECK_THAT(tokens == 1);
    }
    const ResetOutcome outcome = collective_reset(group.endpoints[rank]);
    CHECK_THAT(outcome.result == SpinResult::kReady && outcome.tag == Tag({2, kFirstEpoch}));
    if (rank == 0) tokens = 2;
  });
}

// Ranks that failed at different epochs agree after the reset, and see nothing of before it.
LITMUS(reset_hides_the_old_generation) {
  Group group(2, kShort);
  group.states[0].clock.relaxed_start({1, 100});
  group.states[1].clock.relaxed_start({1, 101});
  publish_inputs(begin_call(group.endpoints[1], 0), 0);
  publish_watermark(begin_call(group.endpoints[1], 0), 0, 0, 1);
  CHECK_THAT(wait_watermark(begin_call(group.endpoints[0], 0), 1, 3) == SpinResult::kTimeout);
  CHECK_THAT(begin_call(group.endpoints[1], 0).failed());
  run_threads(2, [&](int rank) { collective_reset(group.endpoints[rank]); });
  for (int rank = 0; rank < 2; ++rank) {
    const SpinContext spin = begin_call(group.endpoints[rank], 0);
    CHECK_THAT(spin.tag == Tag({2, kFirstEpoch}) && !spin.failed());
    CHECK_THAT(!group.signals[rank].published[1].poll(spin.tag));
    CHECK_THAT(!group.signals[rank].watermark[1].poll(spin.tag, 0));
  }
}

// A rank that does not come is named; whoever tries again later gets through.
LITMUS(reset_names_the_missing_and_can_be_repeated) {
  Group group(2, kShort);
  const ResetOutcome missed = collective_reset(group.endpoints[0]);
  CHECK_THAT(missed.result == SpinResult::kTimeout && missed.missing_rank == 1);
  CHECK_THAT(missed.tag == Tag({1, kFirstEpoch}));
  CHECK_THAT(collective_reset(group.endpoints[1]).result == SpinResult::kReady);
  CHECK_THAT(collective_reset(group.endpoints[0]).result == SpinResult::kReady);
  CHECK_THAT(group.states[0].clock.now() == group.states[1].clock.now());
}

}  // namespace
}  // namespace slipstream::protocol::litmus

int main(int argc, char** argv) { return slipstream::protocol::litmus::run_main(argc, argv); }
