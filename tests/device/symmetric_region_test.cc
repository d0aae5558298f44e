// Symmetric memory of one process: ranks folded on one GPU and spread over several, the self-test,
// failures of creation, leaks, adopted pointers, the machine's description and the link probe.
#include "symmetric/cuda_region.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>

#include "launch/threads.h"
#include "symmetric/cuda_self_test.h"
#include "symmetric/cuda_support.h"
#include "symmetric/cuda_topology.h"

namespace slipstream {
namespace {

using ::testing::HasSubstr;

int num_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return count;
}

std::size_t free_bytes(int device) {
  std::size_t free = 0;
  std::size_t total = 0;
  const DeviceGuard guard(device);
  (void)cudaMemGetInfo(&free, &total);
  return free;
}

// A shape whose region has no round size.
RegionShape shape_of(int num_ranks, std::int32_t max_tokens = 333) {
  return RegionShape{.num_ranks = num_ranks,
                     .topk = 5,
                     .max_tokens = max_tokens,
                     .token_row_bytes = 2 * 1000,
                     .partial_row_bytes = 4 * 1000};
}

std::vector<int> folded(int num_ranks) { return std::vector<int>(num_ranks, 0); }

class SymmetricRegion : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

// By the runtime's copies, as a second opinion on what the self-test does by kernels.
void expect_shared_and_zero(const std::vector<CudaRegion>& regions) {
  std::mt19937 random(11);
  for (const CudaRegion& writer : regions) {
    std::vector<std::byte> all(static_cast<std::size_t>(writer.bytes()), std::byte{1});
    ASSERT_EQ(cudaMemcpy(all.data(), writer.own(), all.size(), cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{0}), writer.bytes());
    for (const CudaRegion& owner : regions) {
      const std::int64_t offset = random() % (writer.bytes() - 8);
      const std::uint64_t sent = random();
      std::uint64_t seen = 0;
      ASSERT_EQ(cudaMemcpy(writer.table().base[owner.rank()] + offset, &sent, sizeof(sent),
                           cudaMemcpyDefault),
                cudaSuccess);
      ASSERT_EQ(cudaMemcpy(&seen, owner.own() + offset, sizeof(seen), cudaMemcpyDefault),
                cudaSuccess);
      EXPECT_EQ(seen, sent) << "from rank " << writer.rank() << " to rank " << owner.rank();
      ASSERT_EQ(cudaMemset(owner.own() + offset, 0, sizeof(seen)), cudaSuccess);
    }
  }
}

TEST_F(SymmetricRegion, FoldsRanksOnOneGpu) {
  for (const int num_ranks : {1, 2, 4, 8}) {
    auto regions = create_vmm_regions(shape_of(num_ranks), folded(num_ranks));
    ASSERT_TRUE(regions.is_ok()) << regions.status().message();
    ASSERT_EQ(regions.value().size(), static_cast<std::size_t>(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
      const PeerTable& table = regions.value()[rank].table();
      EXPECT_EQ(table.rank, rank);
      EXPECT_EQ(regions.value()[rank].device(), 0);
      for (int peer = 0; peer < num_ranks; ++peer)
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(table.base[peer]) % kRegionAlignment, 0U);
    }
    expect_shared_and_zero(regions.value());
  }
}

TEST_F(SymmetricRegion, SpreadsRanksOverGpus) {
  if (num_gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  for (const int num_ranks : {2, 3, 4, 8}) {
    auto devices = spread_devices(num_ranks);
    ASSERT_TRUE(devices.is_ok());
    EXPECT_EQ(devices.value()[1], 1);
    auto regions = create_vmm_regions(shape_of(num_ranks), devices.value());
    ASSERT_TRUE(regions.is_ok()) << regions.status().message();
    expect_shared_and_zero(regions.value());
  }
}

TEST_F(SymmetricRegion, RefusesWhatCannotBe) {
  const std::vector<std::pair<RegionShape, std::vector<int>>> bad = {
      {shape_of(2), {0}},
      {shape_of(2), {0, num_gpus()}},
      {shape_of(1), {-1}},
      {shape_of(0), {}},
      {shape_of(9), std::vector<int>(9, 0)}};
  for (const auto& [shape, devices] : bad) {
    EXPECT_EQ(create_vmm_regions(shape, devices).status().code(), StatusCode::kInvalidArgument);
  }
}

// An error that the caller never looked at is none of ours.
TEST_F(SymmetricRegion, AStaleErrorOfTheCallerDoesNotMatter) {
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  auto regions = create_vmm_regions(shape_of(2), folded(2));
  EXPECT_TRUE(regions.is_ok()) << regions.status().message();
  EXPECT_TRUE(probe_link(0, 0).is_ok());
}

TEST_F(SymmetricRegion, OutOfMemoryIsAnErrorAndLeavesNothingBehind) {
  ASSERT_TRUE(create_vmm_regions(shape_of(2), folded(2)).is_ok());  // contexts and kernels
  const std::size_t before = free_bytes(0);
  // Three of four fit, so that there is something to give back.
  RegionShape shape{.num_ranks = 4, .topk = 1, .max_tokens = 1};
  shape.token_row_bytes = static_cast<std::int64_t>(before / 10 * 3);
  auto regions = create_vmm_regions(shape, folded(4));
  ASSERT_FALSE(regions.is_ok());
  EXPECT_EQ(regions.status().code(), StatusCode::kOutOfMemory) << regions.status().message();
  EXPECT_THAT(regions.status().message(), HasSubstr("max_tokens"));
  EXPECT_EQ(free_bytes(0), before);
  EXPECT_TRUE(create_vmm_regions(shape_of(4), folded(4)).is_ok());
}

TEST_F(SymmetricRegion, FiftyTimesLeaksNothing) {
  auto devices = spread_devices(4);
  std::vector<std::size_t> before;
  for (int round = 0; round < 51; ++round) {
    ASSERT_TRUE(create_vmm_regions(shape_of(4), devices.value()).is_ok());
    if (round > 0) continue;
    for (int device = 0; device < num_gpus(); ++device) before.push_back(free_bytes(device));
  }
  for (int device = 0; device < num_gpus(); ++device) EXPECT_EQ(free_bytes(device), before[device]);
}

TEST_F(SymmetricRegion, HandlesShareTheMemory) {
  std::optional<CudaRegion> kept;
  {
    auto regions = create_vmm_regions(shape_of(2), folded(2));
    ASSERT_TRUE(regions.is_ok());
    kept = regions.value()[1];
  }
  // The peer's memory is still there.
  EXPECT_EQ(cudaMemset(kept->table().base[0], 1, 64), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

void flip_bit(std::byte* at) {
  std::uint8_t byte = 0;
  EXPECT_EQ(cudaMemcpy(&byte, at, 1, cudaMemcpyDefault), cudaSuccess);
  byte ^= 0x10;
  EXPECT_EQ(cudaMemcpy(at, &byte, 1, cudaMemcpyDefault), cudaSuccess);
}

struct PlantedCorruption {
  const char* after;  // the exchange after which the bit flips
  int owner;
  std::int64_t offset;
};

Status self_test_with(const PlantedCorruption& planted, int num_ranks) {
  auto devices = spread_devices(num_ranks);
  auto regions = create_vmm_regions(shape_of(num_ranks), devices.value());
  if (!regions.is_ok()) return regions.status();
  return launch_threads(num_ranks, [&](const RankContext& context) {
    const CudaRegion& mine = regions.value()[context.rank];
    const Exchange corrupting = [&](std::string_view tag, std::string_view bytes) {
      auto all = context.exchange(tag, bytes);
      // Nobody writes any more and nobody reads yet: between this exchange and one of our own.
      if (tag != planted.after) return all;
      if (context.rank == planted.owner) flip_bit(mine.own() + planted.offset);
      if (auto done = context.exchange("planted", {}); !done.is_ok()) return done;
      return all;
    };
    return self_test(std::span(&mine, 1), &corrupting);
  });
}

TEST_F(SymmetricRegion, SelfTestFindsAPlantedCorruptionAndNamesThePair) {
  const std::int64_t bytes = region_bytes(shape_of(3));
  const std::int64_t offsets[] = {0, 4321, bytes / 3, bytes / 2, bytes - 1};
  for (const char* after : {"self-test: stored", "self-test: bulk copied"}) {
    for (const std::int64_t offset : offsets) {
      const Status status = self_test_with({after, 1, offset}, 3);
      EXPECT_EQ(status.code(), StatusCode::kBackendError);
      EXPECT_THAT(status.message(), HasSubstr("rank 1's region"));
      EXPECT_THAT(status.message(), HasSubstr("offset " + std::to_string(offset / 4 * 4)));
      EXPECT_THAT(status.message(),
                  HasSubstr(after == std::string("self-test: stored") ? "stores" : "bulk copies"));
    }
  }
  std::printf("%s\n", self_test_with({"self-test: stored", 1, 4321}, 3).message().c_str());
}

TEST_F(SymmetricRegion, SelfTestFindsAPairThatIsSwapped) {
  auto regions = create_vmm_regions(shape_of(2), folded(2));
  ASSERT_TRUE(regions.is_ok());
  std::vector<CudaRegion> swapped;
  for (const CudaRegion& region : regions.value()) {
    PeerTable table = region.table();
    if (region.rank() == 0) std::swap(table.base[0], table.base[1]);
    swapped.emplace_back(table, 0, nullptr);
  }
  EXPECT_EQ(self_test(swapped, nullptr).code(), StatusCode::kBackendError);
}

TEST_F(SymmetricRegion, AdoptsPointersAndChecksThem) {
  const RegionShape shape = shape_of(2);
  auto owned = create_vmm_regions(shape, folded(2));
  ASSERT_TRUE(owned.is_ok());
  std::byte* const bases[] = {owned.value()[0].own(), owned.value()[1].own()};
  std::vector<CudaRegion> adopted(2, owned.value()[0]);
  Status status = launch_threads(2, [&](const RankContext& context) {
    auto region =
        adopt_region(shape, context.rank, 0, bases, region_bytes(shape), context.exchange);
    if (!region.is_ok()) return region.status();
    adopted[context.rank] = region.value();
    return Status::ok();
  });
  ASSERT_TRUE(status.is_ok()) << status.message();
  expect_shared_and_zero(adopted);

  // Rank 1 alone is wrong; both ranks must come back with its error.
  std::byte host[256];
  std::byte* const unaligned[] = {bases[0], bases[1] + 64};
  std::byte* const not_device[] = {
      bases[0], host + (128 - reinterpret_cast<std::uintptr_t>(host) % 128) % 128};
  for (const int kind : {0, 1, 2, 3}) {
    status = launch_threads(2, [&](const RankContext& context) {
      const bool is_bad = context.rank == 1;
      std::span<std::byte* const> mine = bases;
      std::int64_t num_bytes = region_bytes(shape);
      if (is_bad && kind == 0) mine = unaligned;
      if (is_bad && kind == 1) mine = not_device;
      if (is_bad && kind == 2) mine = mine.first(1);
      if (is_bad && kind == 3) num_bytes -= 1;
      auto region = adopt_region(shape, context.rank, 0, mine, num_bytes, context.exchange);
      EXPECT_EQ(region.status().code(), StatusCode::kInvalidArgument) << kind;
      return Status::ok();
    });
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
}

TEST_F(SymmetricRegion, DescribesTheMachine) {
  auto topology = query_cuda_topology();
  ASSERT_TRUE(topology.is_ok()) << topology.status().message();
  ASSERT_EQ(topology.value().devices.size(), static_cast<std::size_t>(num_gpus()));
  for (const CudaDeviceInfo& device : topology.value().devices) {
    EXPECT_GT(device.num_sms, 0);
    EXPECT_GT(device.free_bytes, 0);
    std::printf(
        "device %d: %s, sm_%d%d, %d SMs, %lld of %lld MB free, L2 %lld MB, %s, vmm %d fd %d\n",
        device.device, device.name.c_str(), device.compute_major, device.compute_minor,
        device.num_sms, static_cast<long long>(device.free_bytes >> 20),
        static_cast<long long>(device.total_bytes >> 20),
        static_cast<long long>(device.l2_bytes >> 20), device.pci_bus_id.c_str(),
        device.has_virtual_memory, device.has_exportable_memory);
  }
  for (int from = 0; from < num_gpus(); ++from) {
    for (int to = 0; to < num_gpus(); ++to) {
      const PeerLink& link = topology.value().links[from][to];
      std::printf("%d -> %d: access %d, atomics %d, rank %d\n", from, to, link.can_access,
                  link.has_native_atomics, link.performance_rank);
    }
  }
  const Status status = self_test_devices();
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST_F(SymmetricRegion, ProbesTheLink) {
  const int to = num_gpus() > 1 ? 1 : 0;
  auto probe = probe_link(0, to);
  ASSERT_TRUE(probe.is_ok()) << probe.status().message();
  std::printf("%d -> %d: ping-pong %.2f us; GB/s by blocks\n", 0, to, probe.value().ping_pong_us);
  EXPECT_GT(probe.value().ping_pong_us, 0.1);
  const ProbeRates& rates = probe.value().rates;
  for (std::size_t i = 0; i < kProbeBlocks.size(); ++i) {
    std::printf(
        "%3d blocks: push %.0f pull %.0f fetch %.0f, both ways push %.0f pull %.0f fetch %.0f\n",
        kProbeBlocks[i], rates.push[i], rates.pull[i], rates.fetch[i], rates.push_both[i],
        rates.pull_both[i], rates.fetch_both[i]);
    for (const auto* rate : {&rates.push, &rates.pull, &rates.fetch, &rates.push_both,
                             &rates.pull_both, &rates.fetch_both})
      EXPECT_GT((*rate)[i], 0.1);
  }
  EXPECT_EQ(probe_link(0, num_gpus()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slipstream
