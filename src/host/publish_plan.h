// The first launch of a call: one block puts the rank's tokens and routing where its peers can read
// them, says so, waits for theirs, and turns all ranks' routing into this rank's tables.
// Next: gather_gate_up.h.
#pragma once

#include "host/call.h"
#include "protocol/protocol.h"

namespace slipstream::host {

// Waits for nobody.
void publish_inputs(HostCall& call, const protocol::SpinContext& spin);

// Waits for every peer's inputs. Afterwards call.is_accepted, or call.call_error (signature or ids;
// the same on every rank), or the group has failed.
void plan(HostCall& call, const protocol::SpinContext& spin);

}  // namespace slipstream::host
