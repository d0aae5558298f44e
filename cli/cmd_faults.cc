// slipstream faults: breaks a group on purpose in every known way and shows what its ranks report.
#include <fmt/format.h>

#include "commands.h"
#include "job.h"
#include "layer/faults.h"
#include "output.h"

namespace slipstream::cli {

Result<int> cmd_faults(const OptionValues& options) {
  const Result<Backend> backend = backend_option(options);
  if (!backend.is_ok()) return backend.status();
  if (backend.value() == Backend::kCuda) {
    return bad_option(options.find("backend")->origin, "'cuda'", "auto or host",
                      "faults are played out on the host backend");
  }
  FaultOptions faults;
  const auto ranks = options.integer("ranks", 2, kMaxRanks);
  if (!ranks.is_ok()) return ranks.status();
  faults.num_ranks = static_cast<int>(ranks.value().value_or(faults.num_ranks));
  const auto threads = options.integer("threads", 1, kMaxThreadsPerRank);
  if (!threads.is_ok()) return threads.status();
  faults.threads_per_rank = static_cast<int>(threads.value().value_or(faults.threads_per_rank));

  show_progress("provoking faults");
  const Result<std::vector<FaultOutcome>> outcomes = run_fault_scenarios(faults);
  clear_progress();
  if (!outcomes.is_ok()) return outcomes.status();
  bool is_passed = true;
  for (const FaultOutcome& outcome : outcomes.value()) is_passed = is_passed && outcome.passed;

  if (options.flag("json")) {
    Json json;
    json["command"] = "faults";
    json["backend"] = to_string(Backend::kHost);
    json["ranks"] = faults.num_ranks;
    json["threads_per_rank"] = faults.threads_per_rank;
    json["timeout_ms"] = faults.timeout.count();
    json["scenarios"] = Json::array();
    for (const FaultOutcome& outcome : outcomes.value()) {
      json["scenarios"].push_back({{"scenario", outcome.scenario},
                                   {"expected", outcome.expected},
                                   {"observed", outcome.observed},
                                   {"passed", outcome.passed},
                                   {"seconds", outcome.seconds}});
    }
    json["passed"] = is_passed;
    print_json(json);
  } else {
    for (const FaultOutcome& outcome : outcomes.value()) {
      fmt::print("{}  {} ({})\n  expected  {}\n  observed  {}\n", outcome.passed ? "PASS" : "FAIL",
                 outcome.scenario, human_time(outcome.seconds), outcome.expected, outcome.observed);
    }
  }
  return is_passed ? kExitOk : kExitFailed;
}

}  // namespace slipstream::cli
