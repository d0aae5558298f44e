// The header of a safetensors file: from untrusted bytes to checked tensor descriptions.
// Called by safetensors.cc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "slipstream/status.h"

namespace slipstream {

// What the format's own library accepts. A header of a few MB describes the largest checkpoints.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kHeaderLengthBytes = 8;
inline constexpr std::size_t kMaxDimensions = 16;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by begin of their data
  std::map<std::string, std::string> metadata;
};

// Reads nothing outside of `file`. `path` is for messages.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view path);

std::optional<StoredType> find_stored_type(std::string_view text);

// In quotes, control characters and overlong names made harmless: messages are one line.
std::string quoted_name(std::string_view name);

// Elements of `shape`, or nothing where the product does not fit 63 bits. Zeros do not hide an
// overflow of the other dimensions: callers multiply some of them.
std::optional<std::int64_t> shape_product(std::span<const std::int64_t> shape);

}  // namespace slipstream
