#include "job.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "presets.h"
#include "slipstream/config.h"

namespace slipstream::cli {

namespace {

// A typical one: preset seed pays 19.5% for fixed128 with it, and 19.3% on the mean of seeds 0..9.
constexpr std::int64_t kDefaultSeed = 3;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

// A name that the library parses: the option's own name takes the place of the library's.
template <class T>
Status parse_named(const OptionValues& options, const std::string& name,
                   Result<T> (*parse)(std::string_view), T* target) {
  const OptionValues::Value* value = options.find(name);
  if (value == nullptr) return Status::ok();
  Result<T> parsed = parse(value->text);
  if (!parsed.is_ok()) {
    const StatusDetail& detail = parsed.status().detail();
    return bad_option(value->origin, fmt::format("'{}'", value->text), detail.expected,
                      detail.hint);
  }
  *target = parsed.value();
  return Status::ok();
}

Status set_integer(const OptionValues& options, const std::string& name, std::int64_t low,
                   std::int64_t high, std::int32_t* target) {
  const Result<std::optional<std::int64_t>> value = options.integer(name, low, high);
  if (!value.is_ok()) return value.status();
  if (value.value()) *target = static_cast<std::int32_t>(*value.value());
  return Status::ok();
}

// One dimension of the shape, its range and where it goes.
struct Dimension {
  const char* name;
  std::int64_t high;
  std::int32_t Problem::*member;
};
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr Dimension kDimensions[] = {
    {"ranks", kMaxRanks, &Problem::num_ranks}, {"experts", kMaxExperts, &Problem::num_experts},
    {"hidden", kMaxWidth, &Problem::hidden},   {"intermediate", kMaxWidth, &Problem::intermediate},
    {"topk", kMaxTopk, &Problem::topk},
};

Status start_from_preset(const OptionValues& options, Job* job, std::int32_t* tokens) {
  job->preset = kDefaultPreset;
  if (const OptionValues::Value* value = options.find("preset")) {
    if (find_preset(value->text) == nullptr) {
      std::vector<std::string> names;
      for (const Preset& preset : presets()) names.emplace_back(preset.name);
      return bad_option(value->origin, fmt::format("'{}'", value->text),
                        fmt::format("one of {}", preset_names()),
                        did_you_mean(value->text, names, "or give the shape itself"));
    }
    job->preset = value->text;
  }
  const Preset& preset = *find_preset(job->preset);
  job->problem.num_ranks = preset.ranks;
  job->problem.num_experts = preset.experts;
  job->problem.hidden = preset.hidden;
  job->problem.intermediate = preset.intermediate;
  job->problem.topk = preset.topk;
  *tokens = preset.tokens;
  return Status::ok();
}

Status start_from_input(const OptionValues& options, const InputFile& input, Job* job) {
  for (const char* name : {"preset", "dist", "seed"}) {
    if (const OptionValues::Value* value = options.find(name)) {
      return bad_option(value->origin, fmt::format("'{}'", value->text),
                        "nothing beside an input file",
                        "shape, routing and values are the file's; leave one of the two out");
    }
  }
  job->problem.num_ranks =
      input.tokens_per_rank ? static_cast<std::int32_t>(input.tokens_per_rank->size()) : 1;
  job->problem.num_experts = input.num_experts;
  job->problem.hidden = input.hidden;
  job->problem.intermediate = input.intermediate;
  job->problem.topk = input.topk;
  job->problem.dtype = input.dtype;
  return Status::ok();
}

Status set_shape(const OptionValues& options, const InputFile* input, Problem* problem) {
  for (const Dimension& dimension : kDimensions) {
    const std::int32_t before = problem->*dimension.member;
    if (Status s =
            set_integer(options, dimension.name, 1, dimension.high, &(problem->*dimension.member));
        !s.is_ok())
      return s;
    const bool is_free =
        std::string_view(dimension.name) == "ranks" && input != nullptr && !input->tokens_per_rank;
    if (input != nullptr && !is_free && problem->*dimension.member != before) {
      return bad_option(options.find(dimension.name)->origin,
                        fmt::format("{}", problem->*dimension.member),
                        fmt::format("{} as in '{}'", before, input->file.path()),
                        "leave the option out, the file has the shape");
    }
  }
  return parse_named(options, "dtype", parse_dtype, &problem->dtype);
}

// One number for every rank, or one per rank; with an input file its rows shared out.
Status set_tokens(const OptionValues& options, const InputFile* input, std::int32_t preset_tokens,
                  Job* job) {
  const auto num_ranks = static_cast<std::size_t>(job->problem.num_ranks);
  const auto given = options.integers("tokens", 0, kMaxInt32);
  if (!given.is_ok()) return given.status();
  if (given.value()) {
    const std::vector<std::int64_t>& counts = *given.value();
    if (counts.size() != 1 && counts.size() != num_ranks) {
      return bad_option(options.find("tokens")->origin,
                        fmt::format("a list of {} numbers", counts.size()),
                        fmt::format("1 number or {}, one per rank", num_ranks),
                        fmt::format("or give --ranks {}", counts.size()));
    }
    for (std::size_t r = 0; r < num_ranks; ++r) {
      job->tokens_per_rank.push_back(static_cast<std::int32_t>(counts[counts.size() == 1 ? 0 : r]));
    }
  } else if (input == nullptr) {
    job->tokens_per_rank.assign(num_ranks, preset_tokens);
  } else if (input->tokens_per_rank) {
    job->tokens_per_rank = *input->tokens_per_rank;
  } else {
    const auto ranks = static_cast<std::int64_t>(num_ranks);
    for (std::int64_t r = 0; r < ranks; ++r) {
      job->tokens_per_rank.push_back(static_cast<std::int32_t>(input->num_tokens * (r + 1) / ranks -
                                                               input->num_tokens * r / ranks));
    }
  }
  if (input != nullptr && given.value()) {
    const bool is_same = !input->tokens_per_rank || *input->tokens_per_rank == job->tokens_per_rank;
    if (job->num_tokens() != input->num_tokens || !is_same) {
      return bad_option(
          options.find("tokens")->origin, fmt::format("'{}'", options.find("tokens")->text),
          is_same ? fmt::format("counts with the sum {}, the rows of '{}'", input->num_tokens,
                                input->file.path())
                  : fmt::format("[{}] as in '{}'", fmt::join(*input->tokens_per_rank, ", "),
                                input->file.path()),
          "leave the option out, or give one number per rank");
    }
  }
  job->problem.max_tokens =
      *std::max_element(job->tokens_per_rank.begin(), job->tokens_per_rank.end());
  return Status::ok();
}

// Option and library name the fields of a problem differently; the user knows the option.
Status check_problem(const Problem& problem) {
  Status status = validate(problem);
  if (status.is_ok()) return status;
  StatusDetail detail = status.detail();
  if (detail.what == "intermediate") detail.what = "--intermediate";
  if (detail.what == "num_ranks * max_tokens * topk") {
    detail.what = "--ranks times --tokens times --topk";
    detail.hint = "give fewer tokens";
  }
  return invalid_argument(Subsystem::kCli, std::move(detail));
}

Status set_chunks(const OptionValues& options, const Problem& problem, Tuning* tuning) {
  const auto given = options.integers("chunks", 1, kMaxWidth);
  if (!given.is_ok()) return given.status();
  if (!given.value()) return Status::ok();
  const std::vector<std::int64_t>& numbers = *given.value();
  const std::string& origin = options.find("chunks")->origin;
  if (numbers.size() == 1) {
    const auto wanted = static_cast<std::int32_t>(numbers.front());
    tuning->chunks = even_chunks(problem.hidden, wanted);
    if (tuning->chunks.num_chunks != wanted) {
      return bad_option(
          origin, fmt::format("{}", wanted),
          fmt::format("1..{} chunks for {} columns",
                      even_chunks(problem.hidden, kMaxChunks).num_chunks, problem.hidden),
          "or give a list of widths");
    }
  } else {
    const std::int64_t sum = std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
    if (numbers.size() > kMaxChunks || sum != problem.hidden) {
      return bad_option(origin,
                        numbers.size() > kMaxChunks
                            ? fmt::format("a list of {} widths", numbers.size())
                            : fmt::format("widths with the sum {}", sum),
                        fmt::format("at most {} widths with the sum {}, the columns of a token",
                                    kMaxChunks, problem.hidden),
                        "or give the number of chunks");
    }
    tuning->chunks.num_chunks = static_cast<std::int32_t>(numbers.size());
    for (std::size_t c = 0; c < numbers.size(); ++c) {
      tuning->chunks.begin[c + 1] = tuning->chunks.begin[c] + static_cast<std::int32_t>(numbers[c]);
    }
  }
  tuning->ring_chunks = std::min(tuning->ring_chunks, tuning->chunks.num_chunks);
  return Status::ok();
}

Status set_tuning(const OptionValues& options, const Problem& problem, Tuning* tuning) {
  if (Status s = parse_named(options, "tile-policy", parse_tile_policy, &tuning->tile_policy);
      !s.is_ok())
    return s;
  if (Status s = parse_named(options, "row-order", parse_row_order, &tuning->row_order); !s.is_ok())
    return s;
  if (Status s = parse_named(options, "delivery", parse_delivery, &tuning->delivery); !s.is_ok())
    return s;
  if (Status s = parse_named(options, "partial", parse_dtype, &tuning->partial_dtype); !s.is_ok())
    return s;
  if (Status s = set_integer(options, "segments", 1, kMaxSegments, &tuning->num_segments);
      !s.is_ok())
    return s;
  if (Status s = set_integer(options, "tile-max-rows", 8, 1024, &tuning->tile_max_rows); !s.is_ok())
    return s;
  if (Status s = set_chunks(options, problem, tuning); !s.is_ok()) return s;
  return set_integer(options, "ring", 1, tuning->chunks.num_chunks, &tuning->ring_chunks);
}

}  // namespace

std::int64_t Job::num_tokens() const {
  return std::accumulate(tokens_per_rank.begin(), tokens_per_rank.end(), std::int64_t{0});
}

Result<Backend> backend_option(const OptionValues& options) {
  Backend backend = Backend::kAuto;
  if (Status s = parse_named(options, "backend", parse_backend, &backend); !s.is_ok()) return s;
  return backend;
}

Result<std::uint64_t> seed_option(const OptionValues& options) {
  const auto seed = options.integer("seed", 0, std::numeric_limits<std::int64_t>::max());
  if (!seed.is_ok()) return seed.status();
  return static_cast<std::uint64_t>(seed.value().value_or(kDefaultSeed));
}

Result<Job> resolve_job(const OptionValues& options, const InputFile* input) {
  Job job;
  std::int32_t preset_tokens = 0;
  if (Status s = input == nullptr ? start_from_preset(options, &job, &preset_tokens)
                                  : start_from_input(options, *input, &job);
      !s.is_ok())
    return s;
  if (Status s = set_shape(options, input, &job.problem); !s.is_ok()) return s;
  if (Status s = set_tokens(options, input, preset_tokens, &job); !s.is_ok()) return s;
  if (Status s = check_problem(job.problem); !s.is_ok()) return s;
  if (Status s = parse_named(options, "dist", parse_routing_distribution, &job.distribution);
      !s.is_ok())
    return s;
  const Result<std::uint64_t> seed = seed_option(options);
  if (!seed.is_ok()) return seed.status();
  job.seed = seed.value();
  const Result<Backend> backend = backend_option(options);
  if (!backend.is_ok()) return backend.status();
  job.backend = backend.value();
  job.tuning = default_tuning(job.problem, job.num_tokens());
  if (Status s = set_tuning(options, job.problem, &job.tuning); !s.is_ok()) return s;
  if (Status s = validate(job.tuning, job.problem); !s.is_ok()) return s;
  return job;
}

}  // namespace slipstream::cli
