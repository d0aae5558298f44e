// Layers of all ranks in this process and their outputs: what `run` and `verify` have in common.
#pragma once

#include <vector>

#include "layer_data.h"
#include "slipstream/layer.h"
#include "slipstream/status.h"
#include "slipstream/tensor.h"

namespace slipstream::cli {

// One layer per rank. Creation is collective, so each is made by a thread of its own; the timeout
// is raised, since ranks that share a machine's cores are slow and not broken. `data` must outlive
// them.
Result<std::vector<Layer>> create_layers(const LayerData& data, LayerOptions options);

// out [T_r, H] of every rank.
class Outputs {
 public:
  explicit Outputs(const LayerData& data);

  void poison();                            // NaN everywhere: a row that nobody writes is seen
  bool equals(const Outputs& other) const;  // bit for bit

  const std::vector<TensorView>& views() const { return views_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }

 private:
  std::vector<Buffer> buffers_;
  std::vector<TensorView> views_;
};

}  // namespace slipstream::cli
