#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

namespace slipstream::cli {

namespace {

constexpr const char* kShape = "Shape";
constexpr const char* kRouting = "Routing and data";
constexpr const char* kTuning = "Tuning";
constexpr const char* kRunning = "Running";
constexpr const char* kOutput = "Output";
constexpr unsigned kJob = kPlan | kRun;
constexpr unsigned kShapes = kJob | kBench;
constexpr unsigned kAll = kInfo | kPlan | kRun | kVerify | kFaults | kBench;

constexpr OptionSpec kOptions[] = {
    {"preset", "NAME", "Shape to start from, see the list below (default: demo)", kShapes, kShape},
    {"ranks", "W", "Tensor-parallel ranks, 1..8 (faults: 2..8; verify: only cases of as many)",
     kShapes | kFaults | kVerify, kShape},
    {"tokens", "T[,T...]", "Tokens per rank: one number for every rank, or one per rank", kShapes,
     kShape},
    {"experts", "E", "Experts, 1..1024", kShapes, kShape},
    {"hidden", "H", "Columns of a token", kShapes, kShape},
    {"intermediate", "I", "Intermediate columns, full width; every rank computes I / W", kShapes,
     kShape},
    {"topk", "K", "Experts per token, 1..64", kShapes, kShape},
    {"dtype", "TYPE", "bf16, fp16 or fp32: tokens, weights, output (default: bf16)", kShapes,
     kShape},
    {"dist", "DIST",
     "Routing: balanced, uniform, zipf:A, stddev:S (of an expert's rows, relative to their mean), "
     "one (default: uniform)",
     kShapes, kRouting},
    {"seed", "N", "Seed of routing, tokens and weights (default: 3)", kShapes | kVerify, kRouting},
    {"input", "FILE", "Real input instead of random data, see docs/input_format.md", kRun,
     kRouting},
    {"tile-policy", "NAME", "balanced or fixed128", kJob, kTuning},
    {"row-order", "NAME", "local-first or ascending", kJob, kTuning},
    {"tile-max-rows", "N", "Most rows of a balanced tile, a multiple of 8", kShapes, kTuning},
    {"segments", "N", "Token segments, 1..16", kJob, kTuning},
    {"chunks", "N|W,W...", "Column chunks of kernel 2: their number, or their widths", kJob,
     kTuning},
    {"ring", "N", "Chunk buffers kept at once", kJob, kTuning},
    {"delivery", "NAME", "gather or scatter", kJob, kTuning},
    {"partial", "TYPE", "Partial sums that cross ranks: fp32 or bf16", kJob, kTuning},
    {"backend", "NAME", "auto, host or cuda (default: auto)", kJob | kVerify | kFaults, kRunning},
    {"threads", "N", "Host backend: threads per rank (default: 1; faults: 2)", kRun | kFaults,
     kRunning},
    {"repeat", "N",
     "Run the layer N times; the times are medians (default: 1; bench: 6 rounds of 5 runs)",
     kRun | kBench, kRunning},
    {"no-check", nullptr, "Leave out the check against the reference", kRun, kRunning},
    {"probe", nullptr, "Measure the links between GPUs, too", kInfo, kRunning},
    {"config", "FILE", "TOML file with the same names; the command line wins", kAll & ~kInfo,
     kRunning},
    {"out", "FILE", "Write the tensor `out` [T, H], in rank order, as safetensors", kRun, kOutput},
    {"peers", "DIR", "Folder of the baselines' scripts (default: bench/peers of the sources)",
     kBench, kRunning},
    {"csv", nullptr, "Lines of comma-separated values on stdout", kBench, kOutput},
    {"json", nullptr, "One JSON object on stdout, errors too", kAll, kOutput},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::span<const OptionSpec> option_specs() { return kOptions; }

const OptionSpec* find_option(std::string_view name) {
  for (const OptionSpec& spec : kOptions)
    if (spec.name == name) return &spec;
  return nullptr;
}

std::string nearest(std::string_view text, std::span<const std::string> candidates) {
  // Beyond a third of the word the guess would be a surprise.
  std::size_t best = std::max<std::size_t>(2, text.size() / 3) + 1;
  std::string result;
  for (const std::string& candidate : candidates) {
    const bool is_prefix = text.size() >= 3 && candidate.starts_with(text);
    const std::size_t distance = is_prefix ? 1 : edit_distance(text, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      result = candidate;
    }
  }
  return result;
}

std::string did_you_mean(std::string_view text, std::span<const std::string> candidates,
                         std::string_view otherwise) {
  const std::string found = nearest(text, candidates);
  return found.empty() ? std::string(otherwise) : fmt::format("did you mean '{}'", found);
}

Status bad_option(std::string what, std::string observed, std::string expected, std::string hint) {
  return invalid_argument(Subsystem::kCli, {.what = std::move(what),
                                            .observed = std::move(observed),
                                            .expected = std::move(expected),
                                            .hint = std::move(hint)});
}

void OptionValues::set(const std::string& name, std::string text, std::string origin) {
  values_.try_emplace(name, Value{std::move(text), std::move(origin)});
}

const OptionValues::Value* OptionValues::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

bool OptionValues::flag(const std::string& name) const {
  const Value* value = find(name);
  return value != nullptr && value->text == "true";
}

Result<std::optional<std::int64_t>> OptionValues::integer(const std::string& name, std::int64_t low,
                                                          std::int64_t high) const {
  const Value* value = find(name);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::optional<std::int64_t> number = parse_integer(value->text);
  if (!number || *number < low || *number > high) {
    return bad_option(value->origin, fmt::format("'{}'", value->text),
                      fmt::format("a whole number in {}..{}", low, high));
  }
  return number;
}

Result<std::optional<std::vector<std::int64_t>>> OptionValues::integers(const std::string& name,
                                                                        std::int64_t low,
                                                                        std::int64_t high) const {
  const Value* value = find(name);
  if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
  std::vector<std::int64_t> numbers;
  std::string_view rest = value->text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::optional<std::int64_t> number = parse_integer(item);
    if (!number || *number < low || *number > high) {
      return bad_option(value->origin, fmt::format("'{}'", value->text),
                        fmt::format("whole numbers in {}..{} with commas between", low, high),
                        fmt::format("'{}' is none", item));
    }
    numbers.push_back(*number);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return std::optional(std::move(numbers));
}

}  // namespace slipstream::cli
