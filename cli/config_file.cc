#include "config_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

// Header-only and without exceptions: parse errors come back as values, and only this file pays for
// the compilation.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace slipstream::cli {

namespace {

constexpr std::uintmax_t kMaxConfigBytes = 1 << 20;

Status file_error(const std::string& path, std::string observed, std::string expected,
                  std::string hint) {
  return Status(StatusCode::kFileError, Subsystem::kCli,
                {.what = fmt::format("--config '{}'", path),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = std::move(hint)});
}

// The first line with a character beyond ASCII outside of one-line texts and comments, or 0. TOML
// has a place for such characters in texts over several lines only, which no option needs; toml++
// 3.3 runs into undefined behaviour there and before keys (its test for whitespace ends in
// __builtin_unreachable() for U+00A1 to U+0499), so they are refused before it sees them.
int line_beyond_ascii(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order mark
  int line = 1;
  char inside = 0;  // the quote of a text, '#' in a comment, else 0
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      inside = 0;
    } else if (inside == 0) {
      if (static_cast<unsigned char>(c) >= 0x80) return line;
      if (c == '"' || c == '\'' || c == '#') inside = c;
      if (c != '#' && inside != 0 && text.substr(i).starts_with(std::string(3, c))) return line;
    } else if (inside == '"' && c == '\\') {
      ++i;
    } else if (inside != '#' && c == inside) {
      inside = 0;
    }
  }
  return 0;
}

// The value as the command line would spell it, or nothing.
std::optional<std::string> to_text(const toml::node& node) {
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* list = node.as_array()) {
    std::string text;
    for (const toml::node& item : *list) {
      const auto* value = item.as_integer();
      if (value == nullptr) return std::nullopt;
      text += fmt::format("{}{}", text.empty() ? "" : ",", value->get());
    }
    return text;
  }
  return std::nullopt;
}

Status set_from_file(const std::string& path, const std::string& key, const toml::node& node,
                     OptionValues* values) {
  const OptionSpec* spec = find_option(key);
  if (spec == nullptr) {
    std::vector<std::string> names;
    for (const OptionSpec& option : option_specs()) names.emplace_back(option.name);
    return file_error(path, fmt::format("setting '{}'", key), "the name of an option",
                      did_you_mean(key, names, "slipstream run --help lists them"));
  }
  const std::string origin = fmt::format("{} in '{}'", key, path);
  if (key == "config") {
    return bad_option(origin, "a file", "no further file", "put all settings into one");
  }
  const std::optional<std::string> text = to_text(node);
  const bool is_flag = spec->value_name == nullptr;
  if (!text || is_flag != node.is_boolean()) {
    std::ostringstream type;
    type << node.type();
    return bad_option(origin, text ? fmt::format("'{}'", *text) : "of type " + type.str(),
                      is_flag ? "true or false" : "a whole number, a text or a list of numbers",
                      is_flag ? "" : fmt::format("write it as after --{}", key));
  }
  values->set(key, *text, origin);
  return Status::ok();
}

}  // namespace

Status read_config_file(const std::string& path, OptionValues* values) {
  // A device or a pipe could be read for ever.
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::is_regular_file(status)) {
    return file_error(path, std::filesystem::exists(status) ? "no regular file" : "not there",
                      "a TOML file", "check the path");
  }
  if (std::filesystem::file_size(path, error) > kMaxConfigBytes || error) {
    return file_error(path, "too large", fmt::format("at most {} bytes", kMaxConfigBytes),
                      "give a file of settings");
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return file_error(path, "not readable", "a TOML file", "check its permissions");

  if (const int line = line_beyond_ascii(text.str()); line != 0) {
    return file_error(path, fmt::format("broken at line {}", line),
                      "ASCII outside of texts and comments, and texts on one line",
                      "put quotes around the value");
  }
  const toml::parse_result result = toml::parse(text.str());
  if (!result) {
    const toml::parse_error& problem = result.error();
    return file_error(path, fmt::format("broken at line {}", problem.source().begin.line), "TOML",
                      std::string(problem.description()));
  }
  for (const auto& [key, node] : result.table()) {
    if (Status status = set_from_file(path, std::string(key.str()), node, values); !status.is_ok())
      return status;
  }
  return Status::ok();
}

}  // namespace slipstream::cli
