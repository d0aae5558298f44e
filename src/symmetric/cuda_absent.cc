// What a build without CUDA answers. The functions are those of cuda_topology.h.
#include "symmetric/cuda_topology.h"

namespace slipstream {

namespace {

Status no_cuda() {
  return Status(StatusCode::kUnsupported, Subsystem::kSymmetric,
                {.what = "CUDA",
                 .observed = "not in this build",
                 .expected = "a build with the CUDA toolkit",
                 .hint = "configure with -DSLIPSTREAM_CUDA=ON, or use --backend host"});
}

}  // namespace

Result<CudaTopology> query_cuda_topology() { return no_cuda(); }

Status self_test_devices(std::int64_t) { return no_cuda(); }

Result<LinkProbe> probe_link(int, int) { return no_cuda(); }

}  // namespace slipstream
