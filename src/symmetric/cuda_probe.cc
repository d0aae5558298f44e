// How fast is the link between two GPUs: the host part of probe_link() of cuda_topology.h. What
// moves, and how, is in cuda_probe_kernels.cu.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "symmetric/cuda_memory.h"
#include "symmetric/cuda_probe_kernels.h"
#include "symmetric/cuda_support.h"
#include "symmetric/cuda_topology.h"

namespace slipstream {

namespace {

constexpr std::int64_t kProbeBytes = 128 << 20;
constexpr int kNumRepeats = 5;
constexpr std::uint32_t kWarmRounds = 100;
constexpr std::uint32_t kTimedRounds = 1000;

// One end of the link: a device with a stream, events and memory that both ends may touch.
struct End {
  int device = 0;
  int num_slots = 0;
  std::unique_ptr<CudaMemory> target;  // written
  std::unique_ptr<CudaMemory> source;  // read by the other end
  std::unique_ptr<CudaStream> stream;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;

  ~End() {
    if (begin != nullptr) (void)cudaEventDestroy(begin);
    if (end != nullptr) (void)cudaEventDestroy(end);
  }
};

enum class Way { kPush, kPull, kFetch };

Result<std::unique_ptr<CudaMemory>> allocate(int device, int other) {
  const int accessors[] = {other};
  Result<CudaMemory> memory = CudaMemory::create(device, kProbeBytes, accessors);
  if (!memory.is_ok()) return memory.status();
  return std::make_unique<CudaMemory>(std::move(memory).value());
}

Status raise_shared_limit(End& end) {
  int limit = 0;
  const cudaError_t error =
      cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, end.device);
  if (error != cudaSuccess) return cuda_status(error, "cudaDeviceGetAttribute");
  // The barriers are static shared memory; a KB is plenty for them.
  const int num_slots = (limit - 1024) / static_cast<int>(kProbePieceBytes);
  end.num_slots = std::min(kMaxProbeSlots, num_slots);
  return cuda_status(allow_probe_slots(end.num_slots), "shared memory of the probe");
}

Result<std::unique_ptr<End>> make_end(int device, int other) {
  auto end = std::make_unique<End>();
  end->device = device;
  auto target = allocate(device, other);
  if (!target.is_ok()) return target.status();
  end->target = std::move(target).value();
  auto source = allocate(device, other);
  if (!source.is_ok()) return source.status();
  end->source = std::move(source).value();
  const DeviceGuard guard(device);
  Result<CudaStream> stream = CudaStream::create();
  if (!stream.is_ok()) return stream.status();
  end->stream = std::make_unique<CudaStream>(std::move(stream).value());
  Status s = cuda_status(cudaEventCreate(&end->begin), "cudaEventCreate");
  if (s.is_ok()) s = cuda_status(cudaEventCreate(&end->end), "cudaEventCreate");
  if (s.is_ok()) s = raise_shared_limit(*end);
  if (!s.is_ok()) return s;
  return Result<std::unique_ptr<End>>(std::move(end));
}

Status launch_copy(const End& me, const End& peer, Way way, int num_blocks) {
  const DeviceGuard guard(me.device);
  const std::int64_t pieces = kProbeBytes / kProbePieceBytes / num_blocks;
  const cudaStream_t stream = me.stream->get();
  Status s = cuda_status(cudaEventRecord(me.begin, stream), "cudaEventRecord");
  if (!s.is_ok()) return s;
  const ProbeCopy copy{.source = peer.source->data(),
                       .target = way == Way::kPush ? peer.target->data() : me.target->data(),
                       .pieces_per_block = pieces,
                       .num_blocks = num_blocks,
                       .num_slots = me.num_slots};
  cudaError_t error = cudaSuccess;
  switch (way) {
    case Way::kPush: error = launch_push(copy, stream); break;
    case Way::kPull: error = launch_pull(copy, stream); break;
    case Way::kFetch: error = launch_fetch(copy, stream); break;
  }
  if (error != cudaSuccess) return cuda_status(error, "launch of the link probe");
  return cuda_status(cudaEventRecord(me.end, stream), "cudaEventRecord");
}

Result<double> seconds_of(const End& end) {
  const DeviceGuard guard(end.device);
  if (Status s = end.stream->synchronize("link probe"); !s.is_ok()) return s;
  float milliseconds = 0;
  const cudaError_t error = cudaEventElapsedTime(&milliseconds, end.begin, end.end);
  if (error != cudaSuccess) return cuda_status(error, "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

// GB/s of one direction, the median of the repeats; the slower one when both ends are at it.
Result<double> measure(const End& a, const End& b, Way way, int num_blocks, bool both_ways) {
  std::vector<double> rates;
  for (int repeat = 0; repeat <= kNumRepeats; ++repeat) {
    if (Status s = launch_copy(a, b, way, num_blocks); !s.is_ok()) return s;
    if (both_ways) {
      if (Status s = launch_copy(b, a, way, num_blocks); !s.is_ok()) return s;
    }
    Result<double> seconds = seconds_of(a);
    if (!seconds.is_ok()) return seconds;
    double slower = seconds.value();
    if (both_ways) {
      Result<double> theirs = seconds_of(b);
      if (!theirs.is_ok()) return theirs;
      slower = std::max(slower, theirs.value());
    }
    const std::int64_t pieces = kProbeBytes / kProbePieceBytes / num_blocks;
    const double moved = static_cast<double>(pieces) * num_blocks * kProbePieceBytes;
    if (repeat > 0) rates.push_back(moved / slower * 1e-9);  // the first one warms up
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

Status measure_rates(const End& a, const End& b, ProbeRates& rates) {
  for (std::size_t i = 0; i < kProbeBlocks.size(); ++i) {
    const auto one = [&](Way way, bool both_ways, double& rate) {
      Result<double> measured = measure(a, b, way, kProbeBlocks[i], both_ways);
      if (measured.is_ok()) rate = measured.value();
      return measured.status();
    };
    Status s = one(Way::kPush, false, rates.push[i]);
    if (s.is_ok()) s = one(Way::kPull, false, rates.pull[i]);
    if (s.is_ok()) s = one(Way::kFetch, false, rates.fetch[i]);
    if (s.is_ok()) s = one(Way::kPush, true, rates.push_both[i]);
    if (s.is_ok()) s = one(Way::kPull, true, rates.pull_both[i]);
    if (s.is_ok()) s = one(Way::kFetch, true, rates.fetch_both[i]);
    if (!s.is_ok()) return s;
  }
  return Status::ok();
}

// The signals lie at the begin of `source`, which copies only read and nothing has written: zero.
// The result lies behind them.
struct SignalPage {
  protocol::SlotSignal signal;
  alignas(128) std::uint64_t nanoseconds;
};

Status play(const End& me, const End& peer, bool is_first, std::uint32_t num_rounds) {
  const DeviceGuard guard(me.device);
  auto* mine = reinterpret_cast<SignalPage*>(me.source->data());
  auto* theirs = reinterpret_cast<SignalPage*>(peer.source->data());
  const PingPong game{.mine = &mine->signal,
                      .theirs = &theirs->signal,
                      .is_first = is_first,
                      .num_warm = kWarmRounds,
                      .num_rounds = num_rounds,
                      .nanoseconds = &mine->nanoseconds};
  return cuda_status(launch_ping_pong(game, me.stream->get()), "launch of ping_pong");
}

Result<double> measure_ping_pong(const End& a, const End& b) {
  // The empty round loads the kernel on both devices: loading may wait for a kernel that runs.
  for (const std::uint32_t num_rounds : {0U, kWarmRounds + kTimedRounds}) {
    if (Status s = play(a, b, true, num_rounds); !s.is_ok()) return s;
    if (Status s = play(b, a, false, num_rounds); !s.is_ok()) return s;
    for (const End* end : {&a, &b}) {
      const DeviceGuard guard(end->device);
      if (Status s = end->stream->synchronize("ping_pong"); !s.is_ok()) return s;
    }
  }
  std::uint64_t nanoseconds = 0;
  const auto* page = reinterpret_cast<const SignalPage*>(a.source->data());
  const cudaError_t error =
      cudaMemcpy(&nanoseconds, &page->nanoseconds, sizeof(nanoseconds), cudaMemcpyDefault);
  if (error != cudaSuccess) return cuda_status(error, "cudaMemcpy");
  if (nanoseconds == kSignalLost) {
    return Status(StatusCode::kTimeout, Subsystem::kSymmetric,
                  {.what = fmt::format("signal between devices {} and {}", a.device, b.device),
                   .observed = "nothing within two seconds",
                   .expected = "an answer within microseconds",
                   .hint = "slipstream info runs the self-test of this pair"});
  }
  return static_cast<double>(nanoseconds) * 1e-3 / kTimedRounds;
}

}  // namespace

Result<LinkProbe> probe_link(int from, int to) {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess) return cuda_status(error, "number of GPUs");
  for (const int device : {from, to}) {
    if (device >= 0 && device < num_devices) continue;
    return invalid_argument(Subsystem::kSymmetric,
                            {.what = "device of the link probe",
                             .observed = fmt::format("{}", device),
                             .expected = fmt::format("0..{}", num_devices - 1),
                             .hint = {}});
  }
  Result<std::unique_ptr<End>> a = make_end(from, to);
  if (!a.is_ok()) return a.status();
  Result<std::unique_ptr<End>> b = make_end(to, from);
  if (!b.is_ok()) return b.status();
  LinkProbe probe{.from = from, .to = to};
  Result<double> ping_pong_us = measure_ping_pong(*a.value(), *b.value());
  if (!ping_pong_us.is_ok()) return ping_pong_us.status();
  probe.ping_pong_us = ping_pong_us.value();
  Status s = measure_rates(*a.value(), *b.value(), probe.rates);
  if (!s.is_ok()) return s;
  return probe;
}

}  // namespace slipstream
