// The last launch of a call: when a peer's partial sums of a column chunk are there, add the planes
// up and write the output. Next: drive.h, which strings the launches together.
#pragma once

#include <cstdint>

#include "host/call.h"
#include "protocol/protocol.h"

namespace slipstream::host {

// One block, from its arrival ticket to its end. Must be followed by leave_call.
void final_reduce(HostCall& call, const protocol::SpinContext& spin, std::int64_t ticket);

// A block's last act in the call. The last one to leave advances the epoch.
void leave_call(HostCall& call, const protocol::SpinContext& spin, std::int64_t ticket);

}  // namespace slipstream::host
