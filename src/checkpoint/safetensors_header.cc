#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace slipstream {

namespace {

using nlohmann::json;

struct TypeName {
  StoredType type;
  std::string_view text;
  int bytes;
};

constexpr TypeName kTypes[] = {
    {StoredType::kBool, "BOOL", 1},      {StoredType::kU8, "U8", 1},
    {StoredType::kI8, "I8", 1},          {StoredType::kF8E4M3, "F8_E4M3", 1},
    {StoredType::kF8E5M2, "F8_E5M2", 1}, {StoredType::kU16, "U16", 2},
    {StoredType::kI16, "I16", 2},        {StoredType::kF16, "F16", 2},
    {StoredType::kBF16, "BF16", 2},      {StoredType::kU32, "U32", 4},
    {StoredType::kI32, "I32", 4},        {StoredType::kF32, "F32", 4},
    {StoredType::kU64, "U64", 8},        {StoredType::kI64, "I64", 8},
    {StoredType::kF64, "F64", 8},
};

Status file_error(std::string_view path, std::string_view what, std::string observed,
                  std::string expected, std::string hint) {
  return Status(StatusCode::kFileError, Subsystem::kCheckpoint,
                {.what = fmt::format("{}: {}", quoted_name(path), what),
                 .observed = std::move(observed),
                 .expected = std::move(expected),
                 .hint = std::move(hint)});
}

// One tensor as the header tells it, nothing believed yet.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// Builds the entries while the JSON is read. No tree of the document exists: a hostile header costs
// memory in proportion to what it could describe, and a name given twice is seen.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;  // what stopped the parser, as "observed, expected ..."
  std::string wanted;

  bool null() override { return refuse("null"); }
  bool boolean(bool value) override { return refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return refuse(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return refuse(text); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return refuse(fmt::format("{}", value));
    std::vector<std::uint64_t>& list = at_ == At::kShape ? entry_.shape : entry_.offsets;
    const std::size_t limit = at_ == At::kShape ? kMaxDimensions : 2;
    if (list.size() == limit) {
      return stop(fmt::format("a list of more than {} numbers", limit),
                  at_ == At::kShape ? fmt::format("at most {} dimensions", limit)
                                    : std::string("data_offsets of 2 numbers"));
    }
    list.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::kDtype) {
      entry_.dtype = value;
      entry_.has_dtype = true;
      at_ = At::kTensor;
      return true;
    }
    if (at_ == At::kMetadataValue) {
      metadata[metadata_key_] = value;
      at_ = At::kMetadata;
      return true;
    }
    return refuse(quoted_name(value));
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) {
      at_ = At::kTop;
    } else if (at_ == At::kTopValue) {
      at_ = entry_.name == "__metadata__" ? At::kMetadata : At::kTensor;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (at_ == At::kTop) {
      if (!names_.insert(name).second) return stop(quoted_name(name) + " twice", "every name once");
      entry_ = Entry{.name = name};
      at_ = At::kTopValue;
      return true;
    }
    if (at_ == At::kMetadata) {
      metadata_key_ = name;
      at_ = At::kMetadataValue;
      return true;
    }
    bool* seen = nullptr;
    if (name == "dtype") {
      at_ = At::kDtype;
      seen = &entry_.has_dtype;
    } else if (name == "shape") {
      at_ = At::kShape;
      seen = &entry_.has_shape;
    } else if (name == "data_offsets") {
      at_ = At::kOffsets;
      seen = &entry_.has_offsets;
    } else {
      return stop(fmt::format("the key {} in {}", quoted_name(name), quoted_name(entry_.name)),
                  "dtype, shape and data_offsets");
    }
    if (*seen) return stop(fmt::format("{} twice in {}", name, quoted_name(entry_.name)), "once");
    return true;
  }

  bool end_object() override {
    if (at_ == At::kTensor) {
      if (!entry_.has_dtype || !entry_.has_shape || !entry_.has_offsets) {
        return stop(fmt::format("{} without {}", quoted_name(entry_.name),
                                !entry_.has_dtype   ? "dtype"
                                : !entry_.has_shape ? "shape"
                                                    : "data_offsets"),
                    "dtype, shape and data_offsets");
      }
      entries.push_back(std::move(entry_));
      at_ = At::kTop;
    } else if (at_ == At::kMetadata) {
      at_ = At::kTop;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if ((at_ != At::kShape && at_ != At::kOffsets) || in_array_) return refuse("a list");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    (at_ == At::kShape ? entry_.has_shape : entry_.has_offsets) = true;
    in_array_ = false;
    at_ = At::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return stop(fmt::format("broken at byte {} of the header", position), "JSON in UTF-8");
  }

 private:
  enum class At {
    kStart,
    kTop,
    kTopValue,
    kTensor,
    kDtype,
    kShape,
    kOffsets,
    kMetadata,
    kMetadataValue
  };

  bool stop(std::string observed, std::string expected) {
    problem = std::move(observed);
    wanted = std::move(expected);
    return false;
  }

  // A JSON value of the wrong kind for where it stands.
  bool refuse(std::string value) {
    const std::string tensor = quoted_name(entry_.name);
    switch (at_) {
      case At::kStart: return stop(std::move(value), "an object");
      case At::kTop:
      case At::kTopValue:
      case At::kTensor: return stop(fmt::format("{} for {}", value, tensor), "an object");
      case At::kDtype: return stop(fmt::format("{} as dtype of {}", value, tensor), "a string");
      case At::kShape:
        return stop(fmt::format("{} as shape of {}", value, tensor),
                    "a list of whole numbers, 0 or more");
      case At::kOffsets:
        return stop(fmt::format("{} as data_offsets of {}", value, tensor),
                    "a list of two whole numbers, 0 or more");
      case At::kMetadata:
      case At::kMetadataValue:
        return stop(fmt::format("{} in __metadata__", value), "strings only");
    }
    return false;
  }

  At at_ = At::kStart;
  bool in_array_ = false;
  Entry entry_;
  std::string metadata_key_;
  std::unordered_set<std::string> names_;
};

Result<StoredTensor> check_entry(const Entry& entry, std::span<const std::byte> data,
                                 std::string_view path) {
  const std::string what = fmt::format("tensor {}", quoted_name(entry.name));
  StoredTensor tensor;
  tensor.name = entry.name;
  const std::optional<StoredType> type = find_stored_type(entry.dtype);
  if (!type) {
    std::string known;
    for (const TypeName& name : kTypes)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name.text);
    return file_error(path, what + " dtype", quoted_name(entry.dtype), "one of " + known,
                      "convert the tensor");
  }
  tensor.type = *type;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  bool fits = true;
  for (std::uint64_t size : entry.shape) {
    fits = fits && size <= kMax;
    tensor.shape.push_back(static_cast<std::int64_t>(std::min(size, kMax)));
  }
  const std::optional<std::int64_t> product = shape_product(tensor.shape);
  std::int64_t bytes = 0;
  fits = fits && product &&
         !__builtin_mul_overflow(*product, std::int64_t{element_bytes(*type)}, &bytes);
  if (!fits) {
    return file_error(path, what + " shape", fmt::format("[{}]", fmt::join(entry.shape, ", ")),
                      "a size below 2^63 bytes", "the header is broken; write the file again");
  }
  tensor.num_elements = *product;
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1] ||
      entry.offsets[1] > data.size()) {
    return file_error(path, what + " data_offsets",
                      fmt::format("[{}]", fmt::join(entry.offsets, ", ")),
                      fmt::format("[begin, end] within the {} data bytes of the file", data.size()),
                      "the file is truncated or its header wrong; copy it again");
  }
  if (entry.offsets[1] - entry.offsets[0] != static_cast<std::uint64_t>(bytes)) {
    return file_error(
        path, what + " data_offsets", fmt::format("[{}]", fmt::join(entry.offsets, ", ")),
        fmt::format("{} bytes for {} {}", bytes, entry.dtype, shape_to_string(tensor.shape)),
        "the header contradicts itself; write the file again");
  }
  tensor.data = data.subspan(entry.offsets[0], static_cast<std::size_t>(bytes));
  return tensor;
}

// The format allows no overlaps and no holes: both are how a lying header hides something.
Status check_coverage(const std::vector<StoredTensor>& tensors, std::span<const std::byte> data,
                      std::string_view path) {
  std::size_t covered = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto begin = static_cast<std::size_t>(tensor.data.data() - data.data());
    if (begin != covered) {
      return file_error(path, fmt::format("tensor {} begin", quoted_name(tensor.name)),
                        fmt::format("{}", begin),
                        fmt::format("{}, where the tensor before it ends", covered),
                        begin < covered ? "tensors may not overlap" : "tensors leave no hole");
    }
    covered = begin + tensor.data.size();
  }
  if (covered != data.size()) {
    return file_error(path, "size of the data", fmt::format("{} bytes", data.size()),
                      fmt::format("{} as the header describes", covered),
                      "the file has bytes that no tensor owns; write it again");
  }
  return Status::ok();
}

}  // namespace

std::string_view to_string(StoredType type) {
  for (const TypeName& name : kTypes)
    if (name.type == type) return name.text;
  return "unknown";
}

int element_bytes(StoredType type) {
  for (const TypeName& name : kTypes)
    if (name.type == type) return name.bytes;
  return 1;
}

std::optional<StoredType> find_stored_type(std::string_view text) {
  for (const TypeName& name : kTypes)
    if (name.text == text) return name.type;
  return std::nullopt;
}

std::string shape_to_string(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kMaxShown = 200;
  std::string text = "'";
  for (char c : name.substr(0, kMaxShown)) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    text += is_control ? '?' : c;
  }
  return text + (name.size() > kMaxShown ? "...'" : "'");
}

std::optional<std::int64_t> shape_product(std::span<const std::int64_t> shape) {
  std::int64_t product = 1;
  bool is_empty = false;
  for (std::int64_t size : shape) {
    if (size == 0) {
      is_empty = true;
    } else if (__builtin_mul_overflow(product, size, &product)) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : product;
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view path) {
  constexpr const char* kHint = "it is truncated or no safetensors file";
  if (file.size() < kHeaderLengthBytes) {
    return file_error(path, "size", fmt::format("{} bytes", file.size()),
                      "8 bytes of header length at least", kHint);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kHeaderLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  const std::uint64_t available = file.size() - kHeaderLengthBytes;
  if (length > std::min(available, kMaxHeaderBytes)) {
    return file_error(path, "header length", fmt::format("{}", length),
                      length > available ? fmt::format("at most the {} bytes left", available)
                                         : fmt::format("at most {}", kMaxHeaderBytes),
                      kHint);
  }
  const auto text = file.subspan(kHeaderLengthBytes, static_cast<std::size_t>(length));
  const auto data = file.subspan(kHeaderLengthBytes + static_cast<std::size_t>(length));

  HeaderHandler handler;
  const auto* begin = reinterpret_cast<const char*>(text.data());
  if (!json::sax_parse(begin, begin + text.size(), &handler)) {
    return file_error(path, "header", handler.problem, handler.wanted, kHint);
  }
  SafetensorsHeader header;
  header.metadata = std::move(handler.metadata);
  header.tensors.reserve(handler.entries.size());
  for (const Entry& entry : handler.entries) {
    Result<StoredTensor> tensor = check_entry(entry, data, path);
    if (!tensor.is_ok()) return tensor.status();
    header.tensors.push_back(std::move(tensor).value());
  }
  // Empty tensors before the one that starts at the same byte; names only settle their order.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) {
              return std::tuple(a.data.data(), a.data.size(), std::string_view(a.name)) <
                     std::tuple(b.data.data(), b.data.size(), std::string_view(b.name));
            });
  if (Status status = check_coverage(header.tensors, data, path); !status.is_ok()) return status;
  return header;
}

}  // namespace slipstream
