#include "machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>

namespace slipstream::cli {

namespace {

// "MemTotal:       24737884 kB"
std::optional<std::int64_t> meminfo_bytes(std::string_view key) {
  std::ifstream stream("/proc/meminfo");
  std::string name;
  std::string rest;
  while (stream >> name) {
    std::int64_t kilobytes = 0;
    if (name == key && stream >> kilobytes) return kilobytes * 1024;
    std::getline(stream, rest);
  }
  return std::nullopt;
}

// A file that holds one number; control groups without a limit say "max" or a huge number.
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream stream(path);
  std::int64_t value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

struct ControlGroup {
  std::optional<std::int64_t> limit;
  std::optional<std::int64_t> used;
};

ControlGroup read_control_group() {
  ControlGroup group{number_in("/sys/fs/cgroup/memory.max"),
                     number_in("/sys/fs/cgroup/memory.current")};
  if (!group.limit) {
    group = {number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
             number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes")};
  }
  return group;
}

std::string cpu_name() {
  std::ifstream stream("/proc/cpuinfo");
  std::string line;
  while (std::getline(stream, line)) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

MachineInfo read_machine_info() {
  MachineInfo info;
  info.cpu = cpu_name();
  cpu_set_t cores;
  CPU_ZERO(&cores);
  info.num_cores = ::sched_getaffinity(0, sizeof(cores), &cores) == 0
                       ? CPU_COUNT(&cores)
                       : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  info.memory_bytes = meminfo_bytes("MemTotal:").value_or(::sysconf(_SC_PHYS_PAGES) * page_bytes);
  info.available_memory_bytes =
      meminfo_bytes("MemAvailable:").value_or(::sysconf(_SC_AVPHYS_PAGES) * page_bytes);
  const ControlGroup group = read_control_group();
  if (group.limit && *group.limit < info.memory_bytes) {
    info.memory_bytes = *group.limit;
    info.available_memory_bytes =
        std::min(info.available_memory_bytes,
                 std::max<std::int64_t>(0, *group.limit - group.used.value_or(0)));
  }
  return info;
}

}  // namespace slipstream::cli
