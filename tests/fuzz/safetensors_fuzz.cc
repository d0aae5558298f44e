// libFuzzer: any bytes as a safetensors file. Whatever is accepted is read to its last element, so
// that the sanitizers see a tensor that reaches outside of the file. Built by preset "fuzz" only;
// tests/cpu/checkpoint has a plain test that damages files at random.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slipstream;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, "fuzz");
  if (!file.is_ok()) {
    if (file.status().message().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const StoredTensor& tensor : file.value().tensors()) {
    std::vector<float> floats(static_cast<std::size_t>(tensor.num_elements));
    std::vector<std::int64_t> integers(floats.size());
    const bool is_float = read_floats(tensor, 0, tensor.num_elements, floats.data()).is_ok();
    const bool is_integer = read_integers(tensor, 0, tensor.num_elements, integers.data()).is_ok();
    if (is_float && is_integer) std::abort();
    // Types that neither takes: touch every byte all the same.
    unsigned sum = 0;
    for (std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
    volatile unsigned sink = sum;
    (void)sink;
  }
  return 0;
}
