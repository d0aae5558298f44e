// Stock gate and done policies over the protocol's local counters.
//
//   Gate: `wait(item)`, by one thread of each token-producing warp before the item's first load.
//   Done: `counts()`, `arrive(item)`, by the storer after the item's rows are written.
#pragma once

#include "gemm/sm90_params.h"
#include "gemm/sm90_pipeline.cuh"
#include "protocol/failure.h"
#include "protocol/gate.h"
#include "protocol/spin.h"

namespace slipstream::sm90 {

// What TokenGate::wait() wants of a thread that has no Endpoint: an expiry raises the failure word,
// which ends all other waits too.
struct LocalSpin {
  const GateTables& tables;

  template <class Observe>
  __device__ protocol::SpinResult until(const protocol::WaitSite&, const Observe& observe) const {
    std::uint64_t last = 0;
    const auto failed = [this] { return tables.failure->relaxed_read().is_of(tables.generation); };
    const protocol::SpinResult result =
        protocol::spin_until(observe, failed, tables.timeout_ns, last);
    if (result == protocol::SpinResult::kTimeout) {
      tables.failure->relaxed_raise(
          protocol::Failure{tables.generation, -1, protocol::FailureReason::kTimeout});
    }
    return result;
  }
};

// Whatever the wait returns, the role goes on: after a failure on garbage, to its normal end.
class CounterGate {
 public:
  __device__ explicit CounterGate(const GateTables& tables) : tables_(tables) {}

  __device__ void wait(const WorkItem& item) const {
    if (tables_.gates == nullptr) return;
    const std::int32_t slack = tables_.slack == nullptr ? 0 : tables_.slack[item.tile];
    static_cast<void>(tables_.gates[item.tile].wait(
        static_cast<std::uint32_t>(item.num_rows + slack), LocalSpin{tables_}, item.tile));
  }

 private:
  const GateTables& tables_;
};

class CounterDone {
 public:
  __device__ explicit CounterDone(const DoneTables& tables) : tables_(tables) {}

  __device__ bool counts() const { return tables_.done != nullptr; }

  __device__ void arrive(const WorkItem& item) const {
    tables_.done[item.chunk * tables_.stride + item.tile].arrive();
  }

 private:
  const DoneTables& tables_;
};

}  // namespace slipstream::sm90
