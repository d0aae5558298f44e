// Reader: the mapping, and element access at any alignment. The checks are safetensors_header.cc's.
#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "checkpoint/safetensors_header.h"
#include "core/numeric.h"

namespace slipstream {

namespace {

Status cannot_open(const std::string& path, std::string observed, std::string expected) {
  return Status(StatusCode::kFileError, Subsystem::kCheckpoint,
                {.what = quoted_name(path),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = "check the path and its permissions"});
}

struct FileDescriptor {
  int value = -1;
  ~FileDescriptor() {
    if (value >= 0) ::close(value);
  }
};

class Mapping {
 public:
  Mapping(void* data, std::size_t size) : data_(data), size_(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data_, size_); }

 private:
  void* data_;
  std::size_t size_;
};

template <class T>
T load(const StoredTensor& tensor, std::int64_t index) {
  T value;
  std::memcpy(&value, tensor.data.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

Status wrong_type(const StoredTensor& tensor, const char* expected) {
  return invalid_argument(Subsystem::kCheckpoint,
                          {.what = fmt::format("dtype of tensor {}", quoted_name(tensor.name)),
                           .observed = std::string(to_string(tensor.type)),
                           .expected = expected,
                           .hint = "convert the tensor"});
}

}  // namespace

Status read_floats(const StoredTensor& tensor, std::int64_t begin, std::int64_t count,
                   float* target) {
  const auto each = [&](auto convert) {
    for (std::int64_t i = 0; i < count; ++i) target[i] = convert(begin + i);
  };
  switch (tensor.type) {
    case StoredType::kBF16:
      each([&](std::int64_t i) { return bf16_to_float(load<std::uint16_t>(tensor, i)); });
      return Status::ok();
    case StoredType::kF16:
      each([&](std::int64_t i) { return fp16_to_float(load<std::uint16_t>(tensor, i)); });
      return Status::ok();
    case StoredType::kF32:
      each([&](std::int64_t i) { return load<float>(tensor, i); });
      return Status::ok();
    case StoredType::kF64:
      each([&](std::int64_t i) { return static_cast<float>(load<double>(tensor, i)); });
      return Status::ok();
    default: return wrong_type(tensor, "BF16, F16, F32 or F64");
  }
}

Status read_integers(const StoredTensor& tensor, std::int64_t begin, std::int64_t count,
                     std::int64_t* target) {
  switch (tensor.type) {
    case StoredType::kI32:
      for (std::int64_t i = 0; i < count; ++i) target[i] = load<std::int32_t>(tensor, begin + i);
      return Status::ok();
    case StoredType::kI64:
      for (std::int64_t i = 0; i < count; ++i) target[i] = load<std::int64_t>(tensor, begin + i);
      return Status::ok();
    default: return wrong_type(tensor, "I32 or I64");
  }
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer before it is refused.
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0)
    return cannot_open(path, fmt::format("not readable ({})", std::strerror(errno)),
                       "a readable file");
  struct stat info = {};
  if (::fstat(file.value, &info) != 0)
    return cannot_open(path, fmt::format("not readable ({})", std::strerror(errno)),
                       "a readable file");
  if (!S_ISREG(info.st_mode)) {
    return cannot_open(path, S_ISDIR(info.st_mode) ? "a directory" : "no regular file",
                       "a safetensors file");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return parse({}, path);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED)
    return cannot_open(path, fmt::format("not readable ({})", std::strerror(errno)),
                       "a file that can be mapped");
  auto mapping = std::make_shared<const Mapping>(data, size);
  Result<SafetensorsFile> result = parse({static_cast<const std::byte*>(data), size}, path);
  if (result.is_ok()) result.value().mapping_ = std::move(mapping);
  return result;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                               const std::string& name) {
  Result<SafetensorsHeader> header = parse_safetensors_header(bytes, name);
  if (!header.is_ok()) return header.status();
  SafetensorsFile file;
  file.path_ = name;
  file.tensors_ = std::move(header.value().tensors);
  file.metadata_ = std::move(header.value().metadata);
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const StoredTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace slipstream
