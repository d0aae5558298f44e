// Launcher of ranks as processes: one per GPU, as engines run. Either forks them, or takes its
// place among the ones that torchrun has started.
//
// Fork comes BEFORE CUDA: a child cannot use a CUDA context that its parent made, so call this
// before the first CUDA call of the process (checked).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launch/exchange.h"
#include "slipstream/status.h"

namespace slipstream {

// What torchrun (and others that follow it) put into the environment of a rank.
struct RankEnvironment {
  int rank = 0;                           // RANK
  int num_ranks = 1;                      // WORLD_SIZE
  int local_rank = 0;                     // LOCAL_RANK, RANK where absent
  std::string master_addr = "127.0.0.1";  // MASTER_ADDR
  std::uint16_t master_port = 29500;      // MASTER_PORT
};

// Empty when neither RANK nor WORLD_SIZE is set. Errors: kInvalidArgument for one without the other
// and for a value that is no number or outside its range.
Result<std::optional<RankEnvironment>> rank_environment();

struct ProcessOptions {
  int num_ranks = 1;
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  // of every wait in an exchange
  std::uint16_t port = 0;  // of the rendezvous when forking; 0 takes any free one
  // After the first failure the others have this long to end by themselves, then as long again
  // after SIGTERM; then they get SIGKILL.
  std::chrono::milliseconds grace = std::chrono::seconds(2);
};

// Without rank_environment(): forks num_ranks processes, runs body(context) in each and waits for
// all. Returns in the parent only: ok, or the error that caused the end. A child that is killed, or
// exits without finishing its body, is kPeerFailed and named with its signal or exit code. Children
// die with their parent.
//
// With rank_environment(): runs body in this process, as that rank. Rank 0 serves the rendezvous on
// the first free port of the 16 from MASTER_PORT (the next one where torchrun's agent has it).
//
// Errors besides the bodies': kInvalidArgument (number of ranks; it differs from WORLD_SIZE),
// kUnsupported (CUDA is already in use here), kBackendError (the port is taken, fork fails).
Status launch_processes(const ProcessOptions& options, const RankBody& body);

}  // namespace slipstream
