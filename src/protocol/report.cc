#include "protocol/report.h"

#include <fmt/format.h>

#include <string>

namespace slipstream::protocol {

namespace {

bool counts_tags(Primitive primitive) { return is_remote(primitive); }

std::string value_text(Primitive primitive, std::uint64_t value) {
  if (!counts_tags(primitive)) return fmt::format("{}", value);
  const Tag tag = Tag::unpacked(value);
  return fmt::format("generation {} epoch {}", tag.generation, tag.epoch);
}

// "watermark 3 of rank 2 at rank 0"
std::string site_text(const WaitReport& report) {
  const WaitSite& site = report.site;
  std::string text(to_string(site.primitive));
  if (site.primitive == Primitive::kWatermark) text += fmt::format(" of chunk {}", site.index);
  if (site.primitive == Primitive::kTokenGate || site.primitive == Primitive::kTileDone)
    text += fmt::format(" {}", site.index);
  if (site.peer >= 0) text += fmt::format(" from rank {}", site.peer);
  text += fmt::format(" at rank {}", report.rank);
  if (report.block >= 0) text += fmt::format(" block {}", report.block);
  return text;
}

constexpr const char* kResetHint = "reset() the layer on every rank";

}  // namespace

std::string_view to_string(Primitive primitive) {
  switch (primitive) {
    case Primitive::kNone: return "none";
    case Primitive::kPublished: return "published";
    case Primitive::kWatermark: return "watermark";
    case Primitive::kTokenGate: return "token_gate";
    case Primitive::kTileDone: return "tile_done";
    case Primitive::kReadyWork: return "ready_work";
    case Primitive::kDrained: return "drained";
    case Primitive::kStatus: return "status";
  }
  return "unknown";
}

Status to_status(const WaitReport& report) {
  const Failure& failure = report.failure;
  StatusDetail detail;
  detail.culprit_rank = failure.culprit;
  switch (failure.reason) {
    case FailureReason::kNone: return Status::ok();
    case FailureReason::kTimeout: {
      detail.what = site_text(report);
      detail.observed = value_text(report.site.primitive, report.observed);
      detail.expected =
          fmt::format("{} within {} ms", value_text(report.site.primitive, report.site.expected),
                      report.limit_ns / 1'000'000);
      detail.hint = report.site.primitive == Primitive::kDrained
                        ? "every rank must call reset(); call it again when the rank is back"
                        : fmt::format("the rank is late, stalled or gone; raise the timeout or {}",
                                      kResetHint);
      return Status(StatusCode::kTimeout, Subsystem::kProtocol, std::move(detail));
    }
    case FailureReason::kPeerFailed: {
      detail.what = fmt::format("call {} of rank {}", report.tag.epoch, report.rank);
      detail.observed = fmt::format("aborted, rank {} reported a group error", report.reporter);
      detail.expected = "no group error";
      detail.hint = kResetHint;
      return Status(StatusCode::kPeerFailed, Subsystem::kProtocol, std::move(detail));
    }
    case FailureReason::kBackendError: {
      detail.what = fmt::format("call {} of rank {}", report.tag.epoch, report.rank);
      detail.observed = "failed by its backend";
      detail.hint = kResetHint;
      return Status(StatusCode::kBackendError, Subsystem::kProtocol, std::move(detail));
    }
  }
  return Status(StatusCode::kInternal, Subsystem::kProtocol, std::move(detail));
}

Status group_status(const Failure& failure, const WaitRecord& record, std::uint32_t generation) {
  if (!failure.is_of(generation)) return Status::ok();
  WaitReport report;
  if (!record.read(generation, report)) {
    // Raised, and not written yet: the word alone has the culprit.
    report.failure = failure;
    report.tag.generation = generation;
  }
  return to_status(report);
}

Status to_status(const ResetOutcome& outcome, const WaitRecord& record) {
  WaitReport report;
  if (outcome.result == SpinResult::kReady || !record.read(outcome.tag.generation, report))
    return Status::ok();
  return to_status(report);
}

}  // namespace slipstream::protocol
