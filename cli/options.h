// The options of all commands: one table that makes the command line, the configuration file and
// the messages. Values stay text here, with where they came from; job.h gives them meaning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slipstream/status.h"

namespace slipstream::cli {

enum Command : unsigned {
  kInfo = 1U << 0,
  kPlan = 1U << 1,
  kRun = 1U << 2,
  kVerify = 1U << 3,
  kFaults = 1U << 4,
  kBench = 1U << 5,
};

struct OptionSpec {
  const char* name;        // "ranks": --ranks on the command line, ranks in a file
  const char* value_name;  // null for a flag
  const char* help;
  unsigned commands;  // Command bits that take it
  const char* group;  // heading in --help
};

// Where the word after `bench` stands among the values; no option has this name.
inline constexpr const char* kSubjectKey = "what to bench";

inline constexpr int kMaxThreadsPerRank = 1024;

std::span<const OptionSpec> option_specs();
const OptionSpec* find_option(std::string_view name);

// The candidate that `text` was probably meant to be, or an empty string.
std::string nearest(std::string_view text, std::span<const std::string> candidates);

// "; did you mean 'ranks'" is what the hint of an error says where there is a nearest name.
std::string did_you_mean(std::string_view text, std::span<const std::string> candidates,
                         std::string_view otherwise);

Status bad_option(std::string what, std::string observed, std::string expected,
                  std::string hint = {});

class OptionValues {
 public:
  struct Value {
    std::string text;
    std::string origin;  // for messages: "--ranks" or "ranks in job.toml"
  };

  // The first one to set an option wins: the command line comes before the file.
  void set(const std::string& name, std::string text, std::string origin);

  const Value* find(const std::string& name) const;  // null when it was not given
  bool is_set(const std::string& name) const { return find(name) != nullptr; }
  bool flag(const std::string& name) const;

  // Errors: kInvalidArgument with origin, text and range.
  Result<std::optional<std::int64_t>> integer(const std::string& name, std::int64_t low,
                                              std::int64_t high) const;
  // A comma list of 1 number or more.
  Result<std::optional<std::vector<std::int64_t>>> integers(const std::string& name,
                                                            std::int64_t low,
                                                            std::int64_t high) const;

 private:
  std::map<std::string, Value> values_;
};

}  // namespace slipstream::cli
