// The grouped GEMM alone, on one GPU, beside the libraries that people use today. Called by the
// gemm_bench program and by `slipstream bench gemm`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slipstream/status.h"

namespace slipstream::bench {

struct GemmBenchOptions {
  // The layer's shape: gate/up is [E, 2 * intermediate, hidden], down [E, hidden, intermediate].
  std::int32_t num_experts = 64;
  std::int32_t hidden = 4096;
  std::int32_t intermediate = 768;  // of one rank
  std::int32_t topk = 8;
  std::vector<std::int32_t> tokens = {128, 2048, 8192};
  std::vector<std::string> distributions = {"uniform", "balanced"};
  std::int32_t tile_max_rows = 0;  // 0: preferred_tile_max_rows()
  std::int32_t num_rounds = 6;     // contestants alternate; medians are over all rounds
  std::int32_t runs_per_round = 5;
  std::uint64_t seed = 1;
  bool all_variants = false;  // also with a dispenser
  bool dtype_fp16 = false;
  std::string peer_script;  // bench/peers/grouped_mm.py; empty: the peer is WAIVED
  std::function<void(const std::string&)> progress;  // takes a line per result; may be empty
};

// Measures with a cold L2 and random data and returns one JSON document: per shape, routing and
// contestant the median, the spread (10th and 90th percentile), useful TFLOP/s, GB/s, the share of
// the floor max(flops / 790e12, bytes / 4.3e12), and the ratio to torch's _grouped_mm where it ran.
// A contestant that this machine does not have is WAIVED, with the reason. Errors: kUnsupported
// without a Hopper GPU, kInvalidArgument for a shape or routing that cannot be, kOutOfMemory.
Result<std::string> run_gemm_bench(const GemmBenchOptions& options);

}  // namespace slipstream::bench
