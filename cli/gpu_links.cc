// Peer matrix, providers, self-test and probe, as text and as JSON.
#include "gpu_links.h"

#include <fmt/format.h>

#include <span>

namespace slipstream::cli {

namespace {

// A GPU alone is probed against itself: folded ranks move data that way.
std::vector<Result<LinkProbe>> probe_pairs(int num_devices) {
  std::vector<Result<LinkProbe>> probes;
  if (num_devices == 1) probes.push_back(probe_link(0, 0));
  for (int from = 0; from < num_devices; ++from) {
    for (int to = from + 1; to < num_devices; ++to) {
      show_progress(fmt::format("probing {} and {}", from, to));
      probes.push_back(probe_link(from, to));
    }
  }
  clear_progress();
  return probes;
}

struct Provider {
  const char* name;
  bool is_there;
  std::string note;
};

std::vector<Provider> providers_of(const GpuLinks& links) {
  bool has_virtual_memory = true;
  bool has_exportable_memory = true;
  for (const CudaDeviceInfo& device : links.topology.devices) {
    has_virtual_memory = has_virtual_memory && device.has_virtual_memory;
    has_exportable_memory = has_exportable_memory && device.has_exportable_memory;
  }
  const std::string reach =
      links.topology.all_reachable() ? "" : "only among GPUs that reach each other";
  const bool has_nccl = links.nccl.is_ok() && links.nccl.value().version >= 22800;
  std::string nccl_note = links.nccl.is_ok() ? "" : links.nccl.status().message();
  if (links.nccl.is_ok()) {
    const int version = links.nccl.value().version;
    nccl_note = fmt::format("{}.{}.{}, {}{}", version / 10000, version / 100 % 100, version % 100,
                            links.nccl.value().path, has_nccl ? "" : "; windows need 2.28");
  }
  return {{"threads, memory mapped per allocation", has_virtual_memory, reach},
          {"processes, memory as file descriptors", has_exportable_memory, reach},
          {"NCCL windows", has_nccl, nccl_note}};
}

std::string rates_text(std::span<const double> rates) {
  std::string text;
  for (const double rate : rates) text += fmt::format("{:>6.0f}", rate);
  return text;
}

void print_probe(const Result<LinkProbe>& result) {
  if (!result.is_ok()) {
    fmt::print("probe    {}\n", result.status().message());
    return;
  }
  const LinkProbe& probe = result.value();
  std::string blocks;
  for (const int num_blocks : kProbeBlocks) blocks += fmt::format("{:>6}", num_blocks);
  fmt::print("probe    {} and {}: a signal there and back {:.2f} us; GB/s by blocks{}\n",
             probe.from, probe.to, probe.ping_pong_us, blocks);
  const ProbeRates& rates = probe.rates;
  const auto line = [](const char* what, const ProbeRates::ByBlocks& one,
                       const ProbeRates::ByBlocks& both) {
    fmt::print("         {}{}   each way at once{}\n", what, rates_text(one), rates_text(both));
  };
  line("push, shared memory to peer            ", rates.push, rates.push_both);
  line("pull, peer to shared memory            ", rates.pull, rates.pull_both);
  line("fetch, peer through shared to own memory", rates.fetch, rates.fetch_both);
}

Json to_json(const Result<LinkProbe>& result) {
  if (!result.is_ok()) return {{"error", to_json(result.status())}};
  const LinkProbe& probe = result.value();
  return {{"from", probe.from},
          {"to", probe.to},
          {"ping_pong_us", probe.ping_pong_us},
          {"blocks", kProbeBlocks},
          {"push_gbps", probe.rates.push},
          {"pull_gbps", probe.rates.pull},
          {"fetch_gbps", probe.rates.fetch},
          {"push_both_ways_gbps", probe.rates.push_both},
          {"pull_both_ways_gbps", probe.rates.pull_both},
          {"fetch_both_ways_gbps", probe.rates.fetch_both}};
}

}  // namespace

std::optional<GpuLinks> read_gpu_links(bool with_probe) {
  Result<CudaTopology> topology = query_cuda_topology();
  if (!topology.is_ok()) return std::nullopt;
  const auto num_devices = static_cast<int>(topology.value().devices.size());
  GpuLinks links{std::move(topology).value(), self_test_devices(), nccl_info(), {}};
  if (with_probe) links.probes = probe_pairs(num_devices);
  return links;
}

Json to_json(const GpuLinks& links) {
  Json json;
  json["peers"] = Json::array();
  for (const auto& row : links.topology.links) {
    Json columns = Json::array();
    for (const PeerLink& link : row) {
      columns.push_back({{"access", link.can_access},
                         {"native_atomics", link.has_native_atomics},
                         {"performance_rank", link.performance_rank}});
    }
    json["peers"].push_back(std::move(columns));
  }
  json["providers"] = Json::array();
  for (const Provider& provider : providers_of(links)) {
    json["providers"].push_back(
        {{"name", provider.name}, {"available", provider.is_there}, {"note", provider.note}});
  }
  json["self_test"] = links.self_test.is_ok() ? Json("ok") : to_json(links.self_test);
  if (links.probes.empty()) return json;
  json["probes"] = Json::array();
  for (const auto& probe : links.probes) json["probes"].push_back(to_json(probe));
  return json;
}

void print_gpu_links(const GpuLinks& links) {
  for (std::size_t from = 0; from < links.topology.links.size(); ++from) {
    std::string row;
    for (std::size_t to = 0; to < links.topology.links.size(); ++to) {
      const PeerLink& link = links.topology.links[from][to];
      const char* how = !link.can_access ? "none" : link.has_native_atomics ? "atomics" : "yes";
      row += fmt::format("{:>9}", from == to ? "-" : how);
    }
    fmt::print("{}   {} reaches{}\n", from == 0 ? "peers " : "      ", from, row);
  }
  for (const Provider& provider : providers_of(links)) {
    fmt::print("memory   {}: {}{}{}\n", provider.name, provider.is_there ? "yes" : "no",
               provider.note.empty() ? "" : ", ", provider.note);
  }
  fmt::print("tested   {}\n", links.self_test.is_ok()
                                  ? "patterns between all GPUs arrive, by stores and bulk copies"
                                  : links.self_test.message());
  for (const auto& probe : links.probes) print_probe(probe);
}

}  // namespace slipstream::cli
