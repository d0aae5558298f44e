// --input FILE.safetensors: a whole layer with FULL weights, cut here into the ranks' slices. The
// names and shapes are those of docs/input_format.md. Used by `run`; the format's own checks are in
// checkpoint/safetensors.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "layer_data.h"
#include "slipstream/status.h"
#include "slipstream/tensor.h"

namespace slipstream::cli {

// A file whose names, dtypes and shapes were checked against each other. The pointers lead into
// `file`; moving the whole keeps them valid.
struct InputFile {
  SafetensorsFile file;
  const StoredTensor* hidden_states = nullptr;  // [T, H]
  const StoredTensor* topk_ids = nullptr;       // [T, K]
  const StoredTensor* topk_weights = nullptr;   // [T, K]
  const StoredTensor* w_gate_up = nullptr;      // [E, 2 * I, H], or null and
  const StoredTensor* w_gate = nullptr;         // [E, I, H]
  const StoredTensor* w_up = nullptr;           // [E, I, H]
  const StoredTensor* w_down = nullptr;         // [E, H, I]

  std::int32_t num_experts = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;  // I, full width
  std::int32_t topk = 0;
  std::int32_t num_tokens = 0;  // T, over all ranks
  DType dtype = DType::kBF16;   // of hidden_states
  std::optional<std::vector<std::int32_t>> tokens_per_rank;
  std::vector<std::string> ignored;  // tensors of other names
};

// Maps the file; reads no values but tokens_per_rank. Errors: kFileError with the file, the tensor,
// and both shapes.
Result<InputFile> open_input_file(const std::string& path);

// Converts to the problem's dtype and cuts the slices. `data` has this file's shape and token
// count. Errors: kFileError for NaN, infinities, values that fp16 cannot hold, and ids that are
// neither -1 nor an expert; with the element and its value.
Status fill_from_file(const InputFile& input, LayerData* data);

Status input_error(const std::string& path, const std::string& what, std::string observed,
                   std::string expected, std::string hint);

}  // namespace slipstream::cli
