// The machine as the commands need to know it: processor, memory that a process may use, GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slipstream::cli {

struct MachineInfo {
  std::string cpu;                          // model name, or "unknown"
  int num_cores = 1;                        // that this process may run on
  std::int64_t memory_bytes = 0;            // of the machine, or of the control group if smaller
  std::int64_t available_memory_bytes = 0;  // that can be allocated without swapping
};

MachineInfo read_machine_info();

struct GpuInfo {
  std::string name;
  int num_sms = 0;
  int capability_major = 0;
  int capability_minor = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
};

struct GpuList {
  std::vector<GpuInfo> gpus;
  std::string why_none;  // "this build has no CUDA", or what the CUDA runtime says
};

GpuList list_gpus();

std::string cuda_version_text();  // of the toolkit this was built with, or "none"

}  // namespace slipstream::cli
