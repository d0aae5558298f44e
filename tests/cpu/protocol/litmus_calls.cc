// A layer in miniature: every primitive in its place, many calls without a barrier, plain data.
// Each rank doubles all tokens of all ranks in tiles and pushes a share per column chunk to the
// owner, who adds what all ranks sent. Token counts (zero too) and chunk counts change from call to
// call, tokens are written in place, epochs cross the wrap.
#include "litmus.h"

namespace slipstream::protocol::litmus {
namespace {

constexpr int kNumRanks = 3;
constexpr int kNumCalls = 60;
constexpr int kMaxTokens = 5;  // a rank
constexpr int kTileRows = 4;
constexpr int kMaxTiles = (kNumRanks * kMaxTokens + kTileRows - 1) / kTileRows;
constexpr int kMostChunks = 3;

int num_chunks_of(int call) { return 1 + call % kMostChunks; }
int num_tokens_of(int call, int rank) { return (call * 7 + rank * 3) % (kMaxTokens + 1); }
long token_of(int call, int rank, int token) { return call * 1000 + rank * 100 + token; }

// Mapped into every rank.
struct Region {
  int num_tokens;
  long tokens[kMaxTokens];
  long staging[kNumRanks][kMostChunks][kMaxTokens];
};

// One rank's counters of one call. A workspace seeds the same ones again; here each call has its
// own.
struct Counters {
  ArrivalTicket ticket;
  TileDone planned;
  int begin[kNumRanks + 1];  // prefix sum of the ranks' tokens
  Dispenser pulls, tiles, jobs, reduces;
  TokenGate gates[kMaxTiles];
  TileDone done[kMaxTiles];
  Election elections[kNumRanks][kMostChunks];
};

struct Worker {
  Group& group;
  Region* regions;
  Counters* counters;  // [kNumRanks]
  long (*gathered)[kNumRanks * kMaxTokens];
  long (*doubled)[kNumRanks * kMaxTokens];
  int rank, num_threads, call;
  SpinContext spin;

  const int* begin = nullptr;
  int total = 0, num_tiles = 0;

  Counters& mine() const { return counters[rank]; }
  int owner_of(int token) const {
    int owner = 0;
    while (token >= begin[owner + 1]) ++owner;
    return owner;
  }

  // One thread publishes and plans; the gate is the kernel boundary behind it. All reads of the
  // peers' counts are thereby joined before the first election. A thread that read them on its own,
  // and then found no work, would still be reading when the peer overwrites them.
  void publish_and_plan() {
    if (mine().ticket.relaxed_draw(num_threads) == 0) {
      regions[rank].num_tokens = num_tokens_of(call, rank);
      for (int t = 0; t < regions[rank].num_tokens; ++t)
        regions[rank].tokens[t] = token_of(call, rank, t);
      for (int peer = 0; peer < kNumRanks; ++peer) publish_inputs(spin, peer);
      for (int peer = 0; peer < kNumRanks; ++peer) {
        CHECK_THAT(wait_inputs(spin, peer) == SpinResult::kReady);
        mine().begin[peer + 1] = mine().begin[peer] + regions[peer].num_tokens;
      }
      mine().planned.arrive();
    }
    CHECK_THAT(mine().planned.wait(1, spin, 0) == SpinResult::kReady);
    begin = mine().begin;
    total = begin[kNumRanks];
    num_tiles = (total + kTileRows - 1) / kTileRows;
  }

  void gather() {
    std::int64_t token;
    while ((token = mine().pulls.relaxed_take(total)) != kNoTicket) {
      const int owner = owner_of(static_cast<int>(token));
      CHECK_THAT(wait_inputs(spin, owner) == SpinResult::kReady);
      gathered[rank][token] = regions[owner].tokens[token - begin[owner]];
      mine().gates[token / kTileRows].arrive();
    }
  }

  void compute() {
    std::int64_t tile;
    while ((tile = mine().tiles.relaxed_take(num_tiles)) != kNoTicket) {
      const int last = std::min<int>(total, static_cast<int>(tile + 1) * kTileRows);
      const auto num_rows = static_cast<std::uint32_t>(last - tile * kTileRows);
      CHECK_THAT(mine().gates[tile].wait(num_rows, spin, static_cast<int>(tile)) ==
                 SpinResult::kReady);
      for (int row = static_cast<int>(tile) * kTileRows; row < last; ++row)
        doubled[rank][row] = 2 * gathered[rank][row];
      mine().done[tile].arrive();
    }
  }

  // Jobs of a chunk: every token, and a null job for an owner that has none.
  void push() {
    const int num_jobs = total + kNumRanks;
    std::int64_t job;
    while ((job = mine().jobs.relaxed_take(num_jobs * num_chunks_of(call))) != kNoTicket) {
      const int chunk = static_cast<int>(job) / num_jobs;
      const int token = static_cast<int>(job) % num_jobs - kNumRanks;
      const int owner = token < 0 ? token + kNumRanks : owner_of(token);
      const int owner_tokens = begin[owner + 1] - begin[owner];
      if (token < 0 && owner_tokens > 0) continue;
      if (token >= 0) {
        const int tile = token / kTileRows;
        CHECK_THAT(mine().done[tile].wait(1, spin, tile) == SpinResult::kReady);
        regions[owner].staging[rank][chunk][token - begin[owner]] =
            doubled[rank][token] + chunk + rank;
      }
      const auto expected = static_cast<std::uint32_t>(owner_tokens > 0 ? owner_tokens : 1);
      if (mine().elections[owner][chunk].arrive(expected))
        publish_watermark(spin, owner, chunk, num_chunks_of(call));
    }
  }

  void reduce() {
    std::int64_t chunk;
    while ((chunk = mine().reduces.relaxed_take(num_chunks_of(call))) != kNoTicket) {
      const int c = static_cast<int>(chunk);
      long sums[kMaxTokens] = {};
      for (int writer = 0; writer < kNumRanks; ++writer) {
        CHECK_THAT(wait_watermark(spin, writer, c) == SpinResult::kReady);
        for (int t = 0; t < num_tokens_of(call, rank); ++t)
          sums[t] += regions[rank].staging[writer][c][t];
      }
      for (int t = 0; t < num_tokens_of(call, rank); ++t) {
        CHECK_THAT(sums[t] == kNumRanks * (2 * token_of(call, rank, t) + c) + 3);
      }
    }
  }
};

void run_calls(int num_threads) {
  const Tag start{1, 0xffff'ffffU - kNumCalls / 2};
  Group group(kNumRanks, 20000 * kMillisecond, start);
  std::vector<Region> regions(kNumRanks);
  std::vector<Counters> counters(kNumCalls * kNumRanks);
  auto gathered = std::make_unique<long[][kNumRanks * kMaxTokens]>(kNumRanks);
  auto doubled = std::make_unique<long[][kNumRanks * kMaxTokens]>(kNumRanks);
  run_threads(kNumRanks * num_threads, [&](int thread) {
    const int rank = thread / num_threads;
    for (int call = 0; call < kNumCalls; ++call) {
      CallClock& clock = group.states[rank].clock;
      const Tag tag{1, start.epoch + static_cast<std::uint32_t>(call)};
      while (!clock.now().reaches(tag)) std::this_thread::yield();  // the stream's order
      Worker worker{
          group,          regions.data(), &counters[call * kNumRanks],
          gathered.get(), doubled.get(),  rank,
          num_threads,    call,           begin_call(group.endpoints[rank], thread % num_threads)};
      CHECK_THAT(worker.spin.tag == tag);
      worker.publish_and_plan();
      worker.gather();
      worker.compute();
      worker.push();
      worker.reduce();
      clock.leave(static_cast<std::uint32_t>(num_threads));
    }
  });
}

LITMUS(one_thread_a_rank_suffices) { run_calls(1); }
LITMUS(two_threads_a_rank) { run_calls(2); }
LITMUS(three_threads_a_rank) { run_calls(3); }

}  // namespace
}  // namespace slipstream::protocol::litmus

int main(int argc, char** argv) { return slipstream::protocol::litmus::run_main(argc, argv); }
