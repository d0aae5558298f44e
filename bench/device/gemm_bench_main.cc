// gemm_bench: run_gemm_bench() from the command line.
//
//   gemm_bench [--experts 64] [--hidden 4096] [--intermediate 768] [--topk 8] [--tokens 128,2048]
//              [--dist uniform,balanced] [--rounds 6] [--tile-max 0] [--peer grouped_mm.py]
//              [--all] [--fp16] [--out FILE.json]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "gemm_bench.h"

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

int main(int argc, char** argv) {
  slipstream::bench::GemmBenchOptions options;
  std::string out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--all") {
      options.all_variants = true;
      continue;
    }
    if (name == "--fp16") {
      options.dtype_fp16 = true;
      continue;
    }
    if (i + 1 >= argc) {
      fmt::print(stderr, "gemm_bench: {} is not an option or lacks its value\n", name);
      return 2;
    }
    const std::string value = argv[++i];
    const int number = std::atoi(value.c_str());
    if (name == "--experts")
      options.num_experts = number;
    else if (name == "--hidden")
      options.hidden = number;
    else if (name == "--intermediate")
      options.intermediate = number;
    else if (name == "--topk")
      options.topk = number;
    else if (name == "--rounds")
      options.num_rounds = number;
    else if (name == "--tile-max")
      options.tile_max_rows = number;
    else if (name == "--peer")
      options.peer_script = value;
    else if (name == "--out")
      out = value;
    else if (name == "--dist")
      options.distributions = split(value);
    else if (name == "--tokens") {
      options.tokens.clear();
      for (const std::string& part : split(value))
        options.tokens.push_back(std::atoi(part.c_str()));
    } else {
      fmt::print(stderr, "gemm_bench: unknown option {}\n", name);
      return 2;
    }
  }
  if (!out.empty()) options.progress = [](const std::string& line) { fmt::print("{}\n", line); };
  slipstream::Result<std::string> result = slipstream::bench::run_gemm_bench(options);
  if (!result.is_ok()) {
    fmt::print(stderr, "{}\n", result.status().message());
    return 2;
  }
  std::FILE* file = out.empty() ? stdout : std::fopen(out.c_str(), "w");
  if (file == nullptr) {
    fmt::print(stderr, "gemm_bench: cannot write {}\n", out);
    return 2;
  }
  fmt::print(file, "{}", result.value());
  if (file != stdout) std::fclose(file);
  return 0;
}
