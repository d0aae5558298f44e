// slipstream verify: the three anchors in order. What cannot run here is SKIPPED and never PASS.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string_view>

#include "commands.h"
#include "job.h"
#include "output.h"
#include "verify.h"

namespace slipstream::cli {

namespace {

std::string_view to_string(AnchorState state) {
  switch (state) {
    case AnchorState::kPass: return "PASS";
    case AnchorState::kFail: return "FAIL";
    case AnchorState::kSkipped: return "SKIPPED";
  }
  return "FAIL";
}

}  // namespace

Result<int> cmd_verify(const OptionValues& options) {
  const Result<Backend> backend = backend_option(options);
  if (!backend.is_ok()) return backend.status();
  const Result<std::uint64_t> seed = seed_option(options);
  if (!seed.is_ok()) return seed.status();
  const auto ranks = options.integer("ranks", 1, kMaxRanks);
  if (!ranks.is_ok()) return ranks.status();
  const VerifyOptions verify{.seed = seed.value(),
                             .backend = backend.value(),
                             .num_ranks = static_cast<std::int32_t>(ranks.value().value_or(0))};

  struct Anchor {
    const char* name;
    std::function<AnchorResult()> run;
  };
  const Anchor anchors[] = {
      {"tables", [&] { return verify_tables(verify); }},
      {"dataflow", [&] { return verify_dataflow(verify); }},
      {"end to end", [&] { return verify_end_to_end(backend.value()); }},
  };
  const bool json = options.flag("json");
  Json report;
  report["command"] = "verify";
  report["seed"] = seed.value();
  report["ranks"] = verify.num_ranks > 0 ? Json(verify.num_ranks) : Json("1..8");
  report["anchors"] = Json::array();
  bool is_passed = true;
  int number = 0;
  for (const Anchor& anchor : anchors) {
    ++number;
    show_progress(fmt::format("anchor {}: {}", number, anchor.name));
    const auto begin = std::chrono::steady_clock::now();
    const AnchorResult result = anchor.run();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    clear_progress();
    is_passed = is_passed && result.state != AnchorState::kFail;
    if (!json) {
      fmt::print("anchor {}  {:<11} {:<8} {:>4} cases {:>9}   {}\n", number, anchor.name,
                 to_string(result.state), result.num_cases, human_time(seconds), result.detail);
      for (const AnchorPart& part : result.parts) {
        fmt::print("          {:<12} {:<7} {:>4} cases             {}\n", part.name,
                   to_string(part.state), part.num_cases, part.detail);
      }
      std::fflush(stdout);
    }
    Json parts = Json::array();
    for (const AnchorPart& part : result.parts) {
      parts.push_back({{"name", part.name},
                       {"result", to_string(part.state)},
                       {"cases", part.num_cases},
                       {"detail", part.detail}});
    }
    report["anchors"].push_back({{"anchor", number},
                                 {"name", anchor.name},
                                 {"result", to_string(result.state)},
                                 {"cases", result.num_cases},
                                 {"seconds", seconds},
                                 {"detail", result.detail}});
    if (!parts.empty()) report["anchors"].back()["parts"] = std::move(parts);
  }
  report["passed"] = is_passed;
  if (json) print_json(report);
  return is_passed ? kExitOk : kExitFailed;
}

}  // namespace slipstream::cli
