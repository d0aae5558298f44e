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

  struct Anchor {
    const char* name;
    std::function<AnchorResult()> run;
  };
  const Anchor anchors[] = {
      {"tables", [&] { return verify_tables(seed.value()); }},
      {"dataflow", [&] { return verify_dataflow(seed.value()); }},
      {"end to end", [&] { return verify_end_to_end(backend.value()); }},
  };
  const bool json = options.flag("json");
  Json report;
  report["command"] = "verify";
  report["seed"] = seed.value();
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
      std::fflush(stdout);
    }
    report["anchors"].push_back({{"anchor", number},
                                 {"name", anchor.name},
                                 {"result", to_string(result.state)},
                                 {"cases", result.num_cases},
                                 {"seconds", seconds},
                                 {"detail", result.detail}});
  }
  report["passed"] = is_passed;
  if (json) print_json(report);
  return is_passed ? kExitOk : kExitFailed;
}

}  // namespace slipstream::cli
