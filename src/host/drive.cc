#include "host/drive.h"

#include <thread>

#include "host/down_reduce_push.h"
#include "host/final_reduce.h"
#include "host/gather_gate_up.h"
#include "host/publish_plan.h"

namespace slipstream::host {

using protocol::SpinContext;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double& phase_of(PhaseTimes& times, int launch) {
  switch (launch) {
    case kPublishPlan: return times.publish_plan;
    case kGatherGateUp: return times.gather_gate_up;
    case kDownReducePush: return times.down_reduce_push;
    default: return times.final_reduce;
  }
}

Status result_of(const HostCall& call) {
  Status group_error = call.rank.group_error();
  return group_error.is_ok() ? call.call_error : group_error;
}

class CallLaunches : public Launches {
 public:
  CallLaunches(HostCall& call, PhaseTimes& times) : call_(call), times_(times) {}

  int num_launches() const override { return kNumLaunches; }
  std::int64_t num_blocks(int launch) const override {
    return launch == kPublishPlan ? 1 : call_.num_blocks;
  }

  void run_block(int launch, std::int64_t ticket) override {
    const Stall& stall = call_.rank.stall;
    if (launch == stall.launch) std::this_thread::sleep_for(stall.duration);
    const SpinContext spin =
        protocol::begin_call(call_.rank.endpoint, static_cast<std::int32_t>(ticket));
    switch (launch) {
      case kPublishPlan:
        publish_inputs(call_, spin);
        plan(call_, spin);
        break;
      case kGatherGateUp: gather_gate_up(call_, spin, ticket); break;
      case kDownReducePush: down_reduce_push(call_, spin, ticket); break;
      case kFinalReduce:
        final_reduce(call_, spin, ticket);
        leave_call(call_, spin, ticket);
        break;
      default: break;
    }
  }

  void launch_done(int launch) override {
    phase_of(times_, launch) = seconds_since(launch_begin_);
    launch_begin_ = Clock::now();
  }

 private:
  HostCall& call_;
  PhaseTimes& times_;
  Clock::time_point launch_begin_ = Clock::now();
};

}  // namespace

Status run_with_threads(HostCall& call, PhaseTimes& times) {
  CallLaunches launches(call, times);
  call.rank.launcher.run(launches);
  return result_of(call);
}

Status SequentialMeeting::run(HostCall& call, PhaseTimes& times) {
  std::unique_lock lock(mutex_);
  // A peer may have given up on this rank before it came.
  if (protocol::begin_call(call.rank.endpoint, 0).failed()) return result_of(call);
  calls_[static_cast<std::size_t>(call.my_rank())] = Guest{&call, &times};
  if (++num_come_ == call.num_ranks()) {
    drive();
  } else {
    const std::int64_t meeting_idx = meeting_idx_;
    const std::uint64_t limit_ns = call.rank.endpoint.remote_limit_ns;
    const bool is_over = changed_.wait_for(lock, std::chrono::nanoseconds(limit_ns),
                                           [&] { return meeting_idx_ != meeting_idx; });
    if (!is_over) give_up(limit_ns);
  }
  return result_of(call);
}

// Every stage of every rank before the next stage of any: each wait finds what it waits for, so the
// limits are zero and one that does not is a defect of ours.
void SequentialMeeting::drive() {
  for (Guest& guest : calls_) {
    guest.call->rank.endpoint.remote_limit_ns = 0;
    guest.call->rank.endpoint.local_limit_ns = 0;
  }
  const auto for_all = [&](int launch, const auto& role) {
    for (Guest& guest : calls_) {
      const Clock::time_point begin = Clock::now();
      role(*guest.call, protocol::begin_call(guest.call->rank.endpoint, 0));
      phase_of(*guest.times, launch) += seconds_since(begin);
    }
  };
  for_all(kPublishPlan,
          [](HostCall& call, const SpinContext& spin) { publish_inputs(call, spin); });
  for_all(kPublishPlan, [](HostCall& call, const SpinContext& spin) { plan(call, spin); });
  for_all(kGatherGateUp,
          [](HostCall& call, const SpinContext& spin) { gather_gate_up(call, spin, 0); });
  for_all(kDownReducePush,
          [](HostCall& call, const SpinContext& spin) { down_reduce_push(call, spin, 0); });
  for_all(kFinalReduce, [](HostCall& call, const SpinContext& spin) {
    final_reduce(call, spin, 0);
    leave_call(call, spin, 0);
  });
  for (Guest& guest : calls_) guest = Guest{};
  num_come_ = 0;
  ++meeting_idx_;
  changed_.notify_all();
}

// The group fails for all that came, naming the lowest rank that did not.
void SequentialMeeting::give_up(std::uint64_t limit_ns) {
  std::int32_t missing = 0;
  while (calls_[static_cast<std::size_t>(missing)].call != nullptr) ++missing;
  for (Guest& guest : calls_) {
    if (guest.call == nullptr) continue;
    const SpinContext spin = protocol::begin_call(guest.call->rank.endpoint, 0);
    protocol::WaitReport report;
    report.failure = {spin.tag.generation, missing, protocol::FailureReason::kTimeout};
    report.site = {protocol::Primitive::kPublished, missing, 0, spin.tag.packed()};
    report.observed = spin.endpoint->mine().published[missing].observe().packed();
    report.limit_ns = limit_ns;
    report.tag = spin.tag;
    report.rank = spin.rank();
    spin.fail(report);
    guest = Guest{};
  }
  num_come_ = 0;
  ++meeting_idx_;
  changed_.notify_all();
}

}  // namespace slipstream::host
