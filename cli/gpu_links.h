// What `slipstream info` says about the GPUs as a group: who reaches whom, which providers of
// symmetric memory there are, the self-test, and with --probe how fast the links are.
#pragma once

#include <optional>
#include <vector>

#include "output.h"
#include "symmetric/cuda_topology.h"
#include "symmetric/nccl_comm.h"

namespace slipstream::cli {

struct GpuLinks {
  CudaTopology topology;
  Status self_test;
  Result<NcclInfo> nccl;
  std::vector<Result<LinkProbe>> probes;  // of every pair, with --probe
};

// Empty where there is no GPU, which the list of GPUs has said.
std::optional<GpuLinks> read_gpu_links(bool with_probe);

Json to_json(const GpuLinks& links);
void print_gpu_links(const GpuLinks& links);

}  // namespace slipstream::cli
