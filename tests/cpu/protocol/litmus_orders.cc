// Message passing through each primitive: plain (non-atomic) data is written on one side and read
// on the other, so that under ThreadSanitizer an order that is missing is a data race. Each test
// uses its primitive as the only thing that orders the two sides. mutations.json says which order
// each test guards.
#include "litmus.h"

namespace slipstream::protocol::litmus {
namespace {

constexpr int kNumRounds = 50;
constexpr int kNumThreads = 3;

// Two ranks answer each other; each overwrites its payload as soon as the other has answered.
LITMUS(slot_signal_carries_data) {
  Group group(2);
  long payload[2] = {0, 0};
  run_threads(2, [&](int rank) {
    for (int round = 1; round <= kNumRounds; ++round) {
      const SpinContext spin{&group.endpoints[rank], {1, static_cast<std::uint32_t>(round)}, 0};
      if (rank == 0) {
        payload[0] = round;
        publish_inputs(spin, 1);
        CHECK_THAT(wait_inputs(spin, 1) == SpinResult::kReady);
        CHECK_THAT(payload[1] == 2 * round);
      } else {
        CHECK_THAT(wait_inputs(spin, 0) == SpinResult::kReady);
        payload[1] = 2 * payload[0];
        publish_inputs(spin, 0);
      }
    }
  });
}

// Every thread reads every other thread's part, through a gate of its own each round.
template <class Gate>
void gate_joins_parts() {
  Group group(1);
  const SpinContext spin{&group.endpoints[0], {1, 1}, 0};
  std::vector<Gate> gates(kNumRounds);
  std::vector<long> parts(kNumRounds * kNumThreads);
  constexpr std::uint32_t kSlack = 5;
  for (Gate& gate : gates) gate.relaxed_seed(kSlack);
  run_threads(kNumThreads, [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      parts[round * kNumThreads + thread] = round + thread;
      gates[round].arrive(2);
      CHECK_THAT(gates[round].wait(kSlack + 2 * kNumThreads, spin, round) == SpinResult::kReady);
      long sum = 0;
      for (int part = 0; part < kNumThreads; ++part) sum += parts[round * kNumThreads + part];
      CHECK_THAT(sum == kNumThreads * round + kNumThreads * (kNumThreads - 1) / 2);
    }
  });
}

LITMUS(token_gate_joins_parts) { gate_joins_parts<TokenGate>(); }
LITMUS(tile_done_joins_parts) { gate_joins_parts<TileDone>(); }

LITMUS(opened_gate_carries_data) {
  std::vector<TokenGate> gates(kNumRounds);
  std::vector<long> payload(kNumRounds);
  for (TokenGate& gate : gates) gate.relaxed_seed(1);
  run_threads(2, [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      if (thread == 0) {
        payload[round] = round;
        gates[round].open();
      } else {
        while (gates[round].poll(7) == GateState::kClosed) std::this_thread::yield();
        CHECK_THAT(gates[round].poll(7) == GateState::kOpened);
        CHECK_THAT(payload[round] == round);
      }
    }
  });
}

// The elected reads every part; nobody else may be elected too.
LITMUS(election_joins_parts) {
  std::vector<Election> elections(kNumRounds);
  std::vector<long> parts(kNumRounds * kNumThreads);
  std::vector<int> num_elected(kNumRounds);
  for (Election& election : elections) election.relaxed_seed();
  run_threads(kNumThreads, [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      parts[round * kNumThreads + thread] = round + thread;
      if (!elections[round].arrive(kNumThreads)) continue;
      long sum = 0;
      for (int part = 0; part < kNumThreads; ++part) sum += parts[round * kNumThreads + part];
      CHECK_THAT(sum == kNumThreads * round + kNumThreads * (kNumThreads - 1) / 2);
      ++num_elected[round];
    }
  });
  for (int round = 0; round < kNumRounds; ++round) CHECK_THAT(num_elected[round] == 1);
}

// The elected is the single writer of a slot that speaks for all: a chain over two primitives and
// two ranks.
LITMUS(elected_speaks_for_all) {
  Group group(2);
  std::vector<Election> elections(kNumRounds);
  std::vector<long> parts(kNumRounds * 2);
  run_threads(3, [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      const Tag tag{1, static_cast<std::uint32_t>(round + 1)};
      const SpinContext spin{&group.endpoints[thread == 2 ? 1 : 0], tag, thread};
      if (thread == 2) {
        CHECK_THAT(wait_watermark(spin, 0, 3) == SpinResult::kReady);
        CHECK_THAT(parts[round * 2] + parts[round * 2 + 1] == 2 * round + 1);
      } else {
        parts[round * 2 + thread] = round + thread;
        if (elections[round].arrive(2)) publish_watermark(spin, 1, 3, 8);
      }
    }
  });
}

// Who leaves last has everybody's work behind it.
LITMUS(last_leaver_joins_parts) {
  std::vector<CallClock> clocks(kNumRounds);
  std::vector<long> parts(kNumRounds * kNumThreads);
  run_threads(kNumThreads, [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      parts[round * kNumThreads + thread] = thread;
      if (!clocks[round].leave(kNumThreads)) continue;
      long sum = 0;
      for (int part = 0; part < kNumThreads; ++part) sum += parts[round * kNumThreads + part];
      CHECK_THAT(sum == kNumThreads * (kNumThreads - 1) / 2);
    }
  });
}

// Who sees the next epoch has everybody's work of this one behind it, the last leaver's or not.
LITMUS(epoch_carries_data) {
  CallClock clock{};
  clock.relaxed_start({1, kFirstEpoch});
  std::vector<long> parts(kNumRounds * 2);
  run_threads(3, [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      const auto epoch = kFirstEpoch + static_cast<std::uint32_t>(round);
      if (thread == 2) {
        while (!clock.now().reaches({1, epoch + 1})) std::this_thread::yield();
        CHECK_THAT(parts[round * 2] + parts[round * 2 + 1] == 2 * round + 1);
      } else {
        while (!clock.now().reaches({1, epoch})) std::this_thread::yield();
        parts[round * 2 + thread] = round + thread;
        clock.leave(2);
      }
    }
  });
}

LITMUS(record_carries_report) {
  WaitRecord record{};
  run_threads(2, [&](int thread) {
    WaitReport report;
    if (thread == 0) {
      report.failure = {3, 1, FailureReason::kTimeout};
      report.observed = 17;
      record.publish(report);
    } else {
      while (!record.read(3, report)) std::this_thread::yield();
      CHECK_THAT(report.observed == 17 && report.failure.culprit == 1);
    }
  });
}

}  // namespace
}  // namespace slipstream::protocol::litmus

int main(int argc, char** argv) { return slipstream::protocol::litmus::run_main(argc, argv); }
