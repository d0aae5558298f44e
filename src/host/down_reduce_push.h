// Kernel 2: down GEMM + top-k reduction + push. Blocks compute (chunk, tile)s and, as soon as all
// of a token's are done, sum its rows and push the sum to the token's owner. Next: final_reduce.h.
#pragma once

#include <cstdint>

#include "host/call.h"
#include "protocol/protocol.h"

namespace slipstream::host {

// One block, from its arrival ticket to its end.
void down_reduce_push(HostCall& call, const protocol::SpinContext& spin, std::int64_t ticket);

}  // namespace slipstream::host
