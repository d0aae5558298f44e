// slipstream info: machine, GPUs, build. What a bug report should begin with.
#include <fmt/format.h>

#include "commands.h"
#include "gpu_links.h"
#include "machine.h"
#include "output.h"
#include "version.h"

namespace slipstream::cli {

namespace {

Json to_json(const GpuInfo& gpu) {
  Json json;
  json["name"] = gpu.name;
  json["capability"] = fmt::format("{}.{}", gpu.capability_major, gpu.capability_minor);
  json["sms"] = gpu.num_sms;
  json["memory_bytes"] = gpu.memory_bytes;
  json["l2_bytes"] = gpu.l2_bytes;
  return json;
}

}  // namespace

Result<int> cmd_info(const OptionValues& options) {
  const MachineInfo machine = read_machine_info();
  const GpuList list = list_gpus();
  const std::optional<GpuLinks> links = read_gpu_links(options.flag("probe"));
  if (options.flag("json")) {
    Json json;
    json["command"] = "info";
    json["machine"] = {{"cpu", machine.cpu},
                       {"cores", machine.num_cores},
                       {"memory_bytes", machine.memory_bytes},
                       {"available_memory_bytes", machine.available_memory_bytes}};
    json["gpus"] = Json::array();
    for (const GpuInfo& gpu : list.gpus) json["gpus"].push_back(to_json(gpu));
    json["gpus_note"] = list.gpus.empty() ? Json("no GPU: " + list.why_none) : Json();
    if (links) json["gpu_links"] = to_json(*links);
    json["build"] = {{"version", kVersion},
                     {"source", kSourceVersion},
                     {"compiler", kCompiler},
                     {"type", kBuildType},
                     {"cuda", cuda_version_text()}};
    print_json(json);
    return kExitOk;
  }
  fmt::print("machine  {}, {} cores, {} of memory, {} available\n", machine.cpu, machine.num_cores,
             human_bytes(machine.memory_bytes), human_bytes(machine.available_memory_bytes));
  if (list.gpus.empty()) fmt::print("GPUs     no GPU: {}\n", list.why_none);
  for (const GpuInfo& gpu : list.gpus) {
    fmt::print("GPU      {}, sm_{}{}, {} SMs, {} of memory, {} L2\n", gpu.name,
               gpu.capability_major, gpu.capability_minor, gpu.num_sms,
               human_bytes(gpu.memory_bytes), human_bytes(gpu.l2_bytes));
  }
  if (links) print_gpu_links(*links);
  fmt::print("build    slipstream {} ({}), {}, {}, CUDA {}\n", kVersion, kSourceVersion, kCompiler,
             kBuildType, cuda_version_text());
  return kExitOk;
}

}  // namespace slipstream::cli
