// What a build without nccl.h answers. The functions are those of nccl_comm.h and nccl_region.h.
#include "symmetric/nccl_comm.h"
#include "symmetric/nccl_region.h"

namespace slipstream {

namespace {

Status no_nccl() {
  return Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                {.what = "NCCL",
                 .observed = "not in this build: nccl.h was not found",
                 .expected = "NCCL 2.28 or newer at build time",
                 .hint = "use the threads launcher, or create_shared_region()"});
}

}  // namespace

Result<NcclInfo> nccl_info() { return no_nccl(); }

Result<NcclComm> NcclComm::create(const Exchange&, int, int, int) { return no_nccl(); }

Result<Exchange> nccl_exchange(ncclComm*) { return no_nccl(); }

Result<CudaRegion> create_nccl_region(const RegionShape&, ncclComm*, const Exchange&) {
  return no_nccl();
}

}  // namespace slipstream
