// slipstream run, the main job: data, one layer per rank, `repeat` calls, times, check, output
// file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "check.h"
#include "checkpoint/safetensors.h"
#include "commands.h"
#include "job.h"
#include "layer_data.h"
#include "layer_run.h"
#include "memory.h"
#include "output.h"

namespace slipstream::cli {

namespace {

struct RunSettings {
  Job job;
  int threads_per_rank = 1;
  int num_repeats = 1;
  bool with_check = true;
  std::string out_path;
  std::optional<InputFile> input;
};

struct RunResult {
  PhaseTimes times;       // medians over the repeats of the slowest rank
  double wall = 0;        // median over the repeats, seen from outside
  bool same_bits = true;  // all repeats gave the same output
  Backend backend = Backend::kAuto;
  std::optional<CheckResult> check;

  bool is_passed() const { return same_bits && (!check || check->is_passed); }
};

constexpr std::pair<const char*, double PhaseTimes::*> kPhases[] = {
    {"publish_plan", &PhaseTimes::publish_plan},
    {"gather_gate_up", &PhaseTimes::gather_gate_up},
    {"down_reduce_push", &PhaseTimes::down_reduce_push},
    {"final_reduce", &PhaseTimes::final_reduce},
    {"total", &PhaseTimes::total},
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<RunSettings> read_settings(const OptionValues& options) {
  RunSettings settings;
  if (const OptionValues::Value* path = options.find("input")) {
    Result<InputFile> input = open_input_file(path->text);
    if (!input.is_ok()) return input.status();
    settings.input = std::move(input).value();
  }
  Result<Job> job = resolve_job(options, settings.input ? &*settings.input : nullptr);
  if (!job.is_ok()) return job.status();
  settings.job = std::move(job).value();
  const auto threads = options.integer("threads", 1, kMaxThreadsPerRank);
  if (!threads.is_ok()) return threads.status();
  settings.threads_per_rank = static_cast<int>(threads.value().value_or(1));
  const auto repeats = options.integer("repeat", 1, 1'000'000);
  if (!repeats.is_ok()) return repeats.status();
  settings.num_repeats = static_cast<int>(repeats.value().value_or(1));
  settings.with_check = !options.flag("no-check");
  if (const OptionValues::Value* path = options.find("out")) {
    settings.out_path = path->text;
    if (Status status = check_output_path(settings.out_path); !status.is_ok()) return status;
  }
  return settings;
}

Status fill_data(const RunSettings& settings, LayerData* data) {
  if (settings.input) return fill_from_file(*settings.input, data);
  const Job& job = settings.job;
  const Result<Routing> routing =
      generate_routing(job.distribution, static_cast<std::int32_t>(job.num_tokens()),
                       job.problem.num_experts, job.problem.topk, job.seed);
  if (!routing.is_ok()) return routing.status();
  set_routing(routing.value(), data);
  fill_random(job.seed, data);
  return Status::ok();
}

Result<RunResult> run_layers(const RunSettings& settings, const LayerData& data, Outputs* outputs) {
  show_progress("creating the layers");
  LayerOptions options;
  options.backend = settings.job.backend;
  options.tuning = settings.job.tuning;
  options.threads_per_rank = settings.threads_per_rank;
  Result<std::vector<Layer>> layers = create_layers(data, options);
  if (!layers.is_ok()) return layers.status();
  const std::vector<LayerInput> inputs = data.inputs();
  RunResult result;
  result.backend = layers.value().front().backend();
  std::vector<double> walls;
  std::vector<double> times[std::size(kPhases)];
  Outputs again(data);
  for (int repeat = 0; repeat < settings.num_repeats; ++repeat) {
    show_progress(fmt::format("running the layer, {} of {}", repeat + 1, settings.num_repeats));
    Outputs& target = repeat == 0 ? *outputs : again;
    target.poison();
    const auto begin = std::chrono::steady_clock::now();
    if (Status s = run_all_ranks(layers.value(), inputs, target.views()); !s.is_ok()) return s;
    walls.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (repeat > 0) result.same_bits = result.same_bits && again.equals(*outputs);
    for (std::size_t p = 0; p < std::size(kPhases); ++p) {
      double slowest = 0;
      for (const Layer& layer : layers.value())
        slowest = std::max(slowest, layer.phase_times().*kPhases[p].second);
      times[p].push_back(slowest);
    }
  }
  for (std::size_t p = 0; p < std::size(kPhases); ++p)
    result.times.*kPhases[p].second = median(times[p]);
  result.wall = median(walls);
  return result;
}

Status write_output(const RunSettings& settings, const LayerData& data, const Outputs& outputs) {
  const Problem& problem = data.problem();
  // Rank order makes the ranks' outputs one tensor.
  std::vector<std::byte> bytes;
  std::vector<std::int32_t> counts;
  for (int r = 0; r < data.num_ranks(); ++r) {
    const Buffer& buffer = outputs.buffers()[static_cast<std::size_t>(r)];
    bytes.insert(bytes.end(), buffer.data(), buffer.data() + buffer.bytes());
    counts.push_back(data.rank(r).num_tokens);
  }
  StoredType type = StoredType::kBF16;
  if (problem.dtype == DType::kFP16) type = StoredType::kF16;
  if (problem.dtype == DType::kFP32) type = StoredType::kF32;
  const TensorToWrite tensors[] = {
      {"out", type, {settings.job.num_tokens(), problem.hidden}, bytes},
      {"tokens_per_rank", StoredType::kI32, {std::ssize(counts)}, std::as_bytes(std::span(counts))},
  };
  return write_safetensors(settings.out_path, tensors);
}

Json check_json(const CheckResult& check) {
  Json json;
  json["passed"] = check.is_passed;
  json["reference"] = "fp64";
  json["tokens_checked"] = check.num_tokens;
  json["tokens_total"] = check.total_tokens;
  json["relative_error"] = check.relative_error;
  json["tolerance"] = check.tolerance;
  json["worst_row_error"] = check.worst_row_error;
  json["worst_token"] = check.worst_token >= 0 ? Json(check.worst_token) : Json();
  json["row_tolerance"] = check.row_tolerance;
  return json;
}

void print_result_json(const RunSettings& settings, const RunResult& result) {
  const Job& job = settings.job;
  Json json;
  json["command"] = "run";
  json["backend"] = to_string(result.backend);
  json["preset"] = settings.input ? Json() : Json(job.preset);
  json["input"] = settings.input ? Json(settings.input->file.path()) : Json();
  if (settings.input) json["ignored_tensors"] = settings.input->ignored;
  json["problem"] = to_json(job.problem);
  json["tokens_per_rank"] = job.tokens_per_rank;
  json["tokens"] = job.num_tokens();
  json["routing"] = settings.input ? Json() : Json(to_string(job.distribution));
  json["seed"] = settings.input ? Json() : Json(job.seed);
  json["tuning"] = to_json(job.tuning);
  json["threads_per_rank"] = settings.threads_per_rank;
  json["repeats"] = settings.num_repeats;
  for (const auto& [name, member] : kPhases) json["seconds"][name] = result.times.*member;
  json["seconds"]["wall"] = result.wall;
  json["same_bits"] = settings.num_repeats > 1 ? Json(result.same_bits) : Json();
  json["check"] = result.check ? check_json(*result.check) : Json();
  json["out"] = settings.out_path.empty() ? Json() : Json(settings.out_path);
  json["passed"] = result.check || settings.num_repeats > 1 ? Json(result.is_passed()) : Json();
  print_json(json);
}

void print_result(const RunSettings& settings, const RunResult& result) {
  const Job& job = settings.job;
  fmt::print("layer    {}\n", describe(job.problem));
  fmt::print("tokens   {} ({} by rank)\n", job.num_tokens(), fmt::join(job.tokens_per_rank, ", "));
  if (settings.input) {
    fmt::print("input    {}\n", settings.input->file.path());
    if (!settings.input->ignored.empty())
      fmt::print("         ignored tensors: {}\n", fmt::join(settings.input->ignored, ", "));
  } else {
    fmt::print("data     preset {}, routing {}, seed {}\n", job.preset, to_string(job.distribution),
               job.seed);
  }
  fmt::print("backend  {}, {} thread{} a rank\n", to_string(result.backend),
             settings.threads_per_rank, settings.threads_per_rank == 1 ? "" : "s");
  fmt::print("tuning   {}\n", slipstream::describe(job.tuning));
  fmt::print("times    slowest rank, {}; phases overlap\n",
             settings.num_repeats == 1 ? std::string("1 call")
                                       : fmt::format("median of {} calls", settings.num_repeats));
  for (const auto& [name, member] : kPhases)
    fmt::print("         {:<17}{:>10}\n", name, human_time(result.times.*member));
  if (!settings.out_path.empty()) fmt::print("out      {}\n", settings.out_path);
  if (settings.num_repeats > 1)
    fmt::print("bits     {} in {} calls\n", result.same_bits ? "the same" : "FAIL: they differ",
               settings.num_repeats);
  if (!result.check) {
    fmt::print("check    left out (--no-check)\n");
    return;
  }
  const CheckResult& check = *result.check;
  fmt::print(
      "check    {}: {} of {} tokens{} against the fp64 reference: relative error {:.1e} (at most "
      "{:.1e}), worst token {:.1e} (at most {:.1e})\n",
      check.is_passed ? "PASS" : "FAIL", check.num_tokens, check.total_tokens,
      check.num_tokens < check.total_tokens ? ", spread over all ranks," : "", check.relative_error,
      check.tolerance, check.worst_row_error, check.row_tolerance);
}

}  // namespace

Result<int> cmd_run(const OptionValues& options) {
  Result<RunSettings> read = read_settings(options);
  if (!read.is_ok()) return read.status();
  const RunSettings& settings = read.value();
  const MemoryNeed need = memory_need(settings.job, settings.with_check);
  if (Status s = check_memory(need.total(), "weights, tokens and buffers"); !s.is_ok()) return s;

  show_progress("making the data");
  LayerData data(settings.job.problem, settings.job.tokens_per_rank);
  if (Status s = fill_data(settings, &data); !s.is_ok()) return s;
  Outputs outputs(data);
  Result<RunResult> run = run_layers(settings, data, &outputs);
  if (!run.is_ok()) return run.status();
  RunResult& result = run.value();
  if (settings.with_check) {
    show_progress("checking against the reference");
    result.check = check_outputs(data, settings.job.tuning, outputs.views());
  }
  if (!settings.out_path.empty()) {
    if (Status s = write_output(settings, data, outputs); !s.is_ok()) return s;
  }
  clear_progress();
  if (options.flag("json")) {
    print_result_json(settings, result);
  } else {
    print_result(settings, result);
  }
  return result.is_passed() ? kExitOk : kExitFailed;
}

}  // namespace slipstream::cli
