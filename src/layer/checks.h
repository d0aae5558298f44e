// What a caller hands to a Layer, checked before anything runs: every mistake is kInvalidArgument
// with the tensor's name, the value seen and the value wanted. Called by Layer::create and
// Layer::run.
#pragma once

#include "slipstream/layer.h"
#include "slipstream/problem.h"
#include "slipstream/status.h"

namespace slipstream {

// Fused or apart, never both; shapes, dtype, strides, null, alignment to the element.
Status check_weights(const Problem& problem, const Weights& weights);

// Routing, tokens and output of one call of one rank. `buffers` are the layer's own: inputs lie
// exactly at them (published in place) or do not touch them. `out` shares no byte with an input.
Status check_call(const Problem& problem, const LayerInput& input, const TensorView& out,
                  const InputBuffers& buffers);

// True when rows of `a` and rows of `b` share a byte. Two slices of one wider tensor do not.
bool overlaps(const TensorView& a, const TensorView& b);

}  // namespace slipstream
