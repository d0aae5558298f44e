// What the machine's GPUs are, how they reach each other, and how fast: for `slipstream info` and
// `info --probe`. Plain structs; this header is also good in builds without CUDA, where every
// function answers kUnsupported. The probe: cuda_probe.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "slipstream/status.h"

namespace slipstream {

struct CudaDeviceInfo {
  int device = 0;  // CUDA ordinal
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::string pci_bus_id;
  bool has_virtual_memory = false;     // what create_vmm_regions needs
  bool has_exportable_memory = false;  // what create_shared_region needs
};

// How device `from` reaches memory of device `to`.
struct PeerLink {
  bool can_access = false;
  bool has_native_atomics = false;  // we never rely on it; PCIe has not got it
  int performance_rank = -1;        // the driver's: 0 is best; -1 when it says nothing
};

struct CudaTopology {
  int driver_version = 0;  // 13000 is CUDA 13.0
  int runtime_version = 0;
  std::vector<CudaDeviceInfo> devices;
  std::vector<std::vector<PeerLink>> links;  // [from][to]; the diagonal is a device and itself

  // True when the ranks of one group may use any of the devices.
  bool all_reachable() const {
    for (const auto& row : links)
      for (const PeerLink& link : row)
        if (!link.can_access) return false;
    return true;
  }
};

// Makes a context on every device. Errors: kUnsupported without a GPU, a driver or CUDA in the
// build.
Result<CudaTopology> query_cuda_topology();

// Pattern self-test between all GPUs, one rank on each, `bytes_per_rank` of memory each. Errors:
// those of create_vmm_regions(); at most kMaxRanks GPUs are tested.
Status self_test_devices(std::int64_t bytes_per_rank = 64 << 20);

inline constexpr std::array<int, 4> kProbeBlocks = {2, 4, 8, 16};

// Payload bytes over time, GB/s (1e9), with kProbeBlocks[i] blocks on `from` that move bulk copies
// of 8 KB. The `both` ones are one direction's rate while the other GPU does the same.
struct ProbeRates {
  using ByBlocks = std::array<double, kProbeBlocks.size()>;
  ByBlocks push = {};   // shared memory of `from` -> memory of `to`
  ByBlocks pull = {};   // memory of `to` -> shared memory of `from`
  ByBlocks fetch = {};  // memory of `to` -> shared memory -> memory of `from`
  ByBlocks push_both = {};
  ByBlocks pull_both = {};
  ByBlocks fetch_both = {};
};

struct LinkProbe {
  int from = 0;
  int to = 0;
  ProbeRates rates;
  double ping_pong_us = 0;  // a signal there and one back
};

// Measures the link between two devices, or a device with itself; takes about a fifth of a second
// and 256 MB on each. Errors: kInvalidArgument (no such device), kUnsupported (no access, no GPU),
// kOutOfMemory, kTimeout (a signal got lost), kBackendError (anything else that CUDA says).
Result<LinkProbe> probe_link(int from, int to);

}  // namespace slipstream
