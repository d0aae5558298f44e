// slipstream bench WHAT: one part of the layer alone, beside what people use today. What this
// machine cannot run is SKIPPED, a baseline that it lacks is WAIVED: neither has a figure.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "job.h"
#include "output.h"
#if defined(SLIPSTREAM_HAS_CUDA)
#include "bench/device/gemm_bench.h"
#endif

namespace slipstream::cli {

namespace {

namespace fs = std::filesystem;

struct GemmRequest {
  Job job;
  std::vector<std::int32_t> tokens;  // of all ranks; one size each
  std::vector<std::string> distributions;
  std::int32_t tile_max_rows = 0;  // 0: the engine's choice
  std::int32_t num_rounds = 6;
  std::string peer_script;  // empty where there is none
};

// Beside the program in an unpacked bundle, or above it in a build tree.
std::string find_peers_folder() {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < 4 && !error && !folder.empty(); ++level) {
    const fs::path candidate = folder / "bench" / "peers";
    if (fs::is_directory(candidate, error)) return candidate.string();
    error.clear();
    folder = folder.parent_path();
  }
  return {};
}

Result<std::string> peer_script(const OptionValues& options, const char* name) {
  const OptionValues::Value* given = options.find("peers");
  const fs::path path = fs::path(given != nullptr ? given->text : find_peers_folder()) / name;
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.string();
  if (given == nullptr) return std::string();
  return bad_option(given->origin, fmt::format("'{}'", given->text),
                    fmt::format("a folder that has {}", name), "the sources have it: bench/peers");
}

// Decode, the preset's own size and prefill: for preset seed 1024, 16384 and 65536 rows.
std::vector<std::int32_t> usual_sizes(std::int64_t num_tokens) {
  const auto size = [](std::int64_t tokens) { return static_cast<std::int32_t>(tokens); };
  return {size(std::max<std::int64_t>(num_tokens / 16, 1)), size(num_tokens), size(4 * num_tokens)};
}

Result<GemmRequest> resolve_gemm(const OptionValues& options) {
  GemmRequest request;
  Result<Job> job = resolve_job(options, nullptr);
  if (!job.is_ok()) return job.status();
  request.job = std::move(job).value();
  const Problem& problem = request.job.problem;
  if (problem.dtype == DType::kFP32) {
    return bad_option(options.find("dtype")->origin, "'fp32'", "bf16 or fp16",
                      "the GEMM engines compute in 16 bits");
  }
  if (request.job.num_tokens() == 0) {
    return bad_option(options.find("tokens")->origin,
                      fmt::format("'{}'", options.find("tokens")->text), "a token or more",
                      "there is nothing to measure without rows");
  }
  const auto num_tokens = static_cast<std::int32_t>(request.job.num_tokens());
  request.tokens =
      options.is_set("tokens") ? std::vector<std::int32_t>{num_tokens} : usual_sizes(num_tokens);
  request.distributions = options.is_set("dist")
                              ? std::vector<std::string>{to_string(request.job.distribution)}
                              : std::vector<std::string>{"uniform", "balanced"};
  if (options.is_set("tile-max-rows")) request.tile_max_rows = request.job.tuning.tile_max_rows;
  const auto rounds = options.integer("repeat", 1, 1'000'000);
  if (!rounds.is_ok()) return rounds.status();
  request.num_rounds = static_cast<std::int32_t>(rounds.value().value_or(request.num_rounds));
  Result<std::string> script = peer_script(options, "grouped_mm.py");
  if (!script.is_ok()) return script.status();
  request.peer_script = std::move(script).value();
  return request;
}

#if defined(SLIPSTREAM_HAS_CUDA)

Result<Json> run_gemm(const GemmRequest& request) {
  const Problem& problem = request.job.problem;
  bench::GemmBenchOptions options;
  options.num_experts = problem.num_experts;
  options.hidden = problem.hidden;
  options.intermediate = problem.intermediate_per_rank();
  options.topk = problem.topk;
  options.tokens = request.tokens;
  options.distributions = request.distributions;
  options.tile_max_rows = request.tile_max_rows;
  options.num_rounds = request.num_rounds;
  options.seed = request.job.seed;
  options.dtype_fp16 = problem.dtype == DType::kFP16;
  options.peer_script = request.peer_script;
  options.progress = [](const std::string& line) {
    const Json result = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    show_progress(fmt::format(
        "{} {} {}: {}", result["layer"].get<std::string>(), result["rows"].get<std::int64_t>(),
        result["routing"].get<std::string>(), result["contestant"].get<std::string>()));
  };
  const Result<std::string> report = bench::run_gemm_bench(options);
  clear_progress();
  if (!report.is_ok()) return report.status();
  return Json::parse(report.value(), nullptr, /*allow_exceptions=*/false);
}

#else

Result<Json> run_gemm(const GemmRequest&) {
  return Status(StatusCode::kUnsupported, Subsystem::kGemm,
                {.what = "CUDA",
                 .observed = "not in this build",
                 .expected = "a build with the CUDA toolkit",
                 .hint = "configure with -DSLIPSTREAM_CUDA=ON"});
}

#endif

constexpr const char* kColumns[] = {"layer", "rows",   "routing", "contestant",  "us",     "p10",
                                    "p90",   "tflops", "gbps",    "floor_share", "x_torch"};

// Text that has a comma goes into quotes; what was not measured stays empty.
std::string csv_cell(const Json& result, const char* column) {
  if (!result.contains(column) || result[column].is_null()) return {};
  const Json& value = result[column];
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  return text.find(',') == std::string::npos ? text : fmt::format("\"{}\"", text);
}

void print_csv(const Json& report) {
  std::vector<std::string> cells(std::begin(kColumns), std::end(kColumns));
  cells.emplace_back("result");
  fmt::print("{}\n", fmt::join(cells, ","));
  if (report["result"] == "SKIPPED")
    fmt::print("{}SKIPPED\n", std::string(std::size(kColumns), ','));
  for (const Json& result : report["results"]) {
    cells.clear();
    for (const char* column : kColumns) cells.push_back(csv_cell(result, column));
    cells.push_back(result.value("result", "measured"));
    fmt::print("{}\n", fmt::join(cells, ","));
  }
}

void print_text(const Json& report) {
  const std::string state = report["result"];
  if (state != "measured") {
    fmt::print("gemm     {}: {}\n", state, report["why"].get<std::string>());
    return;
  }
  fmt::print("gemm     {}, E {}, H {}, I {} a rank, K {}, {}; cold L2, medians of {} runs\n",
             report["device"].get<std::string>(), report["experts"].get<int>(),
             report["hidden"].get<int>(), report["intermediate"].get<int>(),
             report["topk"].get<int>(), report["dtype"].get<std::string>(),
             report["runs"].get<int>());
  fmt::print("{:<8} {:>7} {:<10} {:<25} {:>9} {:>9} {:>9} {:>7} {:>6} {:>6} {:>7}\n", "layer",
             "rows", "routing", "contestant", "us", "p10", "p90", "TFLOP/s", "GB/s", "floor",
             "x torch");
  for (const Json& result : report["results"]) {
    fmt::print("{:<8} {:>7} {:<10} {:<25} ", result["layer"].get<std::string>(),
               result["rows"].get<std::int64_t>(), result["routing"].get<std::string>(),
               result["contestant"].get<std::string>());
    if (result.contains("result")) {
      fmt::print("{}: {}\n", result["result"].get<std::string>(), result["why"].get<std::string>());
      continue;
    }
    fmt::print(
        "{:>9.1f} {:>9.1f} {:>9.1f} {:>7.0f} {:>6.0f} {:>6.2f} {:>7}\n", result["us"].get<double>(),
        result["p10"].get<double>(), result["p90"].get<double>(), result["tflops"].get<double>(),
        result["gbps"].get<double>(), result["floor_share"].get<double>(),
        result["x_torch"].is_null() ? "-" : fmt::format("{:.2f}", result["x_torch"].get<double>()));
  }
}

Result<int> bench_gemm(const OptionValues& options) {
  const Result<GemmRequest> request = resolve_gemm(options);
  if (!request.is_ok()) return request.status();
  const Result<Json> measured = run_gemm(request.value());
  const bool is_skipped = !measured.is_ok() && measured.status().code() == StatusCode::kUnsupported;
  if (!measured.is_ok() && !is_skipped) return measured.status();

  Json report;
  report["command"] = "bench gemm";
  report["result"] = is_skipped ? "SKIPPED" : "measured";
  if (is_skipped) report["why"] = measured.status().message();
  report["problem"] = to_json(request.value().job.problem);
  report["seed"] = request.value().job.seed;
  if (is_skipped) report["results"] = Json::array();
  if (!is_skipped) report.update(measured.value());
  if (options.flag("json")) {
    print_json(report);
  } else if (options.flag("csv")) {
    print_csv(report);
  } else {
    print_text(report);
  }
  return kExitOk;
}

struct Subject {
  const char* name;
  Result<int> (*run)(const OptionValues&);
};

constexpr Subject kSubjects[] = {{"gemm", bench_gemm}};

}  // namespace

Result<int> cmd_bench(const OptionValues& options) {
  std::vector<std::string> names;
  for (const Subject& subject : kSubjects) names.emplace_back(subject.name);
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  const OptionValues::Value* what = options.find(kSubjectKey);
  if (what == nullptr)
    return bad_option("what to bench", "missing", expected, "slipstream bench gemm");
  if (options.flag("json") && options.flag("csv"))
    return bad_option("--csv", "beside --json", "one of the two", "leave one out");
  for (const Subject& subject : kSubjects)
    if (what->text == subject.name) return subject.run(options);
  return bad_option("what to bench", fmt::format("'{}'", what->text), expected,
                    did_you_mean(what->text, names, "slipstream bench --help has examples"));
}

}  // namespace slipstream::cli
