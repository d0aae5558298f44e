// Group errors, as words in memory: the rank's own sticky failure, the status slots in which ranks
// tell each other, and the record that says what was waited for. SpinContext::fail (endpoint.h)
// writes all three in the right order. Next: endpoint.h.
#pragma once

#include <cstdint>

#include "protocol/atomic.h"
#include "protocol/mutation.h"
#include "protocol/spin.h"
#include "protocol/tag.h"
#include "slipstream/config.h"

namespace slipstream::protocol {

enum class FailureReason : std::uint8_t {
  kNone = 0,
  kTimeout = 1,       // a wait of this rank ran out of time
  kPeerFailed = 2,    // a peer reported its failure
  kBackendError = 3,  // launch, copy or thread of this rank failed
};

// A group error of one generation: whose fault, and what kind. It fits a 64-bit word.
struct Failure {
  std::uint32_t generation = kNoGeneration;
  std::int32_t culprit = -1;  // rank, -1 when nobody knows
  FailureReason reason = FailureReason::kNone;

  SLIPSTREAM_HD constexpr bool is_of(std::uint32_t current) const {
    return reason != FailureReason::kNone && generation == current;
  }
  SLIPSTREAM_HD constexpr std::uint64_t packed() const {
    return std::uint64_t{generation} << 32 |
           std::uint64_t{static_cast<std::uint8_t>(culprit + 1)} << 8 |
           std::uint64_t{static_cast<std::uint8_t>(reason)};
  }
  SLIPSTREAM_HD static constexpr Failure unpacked(std::uint64_t word) {
    return Failure{static_cast<std::uint32_t>(word >> 32),
                   static_cast<std::int32_t>((word >> 8) & 0xff) - 1,
                   static_cast<FailureReason>(word & 0xff)};
  }
};

// The sticky failure of one rank, in its own memory.
//
// Writers: any thread of the rank; the first of a generation wins.
// Readers: any thread of the rank: in every spin, at the start of a call, before every publish.
// Order and scope: device scope, relaxed: the word is the whole message. A thread that runs on
//   garbage still sees it before it publishes: whoever let garbage through had seen the word set
//   (or passed a gate opened after it), and every join up to the publish carries that along.
// Reset: never. A new generation makes an old failure invisible.
// Wrap: a failure of exactly 2^32 resets ago would be seen again.
// Timeout: nobody waits for it.
class FailureWord {
 public:
  // True for the one thread that set it: the only one to write the record and to tell the peers.
  SLIPSTREAM_HD bool relaxed_raise(Failure failure) {
    std::uint64_t seen = word_.load(kRelaxed);
    while (!Failure::unpacked(seen).is_of(failure.generation)) {
      if (word_.compare_exchange(seen, failure.packed(), kRelaxed)) return true;
    }
    return mutated(Mutation::kFailureRecordLastWins);
  }
  SLIPSTREAM_HD Failure relaxed_read() const { return Failure::unpacked(word_.load(kRelaxed)); }

 private:
  Word<std::uint64_t, Scope::kDevice> word_;
};

// status[p]@q: p tells q that the group has failed.
//
// Writers: rank p only, the thread that raised p's failure.
// Readers: any thread of rank q, while it spins and at the start of a call.
// Order and scope: system scope, relaxed: the word is the whole message, nothing is read on its
// word. Reset: never. Wrap: like FailureWord. Timeout: nobody waits for it.
class StatusSlot {
 public:
  SLIPSTREAM_HD void relaxed_report(Failure failure) { word_.store(failure.packed(), kRelaxed); }
  SLIPSTREAM_HD Failure relaxed_read() const { return Failure::unpacked(word_.load(kRelaxed)); }

 private:
  Word<std::uint64_t, Scope::kSystem> word_;
};

// What the failing thread was waiting for.
struct WaitReport {
  Failure failure;
  WaitSite site;
  std::uint64_t observed = 0;
  std::uint64_t limit_ns = 0;
  Tag tag;                     // the call
  std::int32_t rank = -1;      // who waited
  std::int32_t block = -1;     // which block or thread of it
  std::int32_t reporter = -1;  // kPeerFailed: the peer that told us
};

// One report a generation, in host memory (pinned, on a GPU): readable while the GPU is wedged.
//
// Writers: the thread that raised the rank's failure. The race for it is decided on FailureWord, in
//   the rank's own memory: PCIe promises no atomics on host memory.
// Readers: the host, any time.
// Order and scope: the mark is released at system scope after the report and acquired before it.
// Reset: never; the mark carries the generation.
// Wrap: like FailureWord.
// Timeout: nobody waits for it.
class WaitRecord {
 public:
  SLIPSTREAM_HD void publish(const WaitReport& report) {
    report_ = report;
    mark_.store(mark_of(report.failure.generation),
                order_unless(Mutation::kRecordPublishRelaxed, kRelease));
  }
  // False, and `report` untouched, when no wait of this generation failed.
  SLIPSTREAM_HD bool read(std::uint32_t generation, WaitReport& report) const {
    if (mark_.load(order_unless(Mutation::kRecordReadRelaxed, kAcquire)) != mark_of(generation))
      return false;
    report = report_;
    return true;
  }

 private:
  static constexpr std::uint64_t kWritten = 1;
  SLIPSTREAM_HD static constexpr std::uint64_t mark_of(std::uint32_t generation) {
    return std::uint64_t{generation} << 32 | kWritten;
  }

  Word<std::uint64_t, Scope::kSystem> mark_;
  WaitReport report_;
};

}  // namespace slipstream::protocol
