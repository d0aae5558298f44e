// The protocol's headers under nvcc. The first part pins what each primitive emits: the comment
// above a kernel lists its ordered and atomic memory instructions in sequence, and check_ptx.py
// compares. Plain loads and stores are not listed. The second part only has to compile: waits, a
// call, a reset.
#include "protocol/protocol.h"

using namespace slipstream::protocol;

// ptx: st.release.sys.b64
extern "C" __global__ void slot_publish(SlotSignal* slot, Tag tag) { slot->publish(tag); }

// ptx: ld.acquire.sys.b64
extern "C" __global__ void slot_poll(const SlotSignal* slot, Tag tag, bool* ready) {
  *ready = slot->poll(tag);
}

// ptx: st.relaxed.sys.b64
extern "C" __global__ void status_report(StatusSlot* slot, Failure failure) {
  slot->relaxed_report(failure);
}

// ptx: ld.relaxed.sys.b64
extern "C" __global__ void status_read(const StatusSlot* slot, Failure* failure) {
  *failure = slot->relaxed_read();
}

// ptx: ld.relaxed.gpu.b64 atom.cas.relaxed.gpu.b64
extern "C" __global__ void failure_raise(FailureWord* word, Failure failure, bool* first) {
  *first = word->relaxed_raise(failure);
}

// ptx: st.release.sys.b64
extern "C" __global__ void record_publish(WaitRecord* record, const WaitReport* report) {
  record->publish(*report);
}

// ptx: atom.add.release.gpu.u32
extern "C" __global__ void token_gate_arrive(TokenGate* gate) { gate->arrive(2); }

// ptx: ld.acquire.gpu.b32
extern "C" __global__ void token_gate_poll(const TokenGate* gate, GateState* state) {
  *state = gate->poll(7);
}

// ptx: atom.or.release.gpu.b32
extern "C" __global__ void token_gate_open(TokenGate* gate) { gate->open(); }

// ptx: atom.add.release.gpu.u32
extern "C" __global__ void tile_done_arrive(TileDone* tile) { tile->arrive(); }

// ptx: ld.acquire.gpu.b32
extern "C" __global__ void tile_done_poll(const TileDone* tile, GateState* state) {
  *state = tile->poll(1);
}

// ptx: atom.add.acq_rel.gpu.u32
extern "C" __global__ void election_arrive(Election* election, bool* elected) {
  *elected = election->arrive(7);
}

// ptx: ld.relaxed.gpu.b64 atom.add.relaxed.gpu.u64
extern "C" __global__ void dispenser_take(Dispenser* dispenser, std::int64_t* ticket) {
  *ticket = dispenser->relaxed_take(7);
}

// ptx: ld.acquire.gpu.b64 ld.relaxed.gpu.b32
extern "C" __global__ void clock_now(const CallClock* clock, Tag* tag) { *tag = clock->now(); }

// ptx: atom.add.acq_rel.gpu.u64 atom.add.relaxed.gpu.u64
extern "C" __global__ void clock_leave(CallClock* clock, bool* last) { *last = clock->leave(7); }

// One call of one block, a lane a peer: every function of call.h.
extern "C" __global__ void call(const __grid_constant__ Endpoint endpoint, TokenGate* gates,
                                TileDone* tiles, SpinResult* results) {
  const SpinContext spin = begin_call(endpoint, static_cast<int>(blockIdx.x));
  const auto peer = static_cast<std::int32_t>(threadIdx.x);
  publish_inputs(spin, peer);
  results[0] = wait_inputs(spin, peer);
  results[1] = gates[blockIdx.x].wait(16, spin, 0);
  results[2] = tiles[blockIdx.x].wait(1, spin, 0);
  publish_watermark(spin, peer, 0, 8);
  results[3] = wait_watermark(spin, peer, 0);
  results[4] = exchange_rejection(spin);
  endpoint.state->clock.leave(gridDim.x);
}

extern "C" __global__ void reset(const __grid_constant__ Endpoint endpoint, ResetOutcome* outcome) {
  *outcome = collective_reset(endpoint);
}
