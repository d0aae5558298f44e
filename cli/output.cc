#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace slipstream::cli {

int exit_code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kExitOk;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
    case StatusCode::kOutOfMemory:
    case StatusCode::kFileError:
    case StatusCode::kInvalidRouting:
    case StatusCode::kSignatureMismatch: return kExitBadInput;
    case StatusCode::kTimeout:
    case StatusCode::kPeerFailed:
    case StatusCode::kGroupBroken:
    case StatusCode::kBackendError:
    case StatusCode::kInternal: return kExitFailed;
  }
  return kExitFailed;
}

void print_json(const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

namespace {

// Values in a message are the user's: a name with a line break must not make two sentences.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

}  // namespace

void print_error(const Status& status, bool json) {
  clear_progress();
  StatusDetail detail = status.detail();
  for (std::string* text : {&detail.what, &detail.observed, &detail.expected, &detail.hint})
    *text = one_line(std::move(*text));
  const Status printable(status.code(), status.subsystem(), std::move(detail));
  if (json) print_json(Json{{"error", to_json(printable)}});
  fmt::print(stderr, "{}\n", printable.message());
}

Json to_json(const Status& status) {
  Json json;
  json["code"] = to_string(status.code());
  json["subsystem"] = to_string(status.subsystem());
  json["message"] = status.message();
  json["what"] = status.detail().what;
  json["observed"] = status.detail().observed;
  json["expected"] = status.detail().expected;
  json["hint"] = status.detail().hint;
  if (status.culprit_rank() >= 0) json["culprit_rank"] = status.culprit_rank();
  return json;
}

Json to_json(const Problem& problem) {
  Json json;
  json["ranks"] = problem.num_ranks;
  json["experts"] = problem.num_experts;
  json["hidden"] = problem.hidden;
  json["intermediate"] = problem.intermediate;
  json["intermediate_per_rank"] = problem.intermediate_per_rank();
  json["topk"] = problem.topk;
  json["max_tokens"] = problem.max_tokens;
  json["dtype"] = to_string(problem.dtype);
  return json;
}

Json to_json(const Tuning& tuning) {
  Json json;
  json["summary"] = slipstream::describe(tuning);
  json["tile_policy"] = to_string(tuning.tile_policy);
  json["row_order"] = to_string(tuning.row_order);
  json["tile_max_rows"] = tuning.tile_max_rows;
  json["segments"] = tuning.num_segments;
  json["delivery"] = to_string(tuning.delivery);
  json["chunk_widths"] = Json::array();
  for (std::int32_t c = 0; c < tuning.chunks.num_chunks; ++c)
    json["chunk_widths"].push_back(tuning.chunks.width(c));
  json["ring_chunks"] = tuning.ring_chunks;
  json["partial_dtype"] = to_string(tuning.partial_dtype);
  return json;
}

std::string describe(const Problem& problem) {
  return fmt::format("W {}, E {}, H {}, I {} ({} a rank), K {}, {}", problem.num_ranks,
                     problem.num_experts, problem.hidden, problem.intermediate,
                     problem.intermediate_per_rank(), problem.topk, to_string(problem.dtype));
}

std::string human_bytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_time(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

void show_progress(const std::string& text) {
  if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K{}", text);
}

void clear_progress() { show_progress(""); }

}  // namespace slipstream::cli
