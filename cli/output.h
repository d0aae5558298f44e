// What the commands print: JSON and text forms of the public types, sizes and times that people can
// read, progress. Everything goes through here, so that --json is JSON in every case.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "slipstream/problem.h"
#include "slipstream/status.h"
#include "slipstream/tuning.h"

namespace slipstream::cli {

using Json = nlohmann::ordered_json;

// Exit codes of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;    // a check failed, or the machine did
inline constexpr int kExitBadInput = 2;  // the caller's options, shapes, ids or files

int exit_code_of(const Status& status);

// To stdout, indented. Non-finite numbers become null, broken UTF-8 is replaced.
void print_json(const Json& json);

// The error as one sentence on stderr, and with `json` as {"error": {...}} on stdout.
void print_error(const Status& status, bool json);

Json to_json(const Status& status);
Json to_json(const Problem& problem);
Json to_json(const Tuning& tuning);
std::string describe(const Problem& problem);  // "W 4, E 64, H 4096, I 3072 (768 a rank), ..."

std::string human_bytes(std::int64_t bytes);  // "1.5 GiB"
std::string human_time(double seconds);       // "12.3 ms"

// One line on stderr that the next one overwrites; nothing unless stderr is a terminal.
void show_progress(const std::string& text);
void clear_progress();

}  // namespace slipstream::cli
