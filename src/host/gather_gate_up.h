// Kernel 1: AllGather + gate/up GEMM + SwiGLU. Its first blocks fetch tokens, in the order in which
// the GEMM wants them; the others compute tiles whose rows have arrived. Next: down_reduce_push.h.
#pragma once

#include <cstdint>

#include "host/call.h"
#include "protocol/protocol.h"

namespace slipstream::host {

// One block, from its arrival ticket to its end.
void gather_gate_up(HostCall& call, const protocol::SpinContext& spin, std::int64_t ticket);

}  // namespace slipstream::host
