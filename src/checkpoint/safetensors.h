// safetensors files: a memory-mapped reader that believes nothing it has not checked, and a writer.
//
// A file is: 8 bytes little-endian header length N; N bytes of JSON, which gives for every tensor
// its dtype, shape and [begin, end) in the data; then the data, without holes. The command line
// tool reads its real input this way and writes its output. Read next: safetensors_header.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slipstream/status.h"

namespace slipstream {

// Element types of the format. Sorted by nothing; element_bytes() gives the size.
enum class StoredType : std::int32_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
};

std::string_view to_string(StoredType type);  // as the header spells it: "BF16"
int element_bytes(StoredType type);

// One tensor of a file. `data` points into the mapping, at any alignment: read it with
// read_floats() and read_integers(), or check is_aligned() first.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kU8;
  std::vector<std::int64_t> shape;
  std::int64_t num_elements = 0;
  std::span<const std::byte> data;

  bool is_aligned() const {
    return reinterpret_cast<std::uintptr_t>(data.data()) %
               static_cast<std::uintptr_t>(element_bytes(type)) ==
           0;
  }
};

// "[2, 3]"
std::string shape_to_string(std::span<const std::int64_t> shape);

// `count` elements from element `begin` on. Bounds are the caller's: begin + count <= num_elements.
// Errors: kInvalidArgument for a type that is not one of those named.
Status read_floats(const StoredTensor& tensor, std::int64_t begin, std::int64_t count,
                   float* target);  // BF16, F16, F32, F64
Status read_integers(const StoredTensor& tensor, std::int64_t begin, std::int64_t count,
                     std::int64_t* target);  // I32, I64

class SafetensorsFile {
 public:
  // Maps the file. Errors: kFileError with the file, the value and what was expected, for a file
  // that cannot be read or whose header lies: nothing outside of the file is ever touched.
  // A file that somebody else cuts short while it is mapped is beyond what a reader can check.
  static Result<SafetensorsFile> open(const std::string& path);

  // The same checks on bytes in memory, which must outlive the result. `name` is for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const StoredTensor* find(std::string_view name) const;  // null when there is none

 private:
  std::string path_;
  std::shared_ptr<const void> mapping_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  StoredType type = StoredType::kU8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// Writes all or nothing: a temporary file in the same folder, then a rename. Same tensors, same
// bytes; data are ordered by falling element size, then name, so that every tensor is aligned.
// Errors: kInvalidArgument (a name twice or not UTF-8, sizes that disagree), kFileError.
Status write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// Whether write_safetensors() could put a file there, before there is anything to write: a folder
// that can be written to, and no device, pipe or folder under that name. Errors: kFileError.
Status check_output_path(const std::string& path);

}  // namespace slipstream
