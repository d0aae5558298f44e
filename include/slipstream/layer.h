// Layer: one rank's handle on a tensor-parallel MoE layer. Describe a Problem, make a Layer for a
// rank of a RankGroup and its weights, run it, read the Status.
//
//   auto group = RankGroup::in_process(4).value();
//   // on each of 4 threads:
//   auto layer = Layer::create(problem, group, rank, weights, {}).value();
//   Status status = layer.run({tokens, {ids, weights, T, K}}, out);
//
// The backend is an option, not another API. A call is collective: every rank of the group must run
// the same sequence of calls, each from its own thread or process. One Layer is used by one thread
// at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "slipstream/problem.h"
#include "slipstream/routing.h"
#include "slipstream/status.h"
#include "slipstream/tensor.h"
#include "slipstream/tuning.h"

namespace slipstream {

enum class Backend : std::int32_t { kAuto = 0, kHost = 1, kCuda = 2 };

std::string_view to_string(Backend backend);  // "auto", "host", "cuda"
Result<Backend> parse_backend(std::string_view text);

// How the host backend moves through a call. The bits of the result are the same.
enum class HostDrive : std::int32_t {
  kThreads = 0,     // the protocol in earnest: threads_per_rank workers, roles by ticket
  kSequential = 1,  // the last rank to arrive drives all ranks' roles in one legal order
};

// One rank's slice of the weights, row-major, K-contiguous (the layout of published checkpoints),
// I = Problem::intermediate_per_rank(). Either gate_up, or gate and up apart; never both.
//   gate_up [E * 2 * I, H]  per expert: I gate rows, then I up rows
//   gate    [E * I, H]      up [E * I, H]
//   down    [E * H, I]
// The caller keeps the memory alive as long as the layer.
struct Weights {
  TensorView gate_up;
  TensorView gate;
  TensorView up;
  TensorView down;
};

struct LayerInput {
  TensorView tokens;    // [T, H] of Problem::dtype; rows may be strided
  RoutingView routing;  // [T, K]
};

// The layer's own symmetric buffers. Tokens and routing written here are published without a copy:
// pass views of these pointers to run(). Capacity: Problem::max_tokens rows. Write only while no
// call runs; after a group error not before reset() has returned: a late peer may still read.
struct InputBuffers {
  TensorView tokens;                 // [max_tokens, H]
  std::int32_t* topk_ids = nullptr;  // [max_tokens, K]
  float* topk_weights = nullptr;     // [max_tokens, K]
};

// Seconds of this rank's last call. Phases overlap on purpose: they need not add up to the total.
struct PhaseTimes {
  double publish_plan = 0;
  double gather_gate_up = 0;
  double down_reduce_push = 0;
  double final_reduce = 0;
  double total = 0;
};

// Where the ranks of one TP group meet. Copyable handle; the last copy frees it.
class RankGroup {
 public:
  // Ranks are threads of this process. Errors: kInvalidArgument unless 1 <= num_ranks <= kMaxRanks.
  static Result<RankGroup> in_process(int num_ranks);

  int num_ranks() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit RankGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Symmetric memory and local buffers of one rank, sized for the largest of the problems that its
// layers will run. Layers that share one take turns on it, in the same order on every rank.
class Workspace {
 public:
  // Collective over the group. `limits` must be equal on all ranks in what is [wire]-relevant:
  // shape, dtype and capacity. Errors: kInvalidArgument, kOutOfMemory, kTimeout when a rank never
  // comes.
  static Result<Workspace> create(const Problem& limits, const RankGroup& group, int rank,
                                  Backend backend = Backend::kAuto,
                                  std::chrono::milliseconds timeout = std::chrono::seconds(30));

  // Bytes a rank allocates: symmetric (mapped into every peer) and local.
  static std::int64_t symmetric_bytes(const Problem& limits);

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Workspace(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

struct LayerOptions {
  Backend backend = Backend::kAuto;
  std::optional<Tuning> tuning;        // default_tuning() where absent
  std::optional<Workspace> workspace;  // one of its own where absent
  std::int32_t layer_tag = 0;          // part of the signature: ranks must call the same layer
  // A wait for a peer that lasts longer is a group error which names the peer.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  // Host backend.
  HostDrive host_drive = HostDrive::kThreads;
  int threads_per_rank = 1;  // >= 1
};

class Layer {
 public:
  // Collective over the group. Errors: kInvalidArgument (shapes, dtypes, strides, tuning),
  // kUnsupported (no such backend in this build or on this machine), kOutOfMemory, kTimeout.
  static Result<Layer> create(const Problem& problem, const RankGroup& group, int rank,
                              const Weights& weights, const LayerOptions& options);

  Layer(Layer&&) noexcept;
  Layer& operator=(Layer&&) noexcept;
  ~Layer();

  // Writes out [T, H]: for each of this rank's T tokens the weighted sum over its experts and over
  // all ranks. Rows without an expert are zero. Call errors leave `out` untouched on every rank and
  // the next good call works; group errors are sticky until reset().
  Status run(const LayerInput& input, const TensorView& out);

  // Collective: every rank calls it after a group error; returns when all have, or kTimeout.
  Status reset();

  // What the last run() returned.
  const Status& status() const;
  const Problem& problem() const;
  const Tuning& tuning() const;
  Backend backend() const;
  const PhaseTimes& phase_times() const;
  InputBuffers input_buffers();

  struct Impl;

 private:
  explicit Layer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Runs one call on all ranks of an in-process group, each from a thread of its own, and returns the
// first rank's error, or ok. layers[r], inputs[r] and outs[r] belong to rank r.
Status run_all_ranks(std::span<Layer> layers, std::span<const LayerInput> inputs,
                     std::span<const TensorView> outs);

}  // namespace slipstream
