// Writer: a deterministic header, then all data, into a temporary file that is renamed at the end.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"

namespace slipstream {

namespace {

Status bad_tensor(std::string what, std::string observed, std::string expected) {
  return invalid_argument(Subsystem::kCheckpoint, {.what = std::move(what),
                                                   .observed = std::move(observed),
                                                   .expected = std::move(expected),
                                                   .hint = {}});
}

Status cannot_write(const std::string& path, std::string observed, std::string expected,
                    std::string hint) {
  return Status(StatusCode::kFileError, Subsystem::kCheckpoint,
                {.what = fmt::format("output file {}", quoted_name(path)),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = std::move(hint)});
}

Status check_tensors(std::span<const TensorToWrite* const> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorToWrite& tensor = *tensors[i];
    const std::string what = fmt::format("tensor {}", quoted_name(tensor.name));
    if (tensor.name == "__metadata__")
      return bad_tensor("tensor name", "'__metadata__'", "a name that the format does not reserve");
    const std::optional<std::int64_t> count = shape_product(tensor.shape);
    std::int64_t bytes = 0;
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](auto n) { return n < 0; }) ||
        !count ||
        __builtin_mul_overflow(*count, std::int64_t{element_bytes(tensor.type)}, &bytes)) {
      return bad_tensor(what + " shape", shape_to_string(tensor.shape), "a size below 2^63 bytes");
    }
    if (tensor.data.size() != static_cast<std::size_t>(bytes)) {
      return bad_tensor(what, fmt::format("{} bytes", tensor.data.size()),
                        fmt::format("{} for {} {}", bytes, to_string(tensor.type),
                                    shape_to_string(tensor.shape)));
    }
    for (std::size_t j = 0; j < i; ++j)
      if (tensors[j]->name == tensor.name) return bad_tensor(what, "given twice", "names once");
  }
  return Status::ok();
}

// Length and JSON, padded with spaces so that the data start at a multiple of 8.
Result<std::string> make_header(std::span<const TensorToWrite* const> tensors,
                                const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t begin = 0;
  for (const TensorToWrite* tensor : tensors) {
    const std::size_t end = begin + tensor->data.size();
    nlohmann::ordered_json& entry = header[tensor->name];
    entry["dtype"] = to_string(tensor->type);
    entry["shape"] = tensor->shape;
    entry["data_offsets"] = {begin, end};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    return bad_tensor("a tensor name or metadata", "not UTF-8", "UTF-8 text");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string result;
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i)
    result += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xffU);
  return result + text;
}

bool write_all(int file, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

// Removed again unless it was renamed to its place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : path_(target + ".XXXXXX") {
    file_ = ::mkstemp(path_.data());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ >= 0) {
      ::close(file_);
      if (!is_renamed_) ::unlink(path_.c_str());
    }
  }

  int file() const { return file_; }

  // mkstemp makes files that only their owner reads; the result gets what the umask says.
  bool commit(const std::string& target) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(file_, 0666 & ~mask) != 0 || ::fsync(file_) != 0) return false;
    is_renamed_ = ::rename(path_.c_str(), target.c_str()) == 0;
    return is_renamed_;
  }

 private:
  std::string path_;
  int file_ = -1;
  bool is_renamed_ = false;
};

}  // namespace

Status check_output_path(const std::string& path) {
  // A rename over a device or a pipe would replace it.
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (path.empty() ||
      (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))) {
    return cannot_write(path,
                        std::filesystem::is_directory(status) ? "a directory" : "no regular file",
                        "a new or regular file", "give the name of a file");
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    return cannot_write(path, fmt::format("not writable ({})", std::strerror(errno)),
                        "a folder that can be written to", "make the folder or choose another");
  }
  return Status::ok();
}

Status write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return std::tuple(-element_bytes(a->type), std::string_view(a->name)) <
           std::tuple(-element_bytes(b->type), std::string_view(b->name));
  });
  if (Status status = check_tensors(order); !status.is_ok()) return status;
  const Result<std::string> header = make_header(order, metadata);
  if (!header.is_ok()) return header.status();

  if (Status status = check_output_path(path); !status.is_ok()) return status;
  std::error_code error;
  // A rename over a link would replace the link and not its target.
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error || target.empty()) target = path;

  TemporaryFile temporary(target.string());
  if (temporary.file() < 0) {
    return cannot_write(path, fmt::format("not writable ({})", std::strerror(errno)),
                        "a folder that can be written to", "make the folder or choose another");
  }
  bool is_written = write_all(temporary.file(), header.value().data(), header.value().size());
  for (const TensorToWrite* tensor : order)
    is_written =
        is_written && write_all(temporary.file(), tensor->data.data(), tensor->data.size());
  if (!is_written || !temporary.commit(target.string())) {
    return cannot_write(path, fmt::format("not writable ({})", std::strerror(errno)),
                        "room for the data", "free some space or choose another folder");
  }
  return Status::ok();
}

}  // namespace slipstream
