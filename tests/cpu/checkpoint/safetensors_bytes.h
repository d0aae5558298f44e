// Files in memory for the tests: any header text in front of any data, true or lying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace slipstream {

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i)
    file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xffU);
  return file.append(header).append(data);
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace slipstream
