// The correctness anchors, each over a matrix of small cases. Used by cmd_verify.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "slipstream/layer.h"

namespace slipstream::cli {

enum class AnchorState { kPass, kFail, kSkipped };

struct VerifyOptions {
  std::uint64_t seed = 0;
  Backend backend = Backend::kAuto;
  std::int32_t num_ranks = 0;  // 0: cases of 1 to 8 ranks
};

struct AnchorPart {
  std::string name;  // "host builder"
  AnchorState state = AnchorState::kPass;
  int num_cases = 0;
  std::string detail;
};

struct AnchorResult {
  AnchorState state = AnchorState::kPass;
  int num_cases = 0;
  std::string detail;             // what was compared, what broke first, or why it was skipped
  std::vector<AnchorPart> parts;  // where an anchor has several; it fails if one does
};

// 1: golden tables = the builder's, element for element: its phases on the host, which also keep
// the invariants, and publish_plan where there are GPUs.
AnchorResult verify_tables(const VerifyOptions& options);
AnchorPart verify_host_tables(const VerifyOptions& options);
AnchorPart verify_gpu_tables(const VerifyOptions& options);

// 2: the host backend's layer = the fp64 reference, and the same bits again.
AnchorResult verify_dataflow(const VerifyOptions& options);

// 3: the layer on GPUs. Skipped without a GPU, without a CUDA backend, or when `backend` is host.
AnchorResult verify_end_to_end(Backend backend);

}  // namespace slipstream::cli
