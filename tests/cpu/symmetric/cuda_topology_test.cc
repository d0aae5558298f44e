// cuda_topology.h must be good to call anywhere: without CUDA in the build, without a
// driver, without a GPU. With one, tests/device has the tests.
#include "symmetric/cuda_topology.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(CudaTopology, WithoutAGpuEverythingAnswersUnsupported) {
  if (query_cuda_topology().is_ok()) GTEST_SKIP() << "there is a GPU";
  const Status statuses[] = {query_cuda_topology().status(), self_test_devices(),
                             probe_link(0, 0).status()};
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.message();
    EXPECT_FALSE(status.detail().hint.empty()) << status.message();
  }
}

TEST(CudaTopology, OnePairWithoutAccessMakesItUnreachable) {
  CudaTopology topology;
  topology.links.assign(3, std::vector<PeerLink>(3, PeerLink{true, false, 0}));
  EXPECT_TRUE(topology.all_reachable());
  topology.links[2][1].can_access = false;
  EXPECT_FALSE(topology.all_reachable());
}

}  // namespace
}  // namespace slipstream
