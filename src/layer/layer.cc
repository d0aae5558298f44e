// Layer: checks, then the backend. Next: host/drive.h for what a call does.
#include <fmt/format.h>

#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "host/drive.h"
#include "host/host_gemm.h"
#include "layer/checks.h"
#include "layer/impl.h"

namespace slipstream {

namespace {

// More threads than this on one rank is a mistake in a caller's arithmetic.
constexpr int kMaxThreadsPerRank = 1024;

Status check_options(const LayerOptions& options) {
  if (options.threads_per_rank < 1 || options.threads_per_rank > kMaxThreadsPerRank) {
    return invalid_argument(Subsystem::kLayer,
                            {.what = "threads_per_rank",
                             .observed = fmt::format("{}", options.threads_per_rank),
                             .expected = fmt::format("1..{}", kMaxThreadsPerRank),
                             .hint = "one is enough; more than the rank's cores gain nothing"});
  }
  return Status::ok();
}

Status does_not_fit(const char* name, std::int64_t value, std::int64_t limit) {
  return invalid_argument(Subsystem::kLayer,
                          {.what = fmt::format("{} of the layer", name),
                           .observed = fmt::format("{}", value),
                           .expected = fmt::format("at most {}, the workspace's limit", limit),
                           .hint = "create the workspace for the largest of its layers"});
}

Status check_workspace(const Problem& problem, const RankGroup& group, int rank, Backend backend,
                       const Workspace::Impl& workspace) {
  if (workspace.group != group.impl() || workspace.rank != rank || workspace.backend != backend) {
    return invalid_argument(
        Subsystem::kLayer,
        {.what = "workspace",
         .observed = fmt::format("one of rank {}, backend {}, {} group", workspace.rank,
                                 to_string(workspace.backend),
                                 workspace.group == group.impl() ? "the same" : "another"),
         .expected =
             fmt::format("rank {}, backend {}, the layer's group", rank, to_string(backend)),
         .hint = "each rank creates a workspace of its own on the layer's group"});
  }
  const Problem& limits = workspace.limits;
  const struct {
    const char* name;
    std::int64_t value;
    std::int64_t limit;
  } dimensions[] = {{"num_experts", problem.num_experts, limits.num_experts},
                    {"hidden", problem.hidden, limits.hidden},
                    {"intermediate", problem.intermediate, limits.intermediate},
                    {"topk", problem.topk, limits.topk},
                    {"max_tokens", problem.max_tokens, limits.max_tokens},
                    {"bytes of an element", dtype_bytes(problem.dtype), dtype_bytes(limits.dtype)}};
  for (const auto& dimension : dimensions) {
    if (dimension.value > dimension.limit)
      return does_not_fit(dimension.name, dimension.value, dimension.limit);
  }
  return Status::ok();
}

Status broken_group(const Status& error) {
  return Status(StatusCode::kGroupBroken, Subsystem::kLayer,
                {.what = "group",
                 .observed = fmt::format("broken by an earlier error ({})", error.message()),
                 .expected = "none since the last reset",
                 .hint = "call reset() on every rank",
                 .culprit_rank = error.culprit_rank()});
}

}  // namespace

Layer::Layer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Layer::Layer(Layer&&) noexcept = default;
Layer& Layer::operator=(Layer&&) noexcept = default;
Layer::~Layer() = default;

Result<Layer> Layer::create(const Problem& problem, const RankGroup& group, int rank,
                            const Weights& weights, const LayerOptions& options) {
  // All that can be seen by this rank alone comes before the first collective step.
  if (Status status = validate(problem); !status.is_ok()) return status;
  if (Status status = check_group(problem, group, rank, options.timeout); !status.is_ok())
    return status;
  const Result<Backend> backend = resolve_backend(options.backend);
  if (!backend.is_ok()) return backend.status();
  const std::int64_t tokens_per_call = std::int64_t{problem.num_ranks} * problem.max_tokens;
  const Tuning tuning = options.tuning.value_or(default_tuning(problem, tokens_per_call));
  if (Status status = validate(tuning, problem); !status.is_ok()) return status;
  if (Status status = check_options(options); !status.is_ok()) return status;
  if (Status status = check_weights(problem, weights); !status.is_ok()) return status;
  std::shared_ptr<Workspace::Impl> workspace;
  if (options.workspace) {
    workspace = options.workspace->impl();
    const Status status = check_workspace(problem, group, rank, backend.value(), *workspace);
    if (!status.is_ok()) return status;
  }

  auto impl = std::make_unique<Impl>();
  impl->problem = problem;
  impl->tuning = tuning;
  impl->backend = backend.value();
  impl->host_drive = options.host_drive;
  impl->timeout = options.timeout;
  try {
    impl->host.weights = host::HostWeights(problem, weights);
  } catch (const std::bad_alloc&) {
    return Status(
        StatusCode::kOutOfMemory, Subsystem::kHost,
        {.what = "weights in fp32",
         .observed = fmt::format("{} bytes", 2 * (weights.gate_up.bytes() + weights.gate.bytes() +
                                                  weights.up.bytes() + weights.down.bytes())),
         .expected = "what the machine can give",
         .hint = "fp32 weights are used where they are"});
  }
  if (!workspace) {
    const auto own = Workspace::create(problem, group, rank, backend.value(), options.timeout);
    if (!own.is_ok()) return own.status();
    workspace = own.value().impl();
  }
  impl->workspace = workspace;

  host::HostRank& host_rank = *impl->workspace->host;
  host::HostLayer& host_layer = impl->host;
  host_layer.problem = problem;
  host_layer.tuning = tuning;
  host_layer.signature =
      make_signature(problem, tuning, options.layer_tag, host_rank.peers.shape.plane_bytes(),
                     Transfer::kPush, Path::kFused);
  host_layer.schedule_shape = schedule_shape(problem, tuning, rank);
  host_layer.num_blocks = options.host_drive == HostDrive::kThreads ? options.threads_per_rank : 1;
  host::use_one_gemm_thread();
  const std::lock_guard lock(host_rank.call_mutex);
  const std::int64_t num_bytes = host::local_bytes(host::largest_local_shape(host_layer));
  if (Status status = host_rank.ensure_local(num_bytes); !status.is_ok()) return status;
  if (Status status = host_rank.launcher.ensure_helpers(host_layer.num_blocks - 1); !status.is_ok())
    return status;
  return Layer(std::move(impl));
}

Status Layer::run(const LayerInput& input, const TensorView& out) {
  const auto begin = std::chrono::steady_clock::now();
  Status& status = impl_->status;
  status = check_call(impl_->problem, input, out, input_buffers());
  if (!status.is_ok()) return status;

  host::HostRank& host_rank = *impl_->workspace->host;
  const std::lock_guard lock(host_rank.call_mutex);
  if (const Status error = host_rank.group_error(); !error.is_ok()) {
    status = broken_group(error);
    return status;
  }
  host_rank.set_timeout(impl_->timeout);
  impl_->phase_times = PhaseTimes{};
  host::HostCall call(host_rank, impl_->host, input, out, impl_->host.num_blocks);
  status = impl_->host_drive == HostDrive::kThreads
               ? host::run_with_threads(call, impl_->phase_times)
               : host_rank.meeting->run(call, impl_->phase_times);
  impl_->phase_times.total =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return status;
}

Status Layer::reset() {
  host::HostRank& host_rank = *impl_->workspace->host;
  const std::lock_guard lock(host_rank.call_mutex);
  host_rank.set_timeout(impl_->timeout);
  return host_rank.reset();
}

const Status& Layer::status() const { return impl_->status; }
const Problem& Layer::problem() const { return impl_->problem; }
const Tuning& Layer::tuning() const { return impl_->tuning; }
Backend Layer::backend() const { return impl_->backend; }
const PhaseTimes& Layer::phase_times() const { return impl_->phase_times; }

InputBuffers Layer::input_buffers() {
  const Region own = impl_->workspace->host->peers.own();
  const Problem& problem = impl_->problem;
  return InputBuffers{
      .tokens = dense_view(own.tokens, problem.dtype, problem.max_tokens, problem.hidden),
      .topk_ids = own.topk_ids,
      .topk_weights = own.topk_weights};
}

Status run_all_ranks(std::span<Layer> layers, std::span<const LayerInput> inputs,
                     std::span<const TensorView> outs) {
  const std::size_t num_ranks = layers.size();
  if (num_ranks == 0 || inputs.size() != num_ranks || outs.size() != num_ranks) {
    return invalid_argument(Subsystem::kLayer, {.what = "layers, inputs and outs",
                                                .observed = fmt::format("{}, {} and {}", num_ranks,
                                                                        inputs.size(), outs.size()),
                                                .expected = "one of each for every rank",
                                                .hint = {}});
  }
  std::vector<Status> statuses(num_ranks);
  const auto run_rank = [&](std::size_t rank) {
    statuses[rank] = layers[rank].run(inputs[rank], outs[rank]);
  };
  std::vector<std::thread> ranks;
  for (std::size_t rank = 1; rank < num_ranks; ++rank) ranks.emplace_back(run_rank, rank);
  run_rank(0);
  for (std::thread& rank : ranks) rank.join();
  for (const Status& status : statuses)
    if (!status.is_ok()) return status;
  return Status::ok();
}

}  // namespace slipstream
