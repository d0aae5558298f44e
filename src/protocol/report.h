// Failures of the protocol as Status. Host only.
#pragma once

#include <string_view>

#include "protocol/failure.h"
#include "protocol/reset.h"
#include "slipstream/status.h"

namespace slipstream::protocol {

// "published", "watermark", "token_gate", ...: as they appear in messages and JSON.
std::string_view to_string(Primitive primitive);

// kTimeout or kPeerFailed (kBackendError for a reason of that name): names the primitive, who
// waited, what was expected and observed, and the culprit.
Status to_status(const WaitReport& report);

// The group error of this generation as the next calls return it, or ok. `failure` is the rank's
// FailureWord as the host read it; `record` adds the wait, where it was written.
Status group_status(const Failure& failure, const WaitRecord& record, std::uint32_t generation);

// What collective_reset came to: ok, or kTimeout with the rank that did not come.
Status to_status(const ResetOutcome& outcome, const WaitRecord& record);

}  // namespace slipstream::protocol
