// Exchange: the one collective that creation needs. Every rank gives some bytes and gets
// everybody's. Handles, unique ids and verdicts travel by it; no data of a call ever does.
//
// Made by launch_threads() and launch_processes(); taken by the symmetric memory providers. Read
// threads.h or processes.h next.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "slipstream/status.h"

namespace slipstream {

// exchange(tag, bytes) returns [W] byte strings, by rank. Collective: every rank of the group calls
// it with the same sequence of tags. It is a barrier, too: it returns after every rank has called.
// Errors: kTimeout naming a rank that did not come, kPeerFailed naming one that left,
// kInvalidArgument when ranks call with different tags. After an error it stays in error.
using Exchange =
    std::function<Result<std::vector<std::string>>(std::string_view tag, std::string_view bytes)>;

// What the body of a rank gets from a launcher.
struct RankContext {
  int rank = 0;
  int num_ranks = 1;
  int local_rank = 0;  // index on this host: the natural choice of a device, modulo their number
  Exchange exchange;
};

// The whole work of one rank.
using RankBody = std::function<Status(const RankContext&)>;

// Every rank leaves with the same verdict: its own error, else the error of the lowest rank that
// has one. Collective. Without it, a rank that failed alone would leave the others waiting.
Status agree(const Exchange& exchange, int rank, std::string_view tag, const Status& mine);

// A Status as bytes and back: for pipes and exchanges between processes of one build. Bytes that
// are cut or too long come back as kInternal.
std::string pack_status(const Status& status);
Status unpack_status(std::string_view bytes);

}  // namespace slipstream
