// The grouped GEMM benchmark. See gemm_bench.h. Contestants take turns in short rounds, so that a
// card that warms up or a clock that falls hits all of them.
#include "gemm_bench.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>

#include "core/numeric.h"
#include "cublas_peer.h"
#include "gemm/device_buffer.h"
#include "gemm/grouped_gemm.h"
#include "peer_process.h"
#include "schedule/golden.h"
#include "schedule/routing_generator.h"

namespace slipstream::bench {

namespace {

// Ceilings as measured on H200 cards: bf16 matrix products on random data, and device-to-device
// copy.
constexpr double kFlopsPerSecond = 790e12;
constexpr double kBytesPerSecond = 4.3e12;
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  // several times the L2

struct Contestant {
  std::string name;
  bool has_one_weight = false;                  // and not one for each expert: it reads less
  std::string why_waived;                       // said where `us` stays empty
  std::function<std::vector<double>(int)> run;  // microseconds of each of n runs; empty: WAIVED
  std::vector<double> us;
};

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

// Normal values from one random block, repeated with a period that no row length divides.
DeviceBuffer<std::uint16_t> random_operand(std::int64_t size, DType dtype, std::uint64_t seed) {
  constexpr std::int64_t kPeriod = 4'194'301;  // a prime
  static std::vector<std::uint16_t> block;
  static DType block_dtype = DType::kFP32;
  if (block_dtype != dtype) {
    block.resize(kPeriod);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0F, 0.5F);
    for (auto& value : block) {
      const float x = normal(random);
      value = dtype == DType::kBF16 ? float_to_bf16(x) : float_to_fp16(x);
    }
    block_dtype = dtype;
  }
  DeviceBuffer<std::uint16_t> operand(static_cast<std::size_t>(size));
  for (std::int64_t at = 0; at < size; at += kPeriod) {
    check_cuda(cudaMemcpy(operand.get() + at, block.data(), 2 * std::min(kPeriod, size - at),
                          cudaMemcpyHostToDevice),
               "random operand");
  }
  return operand;
}

class Timer {
 public:
  Timer() : flush_(kFlushBytes) {
    for (auto* event : {&begin_, &end_}) check_cuda(cudaEventCreate(event), "event");
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  // `prepare` and the flush stay outside the measured time.
  std::vector<double> run(int count, const std::function<void()>& prepare,
                          const std::function<void()>& launch) {
    std::vector<double> us;
    for (int i = 0; i < count; ++i) {
      flush_.fill_bytes(i);
      prepare();
      check_cuda(cudaEventRecord(begin_), "event");
      launch();
      check_cuda(cudaEventRecord(end_), "event");
      check_cuda(cudaEventSynchronize(end_), "a timed run");
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "event");
      us.push_back(1000.0 * ms);
    }
    return us;
  }

 private:
  DeviceBuffer<std::uint8_t> flush_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// One routing's tables on the device.
struct DeviceSchedule {
  Schedule host;
  DeviceBuffer<ScheduleCounts> counts;
  DeviceBuffer<TokenTile> token_tile;
  DeviceBuffer<std::int32_t> slack;
  DeviceBuffer<std::int32_t> row_source;
  DeviceBuffer<protocol::Dispenser> dispenser;
  std::vector<std::int32_t> rows_of_expert;

  DeviceSchedule(const GemmBenchOptions& options, const Routing& routing) {
    ScheduleShape shape;
    shape.num_experts = options.num_experts;
    shape.topk = options.topk;
    shape.tile_max_rows =
        options.tile_max_rows > 0
            ? options.tile_max_rows
            : preferred_tile_max_rows(std::int64_t{routing.num_tokens} * options.topk,
                                      options.num_experts);
    const std::int32_t tokens_per_rank[] = {routing.num_tokens};
    host = build_golden(shape, tokens_per_rank, routing.topk_ids);
    counts = DeviceBuffer<ScheduleCounts>(std::vector<ScheduleCounts>{host.counts});
    token_tile = DeviceBuffer<TokenTile>(host.token_tile);
    slack = DeviceBuffer<std::int32_t>(host.slack);
    row_source = DeviceBuffer<std::int32_t>(host.row_source);
    dispenser = DeviceBuffer<protocol::Dispenser>(1);
    for (std::int32_t e = 0; e < options.num_experts; ++e)
      rows_of_expert.push_back(host.expert_row_begin[e + 1] - host.expert_row_begin[e]);
  }

  ScheduleView view() const {
    ScheduleView view;
    view.shape = host.shape;
    view.counts = counts.get();
    view.token_tile = token_tile.get();
    view.slack = slack.get();
    view.row_source = row_source.get();
    return view;
  }
};

struct Layer {
  const char* name;
  EpilogueKind epilogue;
  std::int32_t weight_rows;  // N of the plain product
  std::int32_t columns;      // of our output
  std::int32_t k;
};

struct Variant {
  const char* name;
  OperandSource source;
  bool dispenser;
  bool is_default;
};

constexpr Variant kVariants[] = {
    {"slipstream rows", OperandSource::kRows, false, true},
    {"slipstream gather", OperandSource::kGather, false, true},
    {"slipstream rows, dispenser", OperandSource::kRows, true, false},
    {"slipstream gather, dispenser", OperandSource::kGather, true, false},
};

// One layer and routing: operands, contestants, rounds, report.
class GemmRace {
 public:
  GemmRace(const GemmBenchOptions& options, const Layer& layer, const std::string& distribution,
           const DeviceSchedule& schedule, Timer& timer, PeerProcess& peer)
      : options_(options),
        layer_(layer),
        distribution_(distribution),
        schedule_(schedule),
        timer_(timer),
        dtype_(options.dtype_fp16 ? DType::kFP16 : DType::kBF16),
        rows_(schedule.host.counts.num_rows),
        tokens_(schedule.host.counts.num_tokens),
        weights_(random_operand(std::int64_t{options.num_experts} * layer.weight_rows * layer.k,
                                dtype_, options.seed)),
        x_(random_operand(std::int64_t{std::max(rows_, tokens_)} * layer.k, dtype_, options.seed)),
        out_(static_cast<std::size_t>(rows_) * layer.weight_rows) {
    for (const Variant& variant : kVariants)
      if (variant.is_default || options.all_variants) add_ours(variant);
    add_peers(peer);
  }

  const Status& status() const { return status_; }

  std::vector<std::string> run() {
    for (std::int32_t round = 0; round <= options_.num_rounds; ++round) {
      for (Contestant& contestant : contestants_) {
        const std::vector<double> us = contestant.run(options_.runs_per_round);
        // Round 0 warms up.
        if (round > 0) contestant.us.insert(contestant.us.end(), us.begin(), us.end());
      }
    }
    std::vector<std::string> results;
    for (const Contestant& contestant : contestants_) {
      results.push_back(report(contestant));
      if (options_.progress) options_.progress(results.back());
    }
    return results;
  }

 private:
  void add_ours(const Variant& variant) {
    GroupedGemmSpec spec;
    spec.dtype = dtype_;
    spec.epilogue = layer_.epilogue;
    spec.source = variant.source;
    spec.num_experts = options_.num_experts;
    spec.num_columns = layer_.columns;
    spec.num_k = layer_.k;
    spec.weights = weights_.get();
    const bool gather = variant.source == OperandSource::kGather;
    spec.tokens = dense_view(x_.get(), dtype_, gather ? tokens_ : rows_, layer_.k);
    spec.out = dense_view(out_.get(), dtype_, rows_, layer_.columns);
    spec.schedule = schedule_.view();
    if (variant.dispenser) spec.dispenser = schedule_.dispenser.get();
    Result<GroupedGemm> gemm = GroupedGemm::create(spec);
    if (!gemm.is_ok()) {
      // kUnsupported: there is no such kernel for this layer, and it does not compete.
      if (gemm.status().code() != StatusCode::kUnsupported) status_ = gemm.status();
      return;
    }
    const auto shared = std::make_shared<GroupedGemm>(gemm.value());
    const auto prepare = [this] {
      check_cuda(cudaMemsetAsync(schedule_.dispenser.get(), 0, sizeof(protocol::Dispenser)),
                 "seeding the dispenser");
    };
    const auto launch = [shared] {
      const Status status = shared->launch(nullptr);
      if (!status.is_ok()) fmt::print(stderr, "{}\n", status.message());
    };
    contestants_.push_back(
        {variant.name,
         false,
         {},
         [this, prepare, launch](int n) { return timer_.run(n, prepare, launch); },
         {}});
  }

  void add_peers(PeerProcess& peer) {
    std::string setup = fmt::format("setup {} {} {} {}", options_.num_experts, layer_.weight_rows,
                                    layer_.k, dtype_ == DType::kBF16 ? "bf16" : "fp16");
    for (const std::int32_t rows : schedule_.rows_of_expert) setup += fmt::format(" {}", rows);
    const bool ready = peer.ask(setup) == "ok";
    contestants_.push_back(
        {"torch _grouped_mm",
         false,
         options_.peer_script.empty() ? "no peer script" : "the peer script does not answer",
         [&peer, ready](int n) {
           return ready ? peer.ask_numbers(fmt::format("run {}", n)) : std::vector<double>{};
         },
         {}});
    const CublasPeer& cublas = CublasPeer::instance();
    const auto add = [&](const char* name, bool has_one_weight,
                         std::vector<std::int32_t> rows_of_weight) {
      contestants_.push_back(
          {name,
           has_one_weight,
           "libcublas was not found",
           [this, &cublas, rows_of_weight](int n) {
             if (!cublas.is_available()) return std::vector<double>{};
             return timer_.run(
                 n, [] {},
                 [&] {
                   std::int64_t row = 0;
                   for (std::size_t e = 0; e < rows_of_weight.size(); ++e) {
                     cublas.multiply(dtype_, weights_.get() + e * layer_.weight_rows * layer_.k,
                                     x_.get() + row * layer_.k,
                                     out_.get() + row * layer_.weight_rows, layer_.weight_rows,
                                     rows_of_weight[e], layer_.k);
                     row += rows_of_weight[e];
                   }
                 });
           },
           {}});
    };
    add("cuBLAS dense, one weight", true, {rows_});
    add("cuBLAS per expert", false, schedule_.rows_of_expert);
  }

  std::string report(const Contestant& contestant) const {
    const std::string head =
        fmt::format(R"({{"layer": "{}", "rows": {}, "routing": "{}", "contestant": "{}", )",
                    layer_.name, rows_, distribution_, contestant.name);
    if (contestant.us.empty())
      return head + fmt::format(R"("result": "WAIVED", "why": "{}"}})", contestant.why_waived);
    std::int32_t experts_used = contestant.has_one_weight ? 1 : 0;
    for (const std::int32_t rows : schedule_.rows_of_expert)
      experts_used += rows > 0 && !contestant.has_one_weight ? 1 : 0;
    const double flops = 2.0 * rows_ * layer_.weight_rows * layer_.k;
    const double bytes = 2.0 * (static_cast<double>(experts_used) * layer_.weight_rows * layer_.k +
                                static_cast<double>(rows_) * (layer_.k + layer_.columns));
    const double floor_us = 1e6 * std::max(flops / kFlopsPerSecond, bytes / kBytesPerSecond);
    const double us = percentile(contestant.us, 0.5);
    double torch_us = 0;
    for (const Contestant& other : contestants_)
      if (other.name == "torch _grouped_mm") torch_us = percentile(other.us, 0.5);
    return head + fmt::format(R"("us": {:.1f}, "p10": {:.1f}, "p90": {:.1f}, "tflops": {:.0f}, )"
                              R"("gbps": {:.0f}, "floor_share": {:.3f}, "x_torch": {}}})",
                              us, percentile(contestant.us, 0.1), percentile(contestant.us, 0.9),
                              flops / us / 1e6, bytes / us / 1e3, floor_us / us,
                              torch_us > 0 ? fmt::format("{:.3f}", us / torch_us) : "null");
  }

  const GemmBenchOptions& options_;
  Layer layer_;
  std::string distribution_;
  const DeviceSchedule& schedule_;
  Timer& timer_;
  DType dtype_;
  std::int32_t rows_;
  std::int32_t tokens_;
  DeviceBuffer<std::uint16_t> weights_;
  DeviceBuffer<std::uint16_t> x_;
  DeviceBuffer<std::uint16_t> out_;
  std::vector<Contestant> contestants_;
  Status status_;  // of the first of our kernels that refused the shape
};

// DeviceBuffer ends the program when memory runs out, so what a race takes is counted before.
Status check_memory(const GemmBenchOptions& options, std::int64_t tokens) {
  const double hidden = options.hidden;
  const double intermediate = options.intermediate;
  const double rows = static_cast<double>(tokens) * options.topk;
  const double one_side = 2.0 * (2.0 * options.num_experts * hidden * intermediate +
                                 2.0 * rows * std::max(hidden, 2 * intermediate) + tokens * hidden);
  // The torch peer holds operands of its own.
  const double needed = kFlushBytes * 2.0 + one_side * (options.peer_script.empty() ? 1 : 2);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory");
  if (needed < 0.95 * static_cast<double>(free_bytes)) return Status::ok();
  return Status(StatusCode::kOutOfMemory, Subsystem::kGemm,
                {.what = "device memory",
                 .observed = fmt::format("{:.1f} GB free", static_cast<double>(free_bytes) / 1e9),
                 .expected = fmt::format("{:.1f} GB for this shape", needed / 1e9),
                 .hint = "give fewer tokens or experts"});
}

}  // namespace

Result<std::string> run_gemm_bench(const GemmBenchOptions& options) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    return Status(StatusCode::kUnsupported, Subsystem::kGemm,
                  {.what = "this machine",
                   .observed = "without a Hopper GPU",
                   .expected = "compute capability 9.0",
                   .hint = "run the benchmark on an H100 or H200"});
  }
  const Layer layers[] = {
      {"gate_up", EpilogueKind::kSwiGlu, 2 * options.intermediate, options.intermediate,
       options.hidden},
      {"down", EpilogueKind::kStore, options.hidden, options.hidden, options.intermediate},
  };
  for (const std::int32_t tokens : options.tokens)
    if (Status s = check_memory(options, tokens); !s.is_ok()) return s;
  Timer timer;
  PeerProcess peer(options.peer_script);
  std::vector<std::string> results;
  for (const std::int32_t tokens : options.tokens) {
    for (const std::string& text : options.distributions) {
      Result<RoutingDistribution> distribution = parse_routing_distribution(text);
      if (!distribution.is_ok()) return distribution.status();
      Result<Routing> routing = generate_routing(distribution.value(), tokens, options.num_experts,
                                                 options.topk, options.seed);
      if (!routing.is_ok()) return routing.status();
      const DeviceSchedule schedule(options, routing.value());
      for (const Layer& layer : layers) {
        GemmRace race(options, layer, text, schedule, timer, peer);
        if (!race.status().is_ok()) return race.status();
        for (std::string& line : race.run()) results.push_back(std::move(line));
      }
    }
  }
  return fmt::format(
      "{{\"device\": \"{}\", \"experts\": {}, \"hidden\": {}, \"intermediate\": {}, \"topk\": {}, "
      "\"dtype\": \"{}\", \"runs\": {},\n \"results\": [\n  {}\n]}}\n",
      properties.name, options.num_experts, options.hidden, options.intermediate, options.topk,
      options.dtype_fp16 ? "fp16" : "bf16", options.num_rounds * options.runs_per_round,
      fmt::join(results, ",\n  "));
}

}  // namespace slipstream::bench
