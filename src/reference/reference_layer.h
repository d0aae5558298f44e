// The naive layer: what every backend must equal. Obvious loops over experts, rows and columns,
// with no table, tile or protocol in sight. Called by tests, by the CLI's check and by nobody on a
// hot path. Next: relative_error.h, which compares.
#pragma once

#include <span>
#include <vector>

#include "slipstream/layer.h"
#include "slipstream/problem.h"

namespace slipstream {

// Computes the layer in T (double or float) from the stored values of `inputs[r]` and `weights[r]`,
// one of each per rank: tokens [T_r, H], routing [T_r, K], weights as in layer.h (fused or apart).
// Returns out[r] = [T_r, H] row-major. Ids outside 0..E-1 are skipped, duplicates are two rows, a
// row without an expert is zero. Views must be valid for `problem`: nothing is checked here.
template <class T>
std::vector<std::vector<T>> reference_layer(const Problem& problem,
                                            std::span<const LayerInput> inputs,
                                            std::span<const Weights> weights);

extern template std::vector<std::vector<double>> reference_layer<double>(
    const Problem&, std::span<const LayerInput>, std::span<const Weights>);
extern template std::vector<std::vector<float>> reference_layer<float>(const Problem&,
                                                                       std::span<const LayerInput>,
                                                                       std::span<const Weights>);

}  // namespace slipstream
