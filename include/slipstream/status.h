// Status: the one error type. It names the subsystem, the value that was seen, the value that was
// wanted, and a way out. Result<T> is a value or a Status.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace slipstream {

enum class StatusCode : std::int32_t {
  kOk = 0,
  // The caller's mistake, found before anything ran. The object is as it was.
  kInvalidArgument = 1,
  kUnsupported = 2,
  kOutOfMemory = 3,
  kFileError = 4,
  // Call errors: every rank saw the same data, skipped the work and kept the epoch in step. The
  // next good call works.
  kInvalidRouting = 10,
  kSignatureMismatch = 11,
  // Group errors: sticky until the collective reset.
  kTimeout = 20,
  kPeerFailed = 21,
  kGroupBroken = 22,
  // The machine's or ours.
  kBackendError = 30,
  kInternal = 31,
};

// Lower-case words with underscores, as they appear in messages and JSON ("invalid_routing").
std::string_view to_string(StatusCode code);

enum class Subsystem : std::int32_t {
  kNone = 0,
  kProblem,
  kRouting,
  kSchedule,
  kTuning,
  kSymmetric,
  kProtocol,
  kGemm,
  kHost,
  kLayer,
  kCheckpoint,
  kCli,
  kLaunch,
};

std::string_view to_string(Subsystem subsystem);

// What a Status carries besides its code. All texts may be empty.
struct StatusDetail {
  std::string what;       // the thing that is wrong: "topk_ids[3][1]"
  std::string observed;   // its value: "64"
  std::string expected;   // the value that would do: "0..63 or -1"
  std::string hint;       // the way out: "mask padded tokens with -1"
  int culprit_rank = -1;  // the rank that caused it, or -1
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, Subsystem subsystem, StatusDetail detail)
      : code_(code), subsystem_(subsystem), detail_(std::move(detail)) {}

  static Status ok() { return Status(); }

  bool is_ok() const { return code_ == StatusCode::kOk; }
  // The call was skipped on every rank; the next good call works.
  bool is_call_error() const {
    return code_ == StatusCode::kInvalidRouting || code_ == StatusCode::kSignatureMismatch;
  }
  // The group is unusable until every rank has called Layer::reset().
  bool is_group_error() const {
    return code_ == StatusCode::kTimeout || code_ == StatusCode::kPeerFailed ||
           code_ == StatusCode::kGroupBroken;
  }

  StatusCode code() const { return code_; }
  Subsystem subsystem() const { return subsystem_; }
  const StatusDetail& detail() const { return detail_; }
  int culprit_rank() const { return detail_.culprit_rank; }

  // One sentence:
  // "routing: topk_ids[3][1] is 64, expected 0..63 or -1; mask padded tokens with -1".
  std::string message() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  Subsystem subsystem_ = Subsystem::kNone;
  StatusDetail detail_;
};

inline Status invalid_argument(Subsystem subsystem, StatusDetail detail) {
  return Status(StatusCode::kInvalidArgument, subsystem, std::move(detail));
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace slipstream
