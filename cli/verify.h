// The correctness anchors, each over a matrix of small cases. Used by cmd_verify.cc.
#pragma once

#include <cstdint>
#include <string>

#include "slipstream/layer.h"

namespace slipstream::cli {

enum class AnchorState { kPass, kFail, kSkipped };

struct AnchorResult {
  AnchorState state = AnchorState::kPass;
  int num_cases = 0;
  std::string detail;  // what was compared, what broke first, or why it was skipped
};

// 1: golden tables = builder's phases, element for element, and both keep the invariants.
AnchorResult verify_tables(std::uint64_t seed);

// 2: the host backend's layer = the fp64 reference, and the same bits again.
AnchorResult verify_dataflow(std::uint64_t seed);

// 3: the layer on GPUs. Skipped without a GPU, without a CUDA backend, or when `backend` is host.
AnchorResult verify_end_to_end(Backend backend);

}  // namespace slipstream::cli
