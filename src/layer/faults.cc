#include "layer/faults.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "host/drive.h"
#include "layer/impl.h"
#include "slipstream/layer.h"

namespace slipstream {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kFaulty = 1;
constexpr std::int32_t kTokens = 6;

Problem fault_problem(int num_ranks) {
  return {.num_ranks = num_ranks,
          .num_experts = 4,
          .hidden = 32,
          .intermediate = 8 * num_ranks,
          .topk = 2,
          .max_tokens = kTokens,
          .dtype = DType::kFP32};
}

// Reproducible values around zero; another `seed` gives others.
float value_at(std::uint64_t seed, std::uint64_t idx) {
  std::uint64_t bits = (seed << 32 | idx) * 0x9e3779b97f4a7c15U;
  bits ^= bits >> 29;
  bits *= 0xbf58476d1ce4e5b9U;
  return static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F;
}

std::vector<float> values(std::uint64_t seed, std::int64_t count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = value_at(seed, i);
  return result;
}

// What each rank does in one call of the scenario.
struct Part {
  bool takes_part = true;
  milliseconds delay{};  // before it calls
  host::Stall stall;     // inside the call
  bool uses_second_layer = false;
  bool has_invalid_id = false;
};

struct Observation {
  bool took_part = false;
  Status status;
  double seconds = 0;  // of the call alone
  std::vector<float> out;
};

// One group with two layers per rank on one workspace.
class Rig {
 public:
  explicit Rig(const FaultOptions& options)
      : options_(options),
        problem_(fault_problem(options.num_ranks)),
        ranks_(static_cast<std::size_t>(options.num_ranks)) {
    const RankGroup group = RankGroup::in_process(options.num_ranks).value();
    for_all_ranks([&](std::size_t r) { ranks_[r].status = create(group, static_cast<int>(r)); });
  }

  Status creation_status() const {
    for (const Rank& rank : ranks_)
      if (!rank.status.is_ok()) return rank.status;
    return Status::ok();
  }

  // parts[r] for rank r; ranks beyond the vector do the usual.
  std::vector<Observation> call(std::vector<Part> parts, std::uint64_t seed) {
    parts.resize(ranks_.size());
    std::vector<Observation> seen(ranks_.size());
    for_all_ranks([&](std::size_t r) { seen[r] = call_rank(r, parts[r], seed); });
    return seen;
  }

  std::vector<Observation> reset(std::vector<Part> parts = {}) {
    parts.resize(ranks_.size());
    std::vector<Observation> seen(ranks_.size());
    for_all_ranks([&](std::size_t r) {
      if (!parts[r].takes_part) return;
      std::this_thread::sleep_for(parts[r].delay);
      const Clock::time_point begin = Clock::now();
      seen[r].took_part = true;
      seen[r].status = ranks_[r].first->reset();
      seen[r].seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    });
    return seen;
  }

  // Each rank by itself, without meeting the others: a call, resets until one works, a call.
  std::vector<Observation> call_and_recover(std::vector<Part> parts, std::uint64_t seed) {
    constexpr int kMaxResets = 20;
    parts.resize(ranks_.size());
    std::vector<Observation> seen(ranks_.size());
    for_all_ranks([&](std::size_t r) {
      const Status broken = call_rank(r, parts[r], seed).status;
      seen[r].status = broken;
      if (!broken.is_group_error()) return;
      for (int reset = 0; reset < kMaxResets; ++reset) {
        seen[r].status = ranks_[r].first->reset();
        if (!seen[r].status.is_ok()) continue;
        seen[r] = call_rank(r, {}, seed);
        return;
      }
    });
    return seen;
  }

 private:
  struct Rank {
    Status status;
    std::vector<float> gate_up, down;
    std::shared_ptr<Workspace::Impl> workspace;
    std::optional<Layer> first, second;
  };

  template <class Body>
  void for_all_ranks(const Body& body) {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks_.size(); ++r) threads.emplace_back(body, r);
    for (std::thread& thread : threads) thread.join();
  }

  Status create(const RankGroup& group, int rank) {
    Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    const std::int64_t experts = problem_.num_experts;
    const std::int64_t hidden = problem_.hidden;
    const std::int64_t width = problem_.intermediate_per_rank();
    const auto seed = static_cast<std::uint64_t>(rank) * 2;
    mine.gate_up = values(1000 + seed, experts * 2 * width * hidden);
    mine.down = values(1001 + seed, experts * hidden * width);
    const Weights weights{
        .gate_up = dense_view(mine.gate_up.data(), DType::kFP32, experts * 2 * width, hidden),
        .down = dense_view(mine.down.data(), DType::kFP32, experts * hidden, width)};
    const auto workspace = Workspace::create(problem_, group, rank, Backend::kHost);
    if (!workspace.is_ok()) return workspace.status();
    mine.workspace = workspace.value().impl();
    LayerOptions layer_options;
    layer_options.workspace = workspace.value();
    layer_options.timeout = options_.timeout;
    layer_options.threads_per_rank = options_.threads_per_rank;
    layer_options.tuning = Tuning{};
    layer_options.tuning->chunks = even_chunks(problem_.hidden, 2, 8);
    for (std::optional<Layer>* layer : {&mine.first, &mine.second}) {
      layer_options.layer_tag = layer == &mine.first ? 1 : 2;
      auto created = Layer::create(problem_, group, rank, weights, layer_options);
      if (!created.is_ok()) return created.status();
      *layer = std::move(created).value();
    }
    return Status::ok();
  }

  Observation call_rank(std::size_t r, const Part& part, std::uint64_t seed) {
    Observation seen;
    if (!part.takes_part) return seen;
    Rank& rank = ranks_[r];
    const std::vector<float> tokens = values(seed * 100 + r, kTokens * problem_.hidden);
    const std::vector<float> topk_weights = values(seed * 100 + 50 + r, kTokens * problem_.topk);
    std::vector<std::int32_t> topk_ids(topk_weights.size());
    for (std::size_t i = 0; i < topk_ids.size(); ++i)
      topk_ids[i] = static_cast<std::int32_t>((i * 7 + r + seed) % 4);
    if (part.has_invalid_id) topk_ids[3] = 99;
    seen.out.assign(tokens.size(), -1.0F);

    std::this_thread::sleep_for(part.delay);
    rank.workspace->host->stall = part.stall;
    Layer& layer = part.uses_second_layer ? *rank.second : *rank.first;
    const Clock::time_point begin = Clock::now();
    seen.took_part = true;
    seen.status = layer.run({dense_view(tokens.data(), DType::kFP32, kTokens, problem_.hidden),
                             {topk_ids.data(), topk_weights.data(), kTokens, problem_.topk}},
                            dense_view(seen.out.data(), DType::kFP32, kTokens, problem_.hidden));
    seen.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    rank.workspace->host->stall = {};
    return seen;
  }

  const FaultOptions options_;
  const Problem problem_;
  std::vector<Rank> ranks_;
};

// Collects what differs from the expectation; the first difference is what the outcome shows.
class Judge {
 public:
  void expect(bool holds, const std::function<std::string()>& text) {
    if (!holds && first_difference_.empty()) first_difference_ = text();
  }

  void expect_good(const std::vector<Observation>& seen, const std::vector<Observation>& want,
                   const char* when) {
    for (std::size_t r = 0; r < seen.size(); ++r) {
      expect(seen[r].status.is_ok(),
             [&] { return fmt::format("{}: rank {}: {}", when, r, seen[r].status.message()); });
      expect(seen[r].out == want[r].out,
             [&] { return fmt::format("{}: rank {} has other bits", when, r); });
    }
  }

  // Every rank that took part but the faulty one reports a group error that names it, in time.
  void expect_named(const std::vector<Observation>& seen, milliseconds limit) {
    const double bound = std::chrono::duration<double>(limit).count() + 1.0;
    for (std::size_t r = 0; r < seen.size(); ++r) {
      if (!seen[r].took_part || r == kFaulty) continue;
      expect(seen[r].status.is_group_error() && seen[r].status.culprit_rank() == kFaulty,
             [&] { return fmt::format("rank {}: {}", r, seen[r].status.message()); });
      expect(seen[r].seconds <= bound, [&] {
        return fmt::format("rank {} returned after {:.2f} s, more than {:.2f}", r, seen[r].seconds,
                           bound);
      });
    }
  }

  void expect_code(const std::vector<Observation>& seen, StatusCode code, const char* when) {
    for (std::size_t r = 0; r < seen.size(); ++r) {
      if (!seen[r].took_part) continue;
      expect(seen[r].status.code() == code,
             [&] { return fmt::format("{}: rank {}: {}", when, r, seen[r].status.message()); });
    }
  }

  const std::string& first_difference() const { return first_difference_; }

 private:
  std::string first_difference_;
};

struct Stage {
  const FaultOptions& options;
  Rig& rig;
  Judge& judge;
  // Of a good call with the seed, made before anything went wrong.
  std::vector<Observation> good_call(std::uint64_t seed) { return rig.call({}, seed); }
};

struct Scenario {
  const char* name;
  const char* expected;
  // Returns what was observed when all is well.
  std::function<std::string(Stage&)> play;
};

std::vector<Part> only_faulty(const Part& part) {
  std::vector<Part> parts(kFaulty + 1);
  parts[kFaulty] = part;
  return parts;
}

std::string play_late(Stage& stage) {
  const auto want = stage.good_call(1);
  const auto seen = stage.rig.call(only_faulty({.delay = stage.options.timeout / 2}), 1);
  stage.judge.expect_good(seen, want, "late call");
  return fmt::format("all ranks ok, rank 0 waited {:.0f} ms", seen[0].seconds * 1e3);
}

// The group breaks, stays broken, and is whole again after everybody's reset.
std::string play_break_and_reset(Stage& stage, const std::vector<Part>& parts) {
  const auto want = stage.good_call(1);
  const auto seen = stage.rig.call(parts, 2);
  stage.judge.expect_named(seen, stage.options.timeout);
  if (seen[kFaulty].took_part) {
    stage.judge.expect(seen[kFaulty].status.is_group_error(), [&] {
      return fmt::format("faulty rank: {}", seen[kFaulty].status.message());
    });
  }
  const auto again = stage.rig.call(only_faulty({.takes_part = false}), 2);
  stage.judge.expect_code(again, StatusCode::kGroupBroken, "call before the reset");
  stage.judge.expect_code(stage.rig.reset(), StatusCode::kOk, "reset");
  stage.judge.expect_good(stage.rig.call({}, 1), want, "call after the reset");
  return fmt::format("rank 0 after {:.0f} ms: {}", seen[0].seconds * 1e3, seen[0].status.message());
}

std::function<std::string(Stage&)> stalled_before(host::Launch launch) {
  return [launch](Stage& stage) {
    return play_break_and_reset(stage, only_faulty({.stall = {launch, stage.options.timeout * 2}}));
  };
}

std::string play_call_error(Stage& stage, const Part& part, StatusCode code) {
  const auto want = stage.good_call(1);
  const auto seen = stage.rig.call(only_faulty(part), 2);
  stage.judge.expect_code(seen, code, "faulty call");
  for (const Observation& rank : seen) {
    stage.judge.expect(rank.status.message() == seen[0].status.message(),
                       [&] { return "another error: " + rank.status.message(); });
    for (const float value : rank.out)
      stage.judge.expect(value == -1.0F, [] { return std::string("an output was written"); });
  }
  stage.judge.expect_good(stage.rig.call({}, 1), want, "next call");
  return seen[0].status.message();
}

// A rank that does not reset keeps the others waiting, bounded; they try again when it is back.
std::string play_incomplete_reset(Stage& stage) {
  const auto want = stage.good_call(1);
  stage.judge.expect_named(stage.rig.call(only_faulty({.takes_part = false}), 2),
                           stage.options.timeout);
  const auto seen = stage.rig.reset(only_faulty({.takes_part = false}));
  stage.judge.expect_named(seen, stage.options.timeout);
  stage.judge.expect_code(stage.rig.reset(), StatusCode::kOk, "second reset");
  stage.judge.expect_good(stage.rig.call({}, 1), want, "call after the reset");
  return seen[0].status.message();
}

// The others reset while rank 1 is still inside the call that it is too late for.
std::string play_reset_while_stalled(Stage& stage) {
  const auto want = stage.good_call(1);
  const auto seen = stage.rig.call_and_recover(
      only_faulty({.stall = {host::kDownReducePush, stage.options.timeout * 3}}), 1);
  stage.judge.expect_good(seen, want, "call after each rank's own resets");
  return "every rank got through by itself";
}

// Signals of before the reset carry higher epochs: whoever took one for a signal of after it would
// read the tokens of an old call. The late rank gives it the time to.
std::string play_wrong_generation(Stage& stage) {
  const auto want = stage.good_call(7);
  for (std::uint64_t seed = 1; seed < 5; ++seed) stage.good_call(seed);
  stage.judge.expect_named(stage.rig.call(only_faulty({.takes_part = false}), 6),
                           stage.options.timeout);
  stage.judge.expect_code(stage.rig.reset(), StatusCode::kOk, "reset");
  for (const host::Launch launch : {host::kPublishPlan, host::kDownReducePush}) {
    const auto seen =
        stage.rig.call(only_faulty({.stall = {launch, stage.options.timeout / 4}}), 7);
    stage.judge.expect_good(seen, want, "late call after the reset");
  }
  return "old signals were ignored, all ranks ok";
}

const Scenario kScenarios[] = {
    {"late", "a rank that comes within the limit changes nothing", play_late},
    {"never_started", "every other rank names rank 1 within the limit + 1 s; reset repairs",
     [](Stage& stage) { return play_break_and_reset(stage, only_faulty({.takes_part = false})); }},
    {"comes_too_late", "all ranks report a group error, the others name rank 1; reset repairs",
     [](Stage& stage) {
       return play_break_and_reset(stage, only_faulty({.delay = stage.options.timeout * 2}));
     }},
    {"stalled_before_gather_gate_up",
     "every other rank names rank 1 within the limit + 1 s; reset repairs",
     stalled_before(host::kGatherGateUp)},
    {"stalled_before_down_reduce_push",
     "every other rank names rank 1 within the limit + 1 s; reset repairs",
     stalled_before(host::kDownReducePush)},
    {"signature_mismatch",
     "the same call error with both values on every rank; the next call works",
     [](Stage& stage) {
       return play_call_error(stage, {.uses_second_layer = true}, StatusCode::kSignatureMismatch);
     }},
    {"invalid_id", "the same call error with the id on every rank; the next call works",
     [](Stage& stage) {
       return play_call_error(stage, {.has_invalid_id = true}, StatusCode::kInvalidRouting);
     }},
    {"incomplete_reset", "reset without rank 1 names it; a second one with it repairs",
     play_incomplete_reset},
    {"reset_while_stalled", "ranks that reset until it works are in step again",
     play_reset_while_stalled},
    {"wrong_generation", "signals of before a reset do not count after it", play_wrong_generation},
};

}  // namespace

Result<std::vector<FaultOutcome>> run_fault_scenarios(const FaultOptions& options) {
  const auto wrong = [](const char* what, std::int64_t value, std::string expected) {
    return invalid_argument(Subsystem::kLayer, {.what = what,
                                                .observed = fmt::format("{}", value),
                                                .expected = std::move(expected),
                                                .hint = {}});
  };
  if (options.num_ranks < 2 || options.num_ranks > kMaxRanks)
    return wrong("num_ranks", options.num_ranks, fmt::format("2..{}", kMaxRanks));
  if (options.timeout < milliseconds(50))
    return wrong("timeout in ms", options.timeout.count(), "at least 50");

  std::vector<FaultOutcome> outcomes;
  for (const Scenario& scenario : kScenarios) {
    const Clock::time_point begin = Clock::now();
    FaultOutcome outcome{.scenario = scenario.name, .expected = scenario.expected};
    Rig rig(options);
    if (Status status = rig.creation_status(); !status.is_ok()) return status;
    Judge judge;
    Stage stage{options, rig, judge};
    outcome.observed = scenario.play(stage);
    outcome.passed = judge.first_difference().empty();
    if (!outcome.passed) outcome.observed = judge.first_difference();
    outcome.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace slipstream
