// What `plan` and `run` are asked to do: preset, configuration file and command line (in rising
// order of rank) resolved into a checked problem, token counts, routing and tuning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "input_file.h"
#include "options.h"
#include "schedule/routing_generator.h"
#include "slipstream/layer.h"
#include "slipstream/problem.h"
#include "slipstream/status.h"
#include "slipstream/tuning.h"

namespace slipstream::cli {

struct Job {
  std::string preset;  // the shape it started from; empty with an input file
  Problem problem;
  std::vector<std::int32_t> tokens_per_rank;  // [W]
  RoutingDistribution distribution;           // without an input file
  std::uint64_t seed = 0;
  Backend backend = Backend::kAuto;
  Tuning tuning;

  std::int64_t num_tokens() const;  // over all ranks
};

// `input` is null without --input. With it the file decides the shape: options may repeat what it
// says, and a contradiction is an error. Errors: kInvalidArgument, one sentence with the option,
// its value and what would do.
Result<Job> resolve_job(const OptionValues& options, const InputFile* input);

Result<Backend> backend_option(const OptionValues& options);
Result<std::uint64_t> seed_option(const OptionValues& options);

}  // namespace slipstream::cli
