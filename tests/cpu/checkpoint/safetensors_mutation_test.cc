// Files damaged at random, with printed seeds: the reader refuses or what it returns is inside the
// file. The bytes end at an unreadable page, so that a read past them kills the test in any build;
// tests/fuzz does the same guided by coverage.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>

#include "checkpoint/safetensors.h"
#include "safetensors_bytes.h"

namespace slipstream {
namespace {

// Memory whose last byte is followed by a page that nobody may touch.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t capacity) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    usable_ = (capacity + page - 1) / page * page;
    size_ = usable_ + page;
    base_ = static_cast<char*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(base_ + usable_, page, PROT_NONE);
  }
  ~GuardedBuffer() { ::munmap(base_, size_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::span<const std::byte> place(const std::string& bytes) {
    char* begin = base_ + usable_ - bytes.size();
    if (!bytes.empty()) std::memcpy(begin, bytes.data(), bytes.size());
    return as_bytes({begin, bytes.size()});
  }

 private:
  char* base_;
  std::size_t usable_;
  std::size_t size_;
};

std::vector<std::string> good_files() {
  return {
      safetensors_bytes("{}", ""),
      safetensors_bytes(R"({"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})",
                        std::string(24, 'x')),
      safetensors_bytes(R"({"__metadata__":{"format":"pt"},)"
                        R"("ids":{"dtype":"I64","shape":[4,1],"data_offsets":[0,32]},)"
                        R"("empty":{"dtype":"BF16","shape":[0,9],"data_offsets":[32,32]},)"
                        R"("w":{"dtype":"BF16","shape":[3],"data_offsets":[32,38]}} )",
                        std::string(38, '\x7f')),
  };
}

std::string mutate(std::string file, std::mt19937_64& random) {
  static const char* const kTokens[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "0",
                                        "-1",
                                        "1e999",
                                        "18446744073709551615",
                                        "9223372036854775808",
                                        "4294967296",
                                        "null",
                                        "\"a\":{}",
                                        "\\u0000",
                                        "\\ud800",
                                        "BF16",
                                        "I64",
                                        "data_offsets",
                                        "shape",
                                        "dtype",
                                        "__metadata__",
                                        "\xff",
                                        "\n"};
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const int num_edits = 1 + static_cast<int>(below(3));
  for (int edit = 0; edit < num_edits; ++edit) {
    const std::size_t at = below(file.size() + 1);
    switch (below(6)) {
      case 0: file.resize(below(file.size() + 1)); break;
      case 1: file.insert(at, kTokens[below(std::size(kTokens))]); break;
      case 2: file.erase(at, 1 + below(8)); break;
      case 3:
        if (at < file.size()) file[at] = static_cast<char>(random());
        break;
      case 4:  // a digit of a number: the damage that leaves valid JSON
        for (std::size_t i = at; i < file.size(); ++i) {
          if (file[i] < '0' || file[i] > '9') continue;
          file[i] = static_cast<char>('0' + below(10));
          break;
        }
        break;
      default: file.insert(at, file.substr(below(file.size() + 1), below(40))); break;
    }
    // Often make the length right again, so that the JSON behind it is reached.
    if (file.size() >= 8 && below(2) == 0) {
      const std::size_t end = file.rfind('}');
      const std::size_t length = end == std::string::npos || end < 8 ? 0 : end + 1 - 8;
      for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xffU);
    }
  }
  return file;
}

TEST(SafetensorsMutation, NeverReadsOutsideAndNeverReturnsOutside) {
  const std::uint64_t seed = 20261129;
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::vector<std::string> sources = good_files();
  GuardedBuffer buffer(1 << 16);
  int num_accepted = 0;
  int num_refused = 0;
  for (int round = 0; round < 60'000; ++round) {
    const std::string file = mutate(sources[random() % sources.size()], random);
    const std::span<const std::byte> bytes = buffer.place(file);
    const Result<SafetensorsFile> result = SafetensorsFile::parse(bytes, "mutated");
    if (!result.is_ok()) {
      ++num_refused;
      ASSERT_EQ(result.status().code(), StatusCode::kFileError);
      ASSERT_EQ(result.status().message().find('\n'), std::string::npos) << round;
      continue;
    }
    ++num_accepted;
    const std::byte* covered = nullptr;
    for (const StoredTensor& tensor : result.value().tensors()) {
      ASSERT_GE(tensor.data.data(), bytes.data());
      ASSERT_LE(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
      ASSERT_EQ(tensor.data.size(), static_cast<std::size_t>(tensor.num_elements) *
                                        static_cast<std::size_t>(element_bytes(tensor.type)));
      if (covered != nullptr) {
        ASSERT_EQ(tensor.data.data(), covered);
      }
      covered = tensor.data.data() + tensor.data.size();
      std::vector<float> floats(static_cast<std::size_t>(tensor.num_elements));
      std::vector<std::int64_t> integers(floats.size());
      const bool is_float = read_floats(tensor, 0, tensor.num_elements, floats.data()).is_ok();
      const bool is_integer =
          read_integers(tensor, 0, tensor.num_elements, integers.data()).is_ok();
      ASSERT_FALSE(is_float && is_integer);
    }
  }
  std::cout << num_accepted << " accepted, " << num_refused << " refused\n";
  // Both ways must be taken often, or the mutations test nothing.
  EXPECT_GT(num_accepted, 1000);
  EXPECT_GT(num_refused, 10'000);
}

}  // namespace
}  // namespace slipstream
