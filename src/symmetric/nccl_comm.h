// NCCL communicators for the launchers, and an exchange over one. The serial path and nccl_region.h
// use them; an engine may bring its own communicator instead.
#pragma once

#include <memory>
#include <string>

#include "launch/exchange.h"
#include "slipstream/status.h"

struct ncclComm;  // ncclComm_t is a pointer to it

namespace slipstream {

// What `info` prints. Errors: kUnsupported when this build or this machine has no NCCL.
struct NcclInfo {
  int version = 0;  // 22809 is 2.28.9
  std::string path;
};
Result<NcclInfo> nccl_info();

class NcclComm {
 public:
  // Collective: one rank per GPU. All ranks meet in the exchange before NCCL, whose own waits have
  // no bound. Errors: kUnsupported (no NCCL; two ranks on one GPU), kBackendError.
  static Result<NcclComm> create(const Exchange& exchange, int rank, int num_ranks, int device);

  ncclComm* get() const { return comm_.get(); }

 private:
  explicit NcclComm(std::shared_ptr<ncclComm> comm) : comm_(std::move(comm)) {}
  std::shared_ptr<ncclComm> comm_;
};

// An exchange over the communicator's own GPUs, for engines that have nothing else. Messages up to
// 1 MB a rank; waits as NCCL waits. The communicator must outlive it.
Result<Exchange> nccl_exchange(ncclComm* comm);

}  // namespace slipstream
