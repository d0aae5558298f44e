// Mutations: each ordering and each step of the protocol can be taken away at compile time, one at
// a time, so that tests prove they would notice. They act on the SHIPPED headers: there is no
// second copy of the protocol that could drift away from the first.
//
// A build sets -DSLIPSTREAM_MUTATE=kElectionRelaxed (one name of the list, at most one). Without it
// every mutated(...) is a constant false and folds away. Who uses it: protocol/ for primitives,
// role code (fused/, host/) for the steps that live there; tests/cpu/protocol/mutations.json says
// which test catches which. Never set it in a build that anybody else uses.
#pragma once

#include "protocol/atomic.h"

#ifndef SLIPSTREAM_MUTATE
#define SLIPSTREAM_MUTATE kNone
#endif

namespace slipstream::protocol {

enum class Mutation {
  kNone,

  // Orders: release, acquire or both taken away.
  kSlotPublishRelaxed,
  kSlotWaitRelaxed,
  kGateArriveRelaxed,
  kGateWaitRelaxed,
  kGateOpenRelaxed,
  kTileDoneRelaxed,
  kTileWaitRelaxed,
  kElectionReleaseOnly,
  kElectionAcquireOnly,
  kElectionRelaxed,
  kLeaveReleaseOnly,
  kLeaveAcquireOnly,
  kEpochReadRelaxed,
  kRecordPublishRelaxed,
  kRecordReadRelaxed,

  // Steps inside the primitives.
  kTagCompareNotWrapSafe,        // epochs compared as plain unsigned numbers
  kTagCompareIgnoresGeneration,  // a signal of before the reset counts
  kSlotReset,                    // a wait consumes the signal
  kWatermarkWithoutRefresh,      // slots of unused chunks keep an epoch of 2^31 calls ago
  kEpochByFirstLeaver,           // the epoch advances while others are still in the call
  kDispenserUnbounded,           // asking after the end counts on
  kSpinWithoutDeadline,
  kSpinWithoutAbort,          // a spin does not look at the group's failure
  kFailureWithoutGates,       // a failed rank leaves its gates closed
  kFailureWithoutStatus,      // a failed rank does not tell its peers
  kFailureRecordLastWins,     // every thread that fails writes the record
  kPublishAfterFailure,       // a rank that runs on garbage signals that its data is good
  kCallErrorWithoutExchange,  // a rejected call skips the watermarks
  kResetLocal,                // a rank resets without waiting for its peers
  kResetKeepsGeneration,      // epochs start again in the same generation

  // Steps of the roles: the flag is tested in role code.
  kRoleMissingCompletionWait,  // arrive before one's own stores are complete
  kRoleMissingNullJob,         // an owner without tokens gets no job
  kRoleTokensAsElectionCount,  // T_r instead of owner_num_jobs
  kRoleEarlyPublish,           // inputs published before they are written
  kRoleEarlyWatermark,         // watermark written before the election
  kRoleInPlaceWithoutOrder,    // tokens of call n+1 written before call n is done
  kRoleEpochByElected,         // the elected of the final reduce advances the epoch
  kRoleReaderWithoutAcquire,   // one thread waits for a peer's signal, another reads its data
  kRoleReaderNotJoined,        // a peer's routing read by a thread that no election joins
  kRoleLeaveWithoutFinalWait,  // a call ends without every peer's watermarks
  kRoleExitOnFailure,          // a role returns at its first aborted wait: no arrivals
  kRoleFailureKeepsEpoch,      // the last leaver of a failed call does not advance the epoch
};

inline constexpr Mutation kMutation = Mutation::SLIPSTREAM_MUTATE;

SLIPSTREAM_HD constexpr bool mutated(Mutation mutation) { return kMutation == mutation; }

// The order of a step: `weaker` in the one build that mutates it.
SLIPSTREAM_HD constexpr MemoryOrder order_unless(Mutation mutation, MemoryOrder order,
                                                 MemoryOrder weaker = kRelaxed) {
  return mutated(mutation) ? weaker : order;
}

}  // namespace slipstream::protocol
