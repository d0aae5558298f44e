// Exchange of file descriptors between the processes of a group: how memory of one process is
// mapped by the others. Called by the symmetric memory provider that needs no NCCL.
#pragma once

#include <chrono>
#include <vector>

#include "launch/exchange.h"
#include "launch/socket.h"
#include "slipstream/status.h"

namespace slipstream {

// Gives `fd` to every rank and returns theirs, [W] by rank; the own entry is a duplicate.
// Collective, among processes of one host. Errors: those of the exchange, kTimeout naming the rank
// whose descriptor did not come, kBackendError.
Result<std::vector<UniqueFd>> exchange_fds(const Exchange& exchange, int rank, int num_ranks,
                                           int fd, std::chrono::milliseconds timeout);

}  // namespace slipstream
