// Tokens, routing and weights of all ranks in host memory, either random by seed (this file) or
// from a file (input_file.h). Used by `run`; fp32 values pass through the problem's dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "schedule/routing_generator.h"
#include "slipstream/layer.h"
#include "slipstream/problem.h"

namespace slipstream::cli {

// Memory that is not written before somebody has something to write into it.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes)
      : data_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes))),
        bytes_(bytes) {}

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::int64_t bytes_ = 0;
};

struct RankData {
  std::int32_t num_tokens = 0;
  Buffer tokens;                       // [T_r, H] of Problem::dtype
  std::vector<std::int32_t> topk_ids;  // [T_r, K]
  std::vector<float> topk_weights;     // [T_r, K]
  Buffer gate_up;                      // [E, 2 * I, H]
  Buffer down;                         // [E, H, I]
};

class LayerData {
 public:
  // Allocates; contents are for the caller to fill.
  LayerData(const Problem& problem, const std::vector<std::int32_t>& tokens_per_rank);

  const Problem& problem() const { return problem_; }
  int num_ranks() const { return problem_.num_ranks; }
  RankData& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  const RankData& rank(int r) const { return ranks_[static_cast<std::size_t>(r)]; }

  // Views for Layer and the reference; valid as long as this object.
  std::vector<LayerInput> inputs() const;
  std::vector<Weights> weights() const;

  static std::int64_t weight_bytes(const Problem& problem);  // over all ranks

 private:
  Problem problem_;
  std::vector<RankData> ranks_;
};

// body(i) for every i < count, on all cores.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

// Gives every rank its tokens' part of a routing over all ranks.
void set_routing(const Routing& routing, LayerData* data);

// Random tokens and weights, uniform and scaled so that outputs are of size 1. A value depends on
// its place in the full tensor and on the seed alone: the same layer whatever the number of ranks.
void fill_random(std::uint64_t seed, LayerData* data);

}  // namespace slipstream::cli
