// Launcher of ranks as threads of this process: the CLI's default, and the form in which several
// ranks share one GPU. Read processes.h for ranks as processes.
#pragma once

#include <chrono>

#include "launch/exchange.h"
#include "slipstream/status.h"

namespace slipstream {

// Runs body(context) for every rank on a thread of its own and waits for all. Returns ok, or the
// error that came first, with its rank as the culprit where the error names none. A rank that
// returns releases those who wait for it in an exchange with kPeerFailed; a wait ends after
// `timeout`. Errors besides the bodies': kInvalidArgument unless 1 <= num_ranks <= kMaxRanks.
Status launch_threads(int num_ranks, const RankBody& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace slipstream
