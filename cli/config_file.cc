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

// What of TOML a flat file of options may use. The rest is refused before toml++ 3.3 sees it: some
// of it leads there into undefined behaviour (characters U+00A1 to U+0499, for which its test for
// whitespace ends in __builtin_unreachable(); "[=" and "[#", where it assumes a key).
struct Refusal {
  int line = 0;  // 0: nothing to refuse
  const char* expected = "";
  const char* hint = "";
};

// Blanks what comments have beyond ASCII.
Refusal find_refusal(std::string& text) {
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // byte order mark
  int line = 1;
  bool is_line_begin = true;
  char inside = 0;  // the quote of a text, '#' in a comment, else 0
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x80 && inside != '#')
      return {line, "ASCII outside of comments", "write \\u00e9 in double quotes for U+00E9"};
    if (c == '\n') {
      ++line;
      is_line_begin = true;
      inside = 0;
    } else if (inside == '#') {
      if (static_cast<unsigned char>(c) >= 0x80) text[i] = '?';
    } else if (inside != 0) {
      if (c == inside) inside = 0;
      if (inside == '"' && c == '\\' && i + 1 < text.size() &&
          (text[i + 1] == '"' || text[i + 1] == '\\'))
        ++i;
    } else {
      if (c == '{' || (c == '[' && is_line_begin))
        return {line, "settings without tables", "write them as in: ranks = 4"};
      if (c == '"' || c == '\'' || c == '#') inside = c;
      if (c != '#' && inside != 0 && text.compare(i, 3, std::string(3, c)) == 0)
        return {line, "texts on one line", "write them as in: dist = \"uniform\""};
      is_line_begin = is_line_begin && (c == ' ' || c == '\t' || c == '\r');
    }
  }
  return {};
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
  std::ostringstream content;
  content << stream.rdbuf();
  if (!stream) return file_error(path, "not readable", "a TOML file", "check its permissions");
  std::string text = content.str();
  if (const Refusal refusal = find_refusal(text); refusal.line != 0) {
    return file_error(path, fmt::format("wrong at line {}", refusal.line), refusal.expected,
                      refusal.hint);
  }
  const toml::parse_result result = toml::parse(text);
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
