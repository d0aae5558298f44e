#include "slipstream/status.h"

#include <fmt/format.h>

namespace slipstream {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kOutOfMemory: return "out_of_memory";
    case StatusCode::kFileError: return "file_error";
    case StatusCode::kInvalidRouting: return "invalid_routing";
    case StatusCode::kSignatureMismatch: return "signature_mismatch";
    case StatusCode::kTimeout: return "timeout";
    case StatusCode::kPeerFailed: return "peer_failed";
    case StatusCode::kGroupBroken: return "group_broken";
    case StatusCode::kBackendError: return "backend_error";
    case StatusCode::kInternal: return "internal";
  }
  return "unknown";
}

std::string_view to_string(Subsystem subsystem) {
  switch (subsystem) {
    case Subsystem::kNone: return "slipstream";
    case Subsystem::kProblem: return "problem";
    case Subsystem::kRouting: return "routing";
    case Subsystem::kSchedule: return "schedule";
    case Subsystem::kTuning: return "tuning";
    case Subsystem::kSymmetric: return "symmetric";
    case Subsystem::kProtocol: return "protocol";
    case Subsystem::kGemm: return "gemm";
    case Subsystem::kHost: return "host";
    case Subsystem::kLayer: return "layer";
    case Subsystem::kCheckpoint: return "checkpoint";
    case Subsystem::kCli: return "cli";
    case Subsystem::kLaunch: return "launch";
  }
  return "slipstream";
}

std::string Status::message() const {
  if (is_ok()) return "ok";
  std::string text = fmt::format("{}: {}", to_string(subsystem_), detail_.what);
  if (!detail_.observed.empty()) text += fmt::format(" is {}", detail_.observed);
  if (!detail_.expected.empty()) text += fmt::format(", expected {}", detail_.expected);
  if (detail_.culprit_rank >= 0) text += fmt::format(" (rank {})", detail_.culprit_rank);
  if (!detail_.hint.empty()) text += fmt::format("; {}", detail_.hint);
  return text;
}

}  // namespace slipstream
