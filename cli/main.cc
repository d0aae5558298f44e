// slipstream, the command line: parses, merges the configuration file, calls one command, prints
// its error. Read next: options.cc (all options), job.cc (what they mean), cmd_run.cc (the main
// job).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "commands.h"
#include "config_file.h"
#include "options.h"
#include "output.h"
#include "presets.h"
#include "version.h"

namespace slipstream::cli {

namespace {

struct CommandSpec {
  Command bit;
  const char* name;
  const char* help;
  const char* examples;
  Result<int> (*run)(const OptionValues&);
};

constexpr CommandSpec kCommands[] = {
    {kInfo, "info", "Show machine, GPUs, how they reach each other, build",
     "  slipstream info\n"
     "  slipstream info --probe --json\n",
     cmd_info},
    {kPlan, "plan", "Build the schedule tables of a problem and show what they cost",
     "  slipstream plan --preset seed --dist uniform\n"
     "  slipstream plan --preset qwen3-30b-a3b --ranks 2 --tokens 1024 --dist zipf:1.2\n"
     "  slipstream plan --preset seed --chunks 2048,1024,1024 --ring 2 --segments 2 --json\n",
     cmd_plan},
    {kRun, "run", "Run the layer on all ranks and check it against the reference",
     "  slipstream run --preset demo\n"
     "  slipstream run --ranks 4 --tokens 7,0,129,1 --dist zipf:1.2 --backend host --json\n"
     "  slipstream run --input layer.safetensors --ranks 2 --out out.safetensors\n"
     "  slipstream run --config job.toml --repeat 20 --no-check\n",
     cmd_run},
    {kVerify, "verify", "Run the correctness anchors in order: tables, dataflow, GPUs",
     "  slipstream verify\n"
     "  slipstream verify --ranks 4\n"
     "  slipstream verify --backend host --json\n",
     cmd_verify},
    {kFaults, "faults",
     "Break a group on purpose, in every known way, and show what its ranks report",
     "  slipstream faults --backend host\n"
     "  slipstream faults --ranks 2 --threads 1 --json\n",
     cmd_faults},
    {kBench, "bench", "Measure one part alone beside what people use today; WHAT is gemm",
     "  slipstream bench gemm --preset seed --dist uniform --json\n"
     "  slipstream bench gemm --preset qwen3-30b-a3b --ranks 1 --tokens 2048 --csv\n",
     cmd_bench},
};

constexpr const char* kInputHelp =
    "Real input (--input FILE.safetensors, full weights, the tool cuts each rank's slice):\n"
    "  hidden_states [T, H]      topk_ids [T, K] I32/I64      topk_weights [T, K]\n"
    "  w_gate_up [E, 2*I, H] or w_gate and w_up [E, I, H]     w_down [E, H, I]\n"
    "  tokens_per_rank [W] I32/I64, optional: T is split evenly without it\n"
    "  Floats are BF16, F16 or F32. --ranks, --tokens, --dtype may go with it; shape options may\n"
    "  only repeat what the file says; --preset, --dist and --seed may not. Without --ranks and\n"
    "  tokens_per_rank there is 1 rank. More in docs/input_format.md.\n";

constexpr const char* kExitHelp =
    "Exit codes: 0 good; 1 a check failed, or the machine did; 2 wrong input, said in one "
    "sentence.\n";

std::string footer(const CommandSpec& command) {
  std::string text = fmt::format("Examples:\n{}", command.examples);
  if ((command.bit & (kPlan | kRun | kBench)) != 0) text += "\nPresets:\n" + describe_presets();
  if (command.bit == kRun) text += fmt::format("\n{}", kInputHelp);
  return text + "\n" + kExitHelp;
}

// The parser of one process: options land in `texts` and `flags`, by command and name.
struct Parser {
  CLI::App app{"Slipstream: tensor-parallel MoE layers whose communication hides behind the GEMM"};
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> flags;

  static std::string key(const CommandSpec& command, const OptionSpec& option) {
    return fmt::format("{} {}", command.name, option.name);
  }

  Parser() {
    app.set_version_flag("--version", kVersion);
    app.allow_extras();
    app.require_subcommand(0, 1);
    app.footer(std::string("Start with: slipstream run --preset demo\n") + kExitHelp);
    for (const CommandSpec& command : kCommands) {
      CLI::App* sub = app.add_subcommand(command.name, command.help);
      sub->allow_extras();
      sub->footer(footer(command));
      for (const OptionSpec& option : option_specs()) {
        if ((option.commands & command.bit) == 0) continue;
        const std::string dashed = std::string("--") + option.name;
        CLI::Option* added = option.value_name == nullptr
                                 ? sub->add_flag(dashed, flags[key(command, option)], option.help)
                                 : sub->add_option(dashed, texts[key(command, option)], option.help)
                                       ->type_name(option.value_name);
        added->group(option.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      }
    }
  }
};

std::vector<std::string> option_names(const CommandSpec& command) {
  std::vector<std::string> names;
  for (const OptionSpec& option : option_specs())
    if ((option.commands & command.bit) != 0) names.push_back(std::string("--") + option.name);
  return names;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const CommandSpec& command : kCommands) names.emplace_back(command.name);
  return names;
}

Status missing_command() {
  return bad_option("command", "missing",
                    fmt::format("one of {}", fmt::join(command_names(), ", ")),
                    "slipstream --help has examples");
}

Status unknown_command(const std::string& text) {
  const std::vector<std::string> names = command_names();
  return bad_option("command", fmt::format("'{}'", text),
                    fmt::format("one of {}", fmt::join(names, ", ")),
                    did_you_mean(text, names, "slipstream --help has examples"));
}

Status unknown_argument(const CommandSpec& command, const std::string& text) {
  const std::string name = text.substr(0, text.find('='));
  const OptionSpec* elsewhere =
      name.starts_with("--") ? find_option(std::string_view(name).substr(2)) : nullptr;
  if (elsewhere != nullptr && (elsewhere->commands & command.bit) == 0) {
    return bad_option("argument", fmt::format("'{}'", text),
                      fmt::format("an option of {}", command.name),
                      fmt::format("slipstream {} --help lists them", command.name));
  }
  return bad_option("argument", fmt::format("'{}'", text), "a known option",
                    did_you_mean(name, option_names(command),
                                 fmt::format("slipstream {} --help lists them", command.name)));
}

// What CLI11 itself finds: "--ranks: 1 required W missing", "Could not convert: --json = maybe".
Status parse_problem(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  if (name.starts_with("--"))
    return bad_option(name, "without a value", "one after it", "--help says which");
  return bad_option("command line", fmt::format("wrong ({})", text), "flags without a value",
                    "--help lists the options");
}

Status collect(const Parser& parser, const CommandSpec& command, OptionValues* values) {
  const CLI::App* sub = parser.app.get_subcommand(command.name);
  std::vector<std::string> extras = sub->remaining();
  if (command.bit == kBench && !extras.empty() && !extras.front().starts_with("-")) {
    values->set(kSubjectKey, extras.front(), kSubjectKey);
    extras.erase(extras.begin());
  }
  if (!extras.empty()) return unknown_argument(command, extras.front());
  for (const OptionSpec& option : option_specs()) {
    if ((option.commands & command.bit) == 0) continue;
    const std::string dashed = std::string("--") + option.name;
    const std::size_t count = sub->get_option(dashed)->count();
    if (count == 0) continue;
    if (count > 1 && option.value_name != nullptr) {
      return bad_option(dashed, fmt::format("given {} times", count), "it once",
                        "lists have commas between their numbers");
    }
    values->set(
        option.name,
        option.value_name == nullptr ? "true" : parser.texts.at(Parser::key(command, option)),
        dashed);
  }
  if (const OptionValues::Value* config = values->find("config"))
    return read_config_file(config->text, values);
  return Status::ok();
}

Result<int> run_command_line(int argc, char** argv, bool* json) {
  const auto parser = std::make_unique<Parser>();
  try {
    parser->app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help and --version
    parser->app.exit(help);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return parse_problem(error.what());
  }
  const std::vector<CLI::App*> chosen = parser->app.get_subcommands();
  const std::vector<std::string> extras = parser->app.remaining();
  if (!extras.empty()) return unknown_command(extras.front());
  if (chosen.empty()) return missing_command();
  for (const CommandSpec& command : kCommands) {
    if (chosen.front()->get_name() != command.name) continue;
    OptionValues values;
    if (Status status = collect(*parser, command, &values); !status.is_ok()) return status;
    *json = *json || values.flag("json");
    try {
      return command.run(values);
    } catch (const std::bad_alloc&) {
      // The estimate of memory.h was too low, or somebody else took the memory meanwhile.
      return Status(StatusCode::kOutOfMemory, Subsystem::kCli,
                    {.what = "memory",
                     .observed = "used up",
                     .expected = "room for this shape",
                     .hint = "give fewer --tokens or --experts, or a smaller --preset"});
    }
  }
  return missing_command();
}

}  // namespace

}  // namespace slipstream::cli

int main(int argc, char** argv) {
  using namespace slipstream;
  using namespace slipstream::cli;
  // Also where parsing fails, so that a script that asked for JSON gets it.
  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
  const Result<int> result = run_command_line(argc, argv, &json);
  int code = kExitFailed;
  if (result.is_ok()) {
    code = result.value();
  } else {
    print_error(result.status(), json);
    code = exit_code_of(result.status());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "cli: stdout is not writable, expected room for the output\n");
    return kExitFailed;
  }
  return code;
}
