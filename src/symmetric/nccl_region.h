// Symmetric memory over an NCCL communicator: a window of NCCL 2.28 or newer, whose peer pointers
// are resolved once, so that kernels see plain pointers and nothing of NCCL. Also communicators
// made from an Exchange, for the launchers. Other providers: cuda_region.h.
#pragma once

#include "launch/exchange.h"
#include "slipstream/status.h"
#include "symmetric/cuda_region.h"

struct ncclComm;  // ncclComm_t is a pointer to it

namespace slipstream {

// Collective over the communicator, which must outlive the region; its rank, size and device are
// the region's. Collective, too: the destruction of the last handle on each rank. Errors:
// kUnsupported (no NCCL, older than 2.28, or NCCL gives no device window because the GPUs do not
// reach each other), kInvalidArgument (number of ranks), kOutOfMemory, kBackendError.
Result<CudaRegion> create_nccl_region(const RegionShape& shape, ncclComm* comm,
                                      const Exchange& exchange);

}  // namespace slipstream
