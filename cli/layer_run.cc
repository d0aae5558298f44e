#include "layer_run.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

namespace slipstream::cli {

Result<std::vector<Layer>> create_layers(const LayerData& data, LayerOptions options) {
  const Result<RankGroup> group = RankGroup::in_process(data.num_ranks());
  if (!group.is_ok()) return group.status();
  options.timeout = std::chrono::minutes(10);
  const std::vector<Weights> weights = data.weights();
  std::vector<std::optional<Result<Layer>>> created(weights.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < weights.size(); ++r) {
    threads.emplace_back([&, r] {
      created[r].emplace(
          Layer::create(data.problem(), group.value(), static_cast<int>(r), weights[r], options));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Layer> layers;
  for (std::optional<Result<Layer>>& layer : created) {
    if (!layer->is_ok()) return layer->status();
    layers.push_back(std::move(*layer).value());
  }
  return layers;
}

Outputs::Outputs(const LayerData& data) {
  const Problem& problem = data.problem();
  for (int r = 0; r < data.num_ranks(); ++r) {
    const std::int64_t rows = data.rank(r).num_tokens;
    buffers_.emplace_back(rows * problem.hidden * dtype_bytes(problem.dtype));
    views_.push_back(dense_view(buffers_.back().data(), problem.dtype, rows, problem.hidden));
  }
}

void Outputs::poison() {
  for (Buffer& buffer : buffers_) {  // all bits set is a NaN in every type
    if (buffer.bytes() > 0)
      std::memset(buffer.data(), 0xff, static_cast<std::size_t>(buffer.bytes()));
  }
}

bool Outputs::equals(const Outputs& other) const {
  for (std::size_t r = 0; r < buffers_.size(); ++r) {
    const auto bytes = static_cast<std::size_t>(buffers_[r].bytes());
    if (bytes > 0 && std::memcmp(buffers_[r].data(), other.buffers_[r].data(), bytes) != 0)
      return false;
  }
  return true;
}

}  // namespace slipstream::cli
