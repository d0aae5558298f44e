// The reader against files with known contents and known lies; the writer against the reader.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "safetensors_bytes.h"

namespace slipstream {
namespace {

using ::testing::HasSubstr;

Result<SafetensorsFile> parse(const std::string& file) {
  return SafetensorsFile::parse(as_bytes(file), "test.safetensors");
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

class SafetensorsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "slipstream-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

TEST(SafetensorsReader, ReadsEveryTypeThatTheLayerTakes) {
  // 1.5 in every float type; odd header length, so that nothing is aligned.
  const std::string header = R"({"b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
                             R"("h":{"dtype":"F16","shape":[1],"data_offsets":[2,4]},)"
                             R"("f":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                             R"("d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                             R"("i":{"dtype":"I32","shape":[1,1],"data_offsets":[16,20]},)"
                             R"("l":{"dtype":"I64","shape":[],"data_offsets":[20,28]},)"
                             R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[28,28]},)"
                             R"("__metadata__":{"made":"by hand"}})";
  const std::string data(
      "\xc0\x3f\x00\x3e\x00\x00\xc0\x3f\x00\x00\x00\x00\x00\x00\xf8\x3f"
      "\xff\xff\xff\xff\x05\x00\x00\x00\x00\x00\x00\x80",
      28);
  for (int spaces : {0, 1, 2, 3}) {
    const std::string file = safetensors_bytes(header + std::string(spaces, ' '), data);
    const Result<SafetensorsFile> result = parse(file);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    const SafetensorsFile& tensors = result.value();
    EXPECT_EQ(tensors.tensors().size(), 7U);
    EXPECT_EQ(tensors.metadata().at("made"), "by hand");
    for (const char* name : {"b", "h", "f", "d"}) {
      float value = 0;
      ASSERT_TRUE(read_floats(*tensors.find(name), 0, 1, &value).is_ok());
      EXPECT_EQ(value, 1.5F) << name;
    }
    std::int64_t value = 0;
    ASSERT_TRUE(read_integers(*tensors.find("i"), 0, 1, &value).is_ok());
    EXPECT_EQ(value, -1);
    ASSERT_TRUE(read_integers(*tensors.find("l"), 0, 1, &value).is_ok());
    EXPECT_EQ(value, std::numeric_limits<std::int64_t>::min() + 5);
    EXPECT_EQ(tensors.find("e")->num_elements, 0);
    EXPECT_EQ(tensors.find("none"), nullptr);
    float unused = 0;
    EXPECT_THAT(read_floats(*tensors.find("i"), 0, 1, &unused).message(), HasSubstr("I32"));
    EXPECT_THAT(read_integers(*tensors.find("f"), 0, 1, &value).message(), HasSubstr("F32"));
  }
}

TEST(SafetensorsReader, AcceptsAFileWithoutTensors) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).is_ok());
  EXPECT_TRUE(parse(safetensors_bytes("{}      ", "")).is_ok());
}

struct Lie {
  const char* header;
  std::size_t data_bytes;
  const char* wanted;  // part of the sentence: the value that is wrong
};

TEST(SafetensorsReader, RefusesLyingHeadersAndNamesTheValue) {
  const Lie lies[] = {
      {R"()", 0, "broken at byte"},
      {R"([])", 0, "a list"},
      {R"(7)", 0, "7"},
      {R"({"a")", 0, "broken at byte"},
      {R"({} x)", 0, "broken at byte"},
      {"{\"a\xff\":1}", 0, "broken at byte"},
      {R"({"a":1})", 0, "1 for 'a'"},
      {R"({"a":{}})", 0, "'a' without dtype"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "'a' without data_offsets"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "'a' without shape"},
      {R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "8 as dtype"},
      {R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", 1, "'U9'"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "-1 as shape"},
      {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, "1.5 as shape"},
      {R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, "'1' as shape"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, "a list as shape"},
      {R"({"a":{"dtype":"U8","shape":null,"data_offsets":[0,1]}})", 1, "null as shape"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
       1, "more than 16"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1, "[0, 1]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1]}})", 1, "[0, 1]"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "[0, 2]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "[1, 0]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "[0]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "more than 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1,
       "[0, 18446744073709551615]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}})", 1,
       "[18446744073709551615, 0]"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
       "[18446744073709551615]"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "[4294967296, 4294967296]"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
       "[2305843009213693952]"},
      {R"({"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "[0, 4294967296, 4294967296]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "'a' twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "shape twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "'x' in 'a'"},
      {R"({"__metadata__":{"a":1}})", 0, "1 in __metadata__"},
      {R"({"__metadata__":"a"})", 0, "'a' for '__metadata__'"},
      // Overlap, hole in front, hole between, bytes that nobody owns.
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "'b' begin is 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "'a' begin is 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "'b' begin is 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, "2 bytes"},
  };
  for (const Lie& lie : lies) {
    const std::string file = safetensors_bytes(lie.header, std::string(lie.data_bytes, '\0'));
    const Result<SafetensorsFile> result = parse(file);
    ASSERT_FALSE(result.is_ok()) << lie.header;
    EXPECT_EQ(result.status().code(), StatusCode::kFileError);
    EXPECT_THAT(result.status().message(), HasSubstr(lie.wanted)) << lie.header;
    EXPECT_THAT(result.status().message(), HasSubstr("test.safetensors"));
    EXPECT_THAT(result.status().message(), ::testing::Not(HasSubstr("\n")));
  }
}

TEST(SafetensorsReader, RefusesEveryTruncation) {
  const std::string file = safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", std::string(12, 'x'));
  ASSERT_TRUE(parse(file).is_ok());
  for (std::size_t size = 0; size < file.size(); ++size) {
    // A copy of exactly this size: a sanitizer sees a read past its end.
    const std::vector<char> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(SafetensorsFile::parse(as_bytes({part.data(), part.size()}), "part").is_ok())
        << size;
  }
}

TEST(SafetensorsReader, RefusesAHeaderLengthBeyondTheFileOrTheLimit) {
  std::string file = safetensors_bytes("{}", "");
  file[7] = '\x7f';
  EXPECT_THAT(parse(file).status().message(), HasSubstr("header length"));
  file = std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + std::string(100'000'002, ' ');
  EXPECT_THAT(parse(file).status().message(), HasSubstr("at most 100000000"));
}

TEST(SafetensorsReader, KeepsMessagesOnOneLine) {
  const std::string file = safetensors_bytes(R"({"a\n\u0000b":{"dtype":"\n"}})", "");
  const std::string message = parse(file).status().message();
  EXPECT_THAT(message, HasSubstr("'a??b'"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(SafetensorsFileTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(SafetensorsFile::open(path("none")).status().message(), HasSubstr("none"));
  EXPECT_THAT(SafetensorsFile::open(folder_.string()).status().message(), HasSubstr("directory"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsFile::open(path("fifo")).status().message(), HasSubstr("regular"));
  std::ofstream(path("empty")).flush();
  EXPECT_THAT(SafetensorsFile::open(path("empty")).status().message(), HasSubstr("0 bytes"));
}

TEST_F(SafetensorsFileTest, WritesWhatItReads) {
  const std::array<float, 3> floats = {1, -2, std::numeric_limits<float>::quiet_NaN()};
  const std::array<std::int64_t, 2> integers = {-7, 8};
  const std::array<std::uint16_t, 1> half = {0x3fc0};
  const TensorToWrite tensors[] = {
      {"half", StoredType::kBF16, {1}, std::as_bytes(std::span(half))},
      {"floats \"\\ \xc3\xbc", StoredType::kF32, {3, 1}, std::as_bytes(std::span(floats))},
      {"none", StoredType::kF32, {0, 3}, {}},
      {"integers", StoredType::kI64, {2}, std::as_bytes(std::span(integers))},
  };
  ASSERT_TRUE(write_safetensors(path("a"), tensors, {{"key", "value"}}).is_ok());
  const Result<SafetensorsFile> result = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(result.is_ok()) << result.status().message();
  ASSERT_EQ(result.value().tensors().size(), 4U);
  EXPECT_EQ(result.value().metadata().at("key"), "value");
  for (const TensorToWrite& wanted : tensors) {
    const StoredTensor* found = result.value().find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    EXPECT_EQ(found->type, wanted.type);
    EXPECT_EQ(found->shape, wanted.shape);
    EXPECT_TRUE(found->is_aligned());
    ASSERT_EQ(found->data.size(), wanted.data.size());
    if (!wanted.data.empty()) {
      EXPECT_EQ(std::memcmp(found->data.data(), wanted.data.data(), wanted.data.size()), 0);
    }
  }
  // Same tensors, same bytes, whatever order they are given in; nothing else is left behind.
  const TensorToWrite reversed[] = {tensors[3], tensors[2], tensors[1], tensors[0]};
  ASSERT_TRUE(write_safetensors(path("b"), reversed, {{"key", "value"}}).is_ok());
  EXPECT_EQ(read_file(path("a")), read_file(path("b")));
  EXPECT_EQ(num_files(), 2U);
}

TEST_F(SafetensorsFileTest, ReplacesAMappedFileWithoutTouchingItsReaders) {
  const std::array<float, 2> old_values = {1, 2};
  const std::array<float, 2> new_values = {3, 4};
  const TensorToWrite old_tensor = {
      "x", StoredType::kF32, {2}, std::as_bytes(std::span(old_values))};
  const TensorToWrite new_tensor = {
      "x", StoredType::kF32, {2}, std::as_bytes(std::span(new_values))};
  ASSERT_TRUE(write_safetensors(path("a"), {&old_tensor, 1}).is_ok());
  std::filesystem::create_symlink(path("a"), path("link"));
  const Result<SafetensorsFile> reader = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(write_safetensors(path("link"), {&new_tensor, 1}).is_ok());
  float value = 0;
  ASSERT_TRUE(read_floats(*reader.value().find("x"), 0, 1, &value).is_ok());
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  const Result<SafetensorsFile> after = SafetensorsFile::open(path("a"));
  ASSERT_TRUE(read_floats(*after.value().find("x"), 0, 1, &value).is_ok());
  EXPECT_EQ(value, 3);
}

TEST_F(SafetensorsFileTest, RefusesToWriteWhatItCannot) {
  const std::array<float, 2> values = {1, 2};
  const auto bytes = std::as_bytes(std::span(values));
  const TensorToWrite good = {"x", StoredType::kF32, {2}, bytes};
  const auto message = [&](const std::string& target, std::vector<TensorToWrite> tensors) {
    return write_safetensors(target, tensors).message();
  };
  EXPECT_THAT(message(path("no/folder"), {good}), HasSubstr("no/folder"));
  EXPECT_THAT(message(folder_.string(), {good}), HasSubstr("directory"));
  EXPECT_THAT(message("/dev/null", {good}), HasSubstr("no regular file"));
  EXPECT_THAT(message(path("a"), {good, good}), HasSubstr("twice"));
  EXPECT_THAT(message(path("a"), {{"x", StoredType::kF32, {3}, bytes}}), HasSubstr("8 bytes"));
  EXPECT_THAT(message(path("a"), {{"x", StoredType::kF32, {-2, -1}, bytes}}), HasSubstr("-2"));
  EXPECT_THAT(message(path("a"), {{"\xff", StoredType::kF32, {2}, bytes}}), HasSubstr("UTF-8"));
  EXPECT_THAT(message(path("a"), {{"__metadata__", StoredType::kF32, {2}, bytes}}),
              HasSubstr("reserve"));
  EXPECT_EQ(num_files(), 0U);
}

}  // namespace
}  // namespace slipstream
