// Time of publish_plan, launch to tables ready, on the GPUs that are there: for each case a line
// with the median, 10th and 90th percentile over calls of the maximum over ranks, in us. Inputs in
// place unless said otherwise. An empty launch between the same events stands beside it.
//
//   plan_bench [--calls N] [--json FILE]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "plan_ranks.h"
#include "schedule/routing_generator.h"

namespace slipstream::testing {
namespace {

struct Case {
  const char* name;
  int num_ranks;
  int num_experts;
  int topk;
  int tokens;  // a rank
  int hidden;
  bool in_place;
};

constexpr Case kCases[] = {
    {"build alone, 1024 rows", 1, 64, 8, 128, 4096, true},
    {"build alone, 4096 rows", 1, 64, 8, 512, 4096, true},
    {"build alone, 16384 rows", 1, 64, 8, 2048, 4096, true},
    {"build alone, 16384 rows E 512", 1, 512, 8, 2048, 4096, true},
    {"build alone, 65536 rows", 1, 64, 8, 8192, 4096, true},
    {"build alone, 262144 rows", 1, 64, 8, 32768, 4096, true},
    {"2 ranks, T 64", 2, 64, 8, 64, 4096, true},
    {"2 ranks, T 1024", 2, 64, 8, 1024, 4096, true},
    {"2 ranks, T 1024 E 512", 2, 512, 8, 1024, 4096, true},
    {"2 ranks, T 4096", 2, 64, 8, 4096, 4096, true},
    {"2 ranks, T 64 copied", 2, 64, 8, 64, 4096, false},
    {"2 ranks, T 1024 copied", 2, 64, 8, 1024, 4096, false},
};

struct Spread {
  double median, p10, p90;
};

Spread spread_of(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return static_cast<double>(values[static_cast<std::size_t>(share * (values.size() - 1))]);
  };
  return Spread{at(0.5), at(0.1), at(0.9)};
}

Spread measure(const Case& c, int num_calls) {
  const Problem problem{.num_ranks = c.num_ranks,
                        .num_experts = c.num_experts,
                        .hidden = c.hidden,
                        .intermediate = 768 * c.num_ranks,
                        .topk = c.topk,
                        .max_tokens = c.tokens,
                        .dtype = DType::kBF16};
  PlanRanks ranks(problem, default_tuning(problem, 2048), 10);
  PlanCall call;
  call.tokens_per_rank.assign(c.num_ranks, c.tokens);
  call.in_place = c.in_place;
  Routing routing = generate_routing(parse_routing_distribution("uniform").value(),
                                     c.tokens * c.num_ranks, c.num_experts, c.topk, 1)
                        .value();
  call.topk_ids = routing.topk_ids;
  call.topk_weights = routing.topk_weights;
  for (int i = 0; i < 3; ++i) ranks.run(call);

  std::vector<std::vector<float>> us(c.num_ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < c.num_ranks; ++r) {
    threads.emplace_back([&, r] {
      ranks.select(r);
      std::vector<cudaEvent_t> events(2 * num_calls);
      for (cudaEvent_t& event : events) check_cuda(cudaEventCreate(&event), "event");
      for (int i = 0; i < num_calls; ++i) {
        check_cuda(cudaEventRecord(events[2 * i], ranks.stream(r)), "record");
        check_status(fused::launch_publish_plan(ranks.params(r), {}, ranks.stream(r)));
        check_cuda(cudaEventRecord(events[2 * i + 1], ranks.stream(r)), "record");
        check_status(fused::launch_close_call(ranks.params(r), ranks.stream(r)));
      }
      ranks.wait(r);
      for (int i = 0; i < num_calls; ++i) {
        float ms = 0;
        check_cuda(cudaEventElapsedTime(&ms, events[2 * i], events[2 * i + 1]), "elapsed");
        us[r].push_back(ms * 1000);
      }
      for (cudaEvent_t event : events) cudaEventDestroy(event);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The first calls run while the host still fills the streams.
  std::vector<float> slowest;
  for (int i = num_calls / 4; i < num_calls; ++i) {
    float worst = 0;
    for (int r = 0; r < c.num_ranks; ++r) worst = std::max(worst, us[r][i]);
    slowest.push_back(worst);
  }
  return spread_of(slowest);
}

int run(int argc, char** argv) {
  int num_calls = 400;
  const char* json_file = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--calls") == 0) num_calls = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--json") == 0) json_file = argv[i + 1];
  }
  if (num_gpus() == 0) {
    std::printf("WAIVED: no GPU\n");
    return 0;
  }
  cudaDeviceProp device;
  check_cuda(cudaGetDeviceProperties(&device, 0), "properties");
  std::printf("%d x %s\n%-32s %8s %8s %8s  us\n", num_gpus(), device.name, "publish_plan", "median",
              "p10", "p90");
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& c : kCases) {
    const Spread spread = measure(c, num_calls);
    std::printf("%-32s %8.2f %8.2f %8.2f\n", c.name, spread.median, spread.p10, spread.p90);
    rows.push_back({{"case", c.name},
                    {"ranks", c.num_ranks},
                    {"experts", c.num_experts},
                    {"rows", c.num_ranks * c.tokens * c.topk},
                    {"in_place", c.in_place},
                    {"gpus", num_gpus()},
                    {"median_us", spread.median},
                    {"p10_us", spread.p10},
                    {"p90_us", spread.p90}});
  }
  if (json_file != nullptr) {
    if (std::FILE* file = std::fopen(json_file, "w"); file != nullptr) {
      std::fprintf(file, "%s\n", rows.dump(2).c_str());
      std::fclose(file);
    }
  }
  return 0;
}

}  // namespace
}  // namespace slipstream::testing

int main(int argc, char** argv) { return slipstream::testing::run(argc, argv); }
