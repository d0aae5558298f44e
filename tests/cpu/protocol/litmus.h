// A test harness without GoogleTest: the litmus tests are compiled once per mutation, so a compile
// must take a second and not ten. `binary` runs all tests, `binary NAME` one; exit 0 when they
// hold. ThreadSanitizer turns a data race into exit 66 by itself.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "protocol/protocol.h"

namespace slipstream::protocol::litmus {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(const char* name, void (*body)()) { registry().push_back({name, body}); }
};

inline Word<std::uint32_t, Scope::kSystem> num_failed_checks;

inline void check(bool holds, const char* text, const char* file, int line) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
  num_failed_checks.fetch_add(1, kRelaxed);
}

#define LITMUS(name)                                                                   \
  void name();                                                                         \
  const ::slipstream::protocol::litmus::Registration name##_registration(#name, name); \
  void name()
#define CHECK_THAT(condition) \
  ::slipstream::protocol::litmus::check((condition), #condition, __FILE__, __LINE__)

// Runs body(0) ... body(num_threads - 1) at once.
template <class Body>
void run_threads(int num_threads, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

inline constexpr std::uint64_t kMillisecond = 1'000'000;

// Ranks as threads: what a workspace provides, and no more.
struct Group {
  explicit Group(int num_ranks, std::uint64_t limit_ns = 5000 * kMillisecond,
                 Tag start = {1, kFirstEpoch})
      : signals(new RankSignals[num_ranks]()),
        states(new RankState[num_ranks]()),
        records(new WaitRecord[num_ranks]()),
        endpoints(num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      Endpoint& endpoint = endpoints[rank];
      endpoint.rank = rank;
      endpoint.num_ranks = num_ranks;
      for (int peer = 0; peer < num_ranks; ++peer) endpoint.signals[peer] = &signals[peer];
      endpoint.state = &states[rank];
      endpoint.record = &records[rank];
      endpoint.set_limit(limit_ns);
      states[rank].clock.relaxed_start(start);
    }
  }

  std::unique_ptr<RankSignals[]> signals;
  std::unique_ptr<RankState[]> states;
  std::unique_ptr<WaitRecord[]> records;
  std::vector<Endpoint> endpoints;
};

inline int run_main(int argc, char** argv) {
  alarm(60);  // a mutation may hang; nothing that is right takes a second
  int num_run = 0;
  for (const Test& test : registry()) {
    if (argc > 1 && std::strcmp(argv[1], test.name) != 0) continue;
    const std::uint32_t num_before = num_failed_checks.load(kRelaxed);
    test.body();
    std::printf("%s %s\n", num_failed_checks.load(kRelaxed) == num_before ? "ok  " : "FAIL",
                test.name);
    ++num_run;
  }
  if (num_run == 0) std::fprintf(stderr, "no test '%s'\n", argc > 1 ? argv[1] : "");
  return num_run > 0 && num_failed_checks.load(kRelaxed) == 0 ? 0 : 1;
}

}  // namespace slipstream::protocol::litmus
