// What launchers say about ranks: the sentences are the same for threads and processes, and made
// here once. Used inside launch/ only.
#pragma once

#include <string_view>
#include <vector>

#include "slipstream/status.h"

namespace slipstream {

// Errors: kInvalidArgument unless 1 <= num_ranks <= kMaxRanks.
Status check_num_ranks(int num_ranks);

// `status` with `rank` as its culprit where it names none.
Status with_culprit(const Status& status, int rank);

enum class RankPresence { kWaiting, kElsewhere, kNeverJoined };

// kTimeout: names every rank that is not waiting; the first of them is the culprit.
Status error_of_missing_ranks(std::string_view tag, const std::vector<RankPresence>& presence);

// kInvalidArgument: `rank` came with `tag`, `other` waits with `other_tag`.
Status error_of_differing_tags(int rank, std::string_view tag, int other,
                               std::string_view other_tag);

// kPeerFailed: `why` is the rank's own error where it is known, else ok.
Status error_of_rank_that_left(int rank, const Status& why);

}  // namespace slipstream
