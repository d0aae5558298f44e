// protocol/: who may touch what, when. One source for host and device. Read in this order:
//
//   atomic.h      value, scope, order              tag.h        generation and epoch
//   slot_signal.h rank to rank                     watermark.h  a slot per chunk
//   gate.h        thread to thread, counted        election.h   the last one speaks for all
//   dispenser.h   work and roles                   call_clock.h the last one out advances the epoch
//   spin.h        the only spin                    failure.h    group errors as words
//   endpoint.h    where the words are              call.h       a call, as roles spell it
//   reset.h       out of a group error             report.h     failures as Status (host)
//
// docs/protocol.md has the state diagrams, the argument why no barrier is needed, and the table of
// orders and scopes; mutation.h the flags by which tests take each of them away.
#pragma once

#include "protocol/call.h"         // IWYU pragma: export
#include "protocol/call_clock.h"   // IWYU pragma: export
#include "protocol/dispenser.h"    // IWYU pragma: export
#include "protocol/election.h"     // IWYU pragma: export
#include "protocol/endpoint.h"     // IWYU pragma: export
#include "protocol/failure.h"      // IWYU pragma: export
#include "protocol/gate.h"         // IWYU pragma: export
#include "protocol/reset.h"        // IWYU pragma: export
#include "protocol/slot_signal.h"  // IWYU pragma: export
#include "protocol/tag.h"          // IWYU pragma: export
#include "protocol/watermark.h"    // IWYU pragma: export
