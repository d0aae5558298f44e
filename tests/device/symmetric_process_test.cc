// Symmetric memory of several processes: file descriptors and NCCL windows. A process that has used
// CUDA cannot fork ranks, so each test runs one of the disabled tests below in a fresh copy of this
// program.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "launch/processes.h"
#include "launch/threads.h"
#include "symmetric/cuda_region.h"
#include "symmetric/nccl_comm.h"
#include "symmetric/nccl_region.h"

namespace slipstream {
namespace {

using ::testing::HasSubstr;

int num_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return count;
}

RegionShape shape_of(int num_ranks) {
  return RegionShape{.num_ranks = num_ranks,
                     .topk = 5,
                     .max_tokens = 333,
                     .token_row_bytes = 2 * 1000,
                     .partial_row_bytes = 4 * 1000};
}

// Runs one disabled test of this binary in a process of its own.
void expect_passes_alone(const std::string& test) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const std::string filter = "--gtest_filter=" + test;
    execl("/proc/self/exe", "device_tests", filter.c_str(), "--gtest_also_run_disabled_tests",
          "--gtest_brief=1", nullptr);
    _exit(127);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(pid, &wait_status, 0), pid);
  EXPECT_TRUE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
      << test << ": wait status " << wait_status;
}

Status broken(std::string what) {
  return Status(StatusCode::kBackendError, Subsystem::kSymmetric, {.what = std::move(what)});
}

// Every rank writes its number into every region, at an offset of its own; each checks its own.
Status write_everywhere(const CudaRegion& region, const Exchange& exchange) {
  const int num_ranks = region.num_ranks();
  for (int peer = 0; peer < num_ranks; ++peer) {
    const int value = 100 * region.rank() + peer;
    const cudaError_t error = cudaMemcpy(region.table().base[peer] + 4096 * (region.rank() + 1),
                                         &value, sizeof(value), cudaMemcpyHostToDevice);
    if (error != cudaSuccess) return broken(cudaGetErrorString(error));
  }
  (void)cudaDeviceSynchronize();
  auto written = exchange("written", {});
  if (!written.is_ok()) return written.status();
  for (int peer = 0; peer < num_ranks; ++peer) {
    int value = -1;
    (void)cudaMemcpy(&value, region.own() + 4096 * (peer + 1), sizeof(value),
                     cudaMemcpyDeviceToHost);
    if (value != 100 * peer + region.rank())
      return broken(fmt::format("rank {} got {} from rank {}", region.rank(), value, peer));
  }
  return exchange("checked", {}).status();
}

Status share_and_write(const RankContext& context) {
  const int device = context.local_rank % num_gpus();
  (void)cudaSetDevice(device);
  for (int round = 0; round < 3; ++round) {
    auto region = create_shared_region(shape_of(context.num_ranks), context.rank, device,
                                       context.exchange, std::chrono::seconds(20));
    if (!region.is_ok()) return region.status();
    if (Status s = write_everywhere(region.value(), context.exchange); !s.is_ok()) return s;
  }
  return Status::ok();
}

Status window_and_write(const RankContext& context, bool own_exchange) {
  const int device = context.local_rank;
  (void)cudaSetDevice(device);
  auto comm = NcclComm::create(context.exchange, context.rank, context.num_ranks, device);
  if (!comm.is_ok()) return comm.status();
  Exchange exchange = context.exchange;
  if (own_exchange) {
    auto over_nccl = nccl_exchange(comm.value().get());
    if (!over_nccl.is_ok()) return over_nccl.status();
    exchange = over_nccl.value();
  }
  for (int round = 0; round < 3; ++round) {
    auto region = create_nccl_region(shape_of(context.num_ranks), comm.value().get(), exchange);
    if (!region.is_ok()) return region.status();
    if (Status s = write_everywhere(region.value(), exchange); !s.is_ok()) return s;
  }
  RegionShape other = shape_of(context.num_ranks % kMaxRanks + 1);
  const Status status = create_nccl_region(other, comm.value().get(), exchange).status();
  if (status.code() != StatusCode::kInvalidArgument) return broken("another number of ranks");
  return Status::ok();
}

// The number of ranks is the parent's argument to the fresh program: it must not ask CUDA itself.
int num_ranks_from_parent() {
  const char* text = std::getenv("SLIPSTREAM_TEST_NUM_RANKS");
  return text == nullptr ? 1 : std::atoi(text);
}

ProcessOptions options_of(int num_ranks) {
  ProcessOptions options;
  options.num_ranks = num_ranks;
  options.timeout = std::chrono::seconds(30);
  return options;
}

TEST(SymmetricProcessesAlone, DISABLED_SharedTwo) {
  const Status status = launch_processes(options_of(2), share_and_write);
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(SymmetricProcessesAlone, DISABLED_SharedFour) {
  const Status status = launch_processes(options_of(4), share_and_write);
  EXPECT_TRUE(status.is_ok()) << status.message();
}

// Rank 1 asks for more than there is: both must fail, and both must be able to go on.
TEST(SymmetricProcessesAlone, DISABLED_SharedOutOfMemory) {
  const Status status = launch_processes(options_of(2), [](const RankContext& context) {
    RegionShape shape{.num_ranks = 2, .topk = 1, .max_tokens = 1};
    shape.token_row_bytes = context.rank == 1 ? std::int64_t{1} << 40 : 4096;
    auto region =
        create_shared_region(shape, context.rank, 0, context.exchange, std::chrono::seconds(20));
    if (region.status().code() != StatusCode::kOutOfMemory)
      return broken("status is " + region.status().message());
    if (region.status().culprit_rank() != 1 && context.rank == 0) return broken("culprit");
    return share_and_write(context);
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(SymmetricProcessesAlone, DISABLED_WindowOverGivenExchange) {
  const int num_ranks = num_ranks_from_parent();
  const Status status = launch_processes(options_of(num_ranks), [](const RankContext& context) {
    return window_and_write(context, false);
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(SymmetricProcessesAlone, DISABLED_WindowOverItsOwnExchange) {
  const int num_ranks = num_ranks_from_parent();
  const Status status = launch_processes(options_of(num_ranks), [](const RankContext& context) {
    return window_and_write(context, true);
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST(SymmetricProcessesAlone, DISABLED_ForkAfterCudaIsRefused) {
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  const Status status =
      launch_processes(options_of(2), [](const RankContext&) { return Status::ok(); });
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
}

class SymmetricProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(SymmetricProcesses, SharedRegionOfTwoAndFourRanks) {
  expect_passes_alone("SymmetricProcessesAlone.DISABLED_SharedTwo");
  expect_passes_alone("SymmetricProcessesAlone.DISABLED_SharedFour");
}

TEST_F(SymmetricProcesses, OutOfMemoryOnOneRankIsEverybodysErrorAndPasses) {
  expect_passes_alone("SymmetricProcessesAlone.DISABLED_SharedOutOfMemory");
}

TEST_F(SymmetricProcesses, ForkAfterCudaIsRefused) {
  expect_passes_alone("SymmetricProcessesAlone.DISABLED_ForkAfterCudaIsRefused");
}

TEST_F(SymmetricProcesses, NcclWindowOnEveryGpu) {
  auto info = nccl_info();
  if (!info.is_ok()) GTEST_SKIP() << info.status().message();
  std::printf("NCCL %d, %s\n", info.value().version, info.value().path.c_str());
  setenv("SLIPSTREAM_TEST_NUM_RANKS", std::to_string(std::min(num_gpus(), kMaxRanks)).c_str(), 1);
  expect_passes_alone("SymmetricProcessesAlone.DISABLED_WindowOverGivenExchange");
  expect_passes_alone("SymmetricProcessesAlone.DISABLED_WindowOverItsOwnExchange");
}

TEST_F(SymmetricProcesses, NcclWindowsAmongThreads) {
  if (auto info = nccl_info(); !info.is_ok()) GTEST_SKIP() << info.status().message();
  const Status status =
      launch_threads(std::min(num_gpus(), kMaxRanks),
                     [](const RankContext& context) { return window_and_write(context, false); });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

TEST_F(SymmetricProcesses, NcclRefusesTwoRanksOnOneGpu) {
  if (auto info = nccl_info(); !info.is_ok()) GTEST_SKIP() << info.status().message();
  const Status status = launch_threads(2, [](const RankContext& context) {
    const Status refused = NcclComm::create(context.exchange, context.rank, 2, 0).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
    EXPECT_THAT(refused.message(), HasSubstr("shared by ranks 0 and 1"));
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
}

}  // namespace
}  // namespace slipstream
