#include "models/safetensors.h"

#include <sys/stat.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/checked.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::sru::testing::Checked;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

absl::Status ParseStatus(const std::string& bytes) {
  return SafetensorsFile::Parse(bytes, "test.safetensors").status();
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const std::string header = R"({"__metadata__":{"made_with":"a test"},)"
                             R"("b":)" +
                             Entry("F32", "[2,1]", "[0,8]") + R"(,"a":)" +
                             Entry("U8", "[]", "[8,9]") + R"(,"none":)" +
                             Entry("F64", "[3,0]", "[9,9]") + "}";
  std::string data(9, '\0');
  const float values[] = {1.5f, -2.0f};
  std::memcpy(data.data(), values, 8);
  data[8] = 7;
  const std::string bytes = RawSafetensors(header, data);
  auto file = Checked(SafetensorsFile::Parse(bytes, "test"));
  EXPECT_EQ((*file)->tensors().size(), 3u);
  EXPECT_EQ((*file)->metadata().at("made_with"), "a test");

  const TensorView* b = (*file)->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype.name, "F32");
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  auto floats = Checked((*file)->Floats("b", {2, 1}));
  ASSERT_EQ(floats->size, 2u);
  EXPECT_EQ(floats->data[0], 1.5f);
  EXPECT_EQ(floats->data[1], -2.0f);

  const TensorView* a = (*file)->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_TRUE(a->shape.empty());
  EXPECT_EQ(a->num_elements(), 1u);
  EXPECT_EQ(*static_cast<const uint8_t*>(a->data), 7);

  const TensorView* none = (*file)->Find("none");
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(none->bytes, 0u);
  EXPECT_EQ(none->data, nullptr);
  EXPECT_EQ((*file)->Find("absent"), nullptr);
}

// Every offset of the header's length, so that the data starts at every alignment.
TEST(SafetensorsTest, AlignsTensors) {
  for (int padding = 0; padding < 9; ++padding) {
    std::string header = R"({"byte":)" + Entry("U8", "[1]", "[0,1]") + R"(,"x":)" +
                         Entry("F32", "[2]", "[1,9]") + R"(,"y":)" + Entry("I64", "[1]", "[9,17]") +
                         "}";
    header.append(padding, ' ');
    std::string data(17, '\0');
    const float x[] = {3.0f, 4.0f};
    const int64_t y = -5;
    std::memcpy(data.data() + 1, x, 8);
    std::memcpy(data.data() + 9, &y, 8);
    const std::string bytes = RawSafetensors(header, data);
    auto file = Checked(SafetensorsFile::Parse(bytes, "test"));
    for (const auto& [name, view] : (*file)->tensors()) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % view.dtype.bytes, 0u) << name;
    }
    auto floats = Checked((*file)->Floats("x", {2}));
    EXPECT_EQ(floats->data[0], 3.0f);
    EXPECT_EQ(floats->data[1], 4.0f);
    EXPECT_EQ(*static_cast<const int64_t*>((*file)->Find("y")->data), -5);
  }
}

TEST(SafetensorsTest, RefusesBrokenFiles) {
  const std::string four(4, '\0');
  const std::string eight(8, '\0');
  const std::string valid = "{\"t\":" + Entry("F32", "[1]", "[0,4]") + "}";
  const auto one = [](const std::string& entry) { return "{\"t\":" + entry + "}"; };
  const auto two = [](const std::string& a, const std::string& b) {
    return "{\"a\":" + a + ",\"b\":" + b + "}";
  };
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";

  const struct {
    std::string bytes;
    std::string message;
  } kCases[] = {
      {"", "expected at least 8 bytes, found 0"},
      {"1234567", "expected at least 8 bytes, found 7"},
      {RawSafetensors(valid, four).substr(0, 20), "truncated"},
      {RawSafetensors(valid, four, ~uint64_t{0}), "found the length 18446744073709551615"},
      {RawSafetensors(valid, four, uint64_t{1} << 63), "found the length 9223372036854775808"},
      {RawSafetensors(valid, four, (16 << 20) + 1), "found the length 16777217"},
      {RawSafetensors("", ""), "not valid JSON"},
      {RawSafetensors("{", ""), "not valid JSON"},
      {RawSafetensors("{} x", ""), "not valid JSON"},
      {RawSafetensors("{/**/}", ""), "not valid JSON"},
      {RawSafetensors("{\"\xff\":1}", ""), "not valid JSON"},
      {RawSafetensors("[]", ""), "expected a JSON object, found an array of 0 values"},
      {RawSafetensors("3", ""), "expected a JSON object, found number"},
      {RawSafetensors(deep, ""), "nested deeper"},
      {RawSafetensors(one("[[[[1]]]]"), ""), "nested deeper"},
      {RawSafetensors("{\"t\":" + Entry("F32", "[1]", "[0,4]") +
                          ",\"t\":" + Entry("F32", "[1]", "[0,4]") + "}",
                      four),
       "key 't' appears twice"},
      {RawSafetensors(one(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
                      four),
       "key 'dtype' appears twice"},
      {RawSafetensors(R"({"__metadata__":3})", ""), "__metadata__: expected an object of strings"},
      {RawSafetensors(R"({"__metadata__":[]})", ""), "__metadata__: expected an object of strings"},
      {RawSafetensors(R"({"__metadata__":{"a":1}})", ""), "__metadata__"},
      {RawSafetensors(one("3"), ""), "expected an object with dtype"},
      {RawSafetensors(one(R"({"dtype":"F32","shape":[1]})"), four), "'data_offsets' is missing"},
      {RawSafetensors(one(R"({"dtype":"F32","data_offsets":[0,4]})"), four), "'shape' is missing"},
      {RawSafetensors(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"), four),
       "found 4 keys"},
      {RawSafetensors(one(Entry("F31", "[1]", "[0,4]")), four), "dtype: expected one of BOOL"},
      {RawSafetensors(one(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})"), four), "found 4"},
      {RawSafetensors(one(Entry("F32", "1", "[0,4]")), four),
       "shape: expected an array of at most 32 integers, found 1"},
      {RawSafetensors(
           one(Entry("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                     "[0,4]")),
           four),
       "found an array of 33"},
      {RawSafetensors(one(Entry("F32", "[-1]", "[0,4]")), four), "found -1"},
      {RawSafetensors(one(Entry("F32", "[1.0]", "[0,4]")), four), "found 1.0"},
      {RawSafetensors(one(Entry("F32", "[18446744073709551615]", "[0,4]")), four),
       "found 18446744073709551615"},
      {RawSafetensors(one(Entry("F32", "[4294967296,4294967296]", "[0,0]")), ""), "overflows"},
      {RawSafetensors(one(Entry("F32", "[4611686018427387905]", "[0,4]")), four), "overflows"},
      {RawSafetensors(one(Entry("F32", "[9223372036854775807,0,9223372036854775807]", "[0,0]")),
                      ""),
       "overflows"},
      {RawSafetensors(one(Entry("F32", "[1]", "[4,0]")), four), "found [4, 0]"},
      {RawSafetensors(one(Entry("F32", "[1]", "[4,8]")), four), "found [4, 8]"},
      {RawSafetensors(one(Entry("F32", "[2]", "[0,8]")), four), "truncated"},
      {RawSafetensors(one(Entry("F32", "[1]", "[0,3]")), four), "expected 4 bytes"},
      {RawSafetensors(one(Entry("F32", "[1]", "[18446744073709551615,3]")), four),
       "data_offsets: expected 0 <= begin"},
      {RawSafetensors(one(Entry("F32", "[1]", "[-4,0]")), four), "data_offsets: expected [begin"},
      {RawSafetensors(one(Entry("F32", "[1]", "[0,4,8]")), four), "data_offsets: expected [begin"},
      {RawSafetensors(one(Entry("F32", "[1]", "4")), four), "data_offsets: expected [begin"},
      {RawSafetensors(two(Entry("F32", "[1]", "[0,4]"), Entry("F32", "[1]", "[0,4]")), four),
       "overlap at offset 0"},
      {RawSafetensors(two(Entry("F32", "[2]", "[0,8]"), Entry("U8", "[1]", "[7,8]")), eight),
       "tensors 'a' and 'b' overlap at offset 7"},
      {RawSafetensors(two(Entry("F32", "[1]", "[0,4]"), Entry("U8", "[1]", "[7,8]")), eight),
       "bytes 4 to 7 of the data belong to no tensor"},
      {RawSafetensors(valid, eight), "bytes 4 to 8 of the data belong to no tensor"},
      {RawSafetensors("{}", four), "bytes 0 to 4 of the data belong to no tensor"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = ParseStatus(c.bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("test.safetensors: "), HasSubstr(c.message)));
  }
  EXPECT_TRUE(ParseStatus(RawSafetensors(valid, four)).ok());
  EXPECT_TRUE(ParseStatus(RawSafetensors("{}", "")).ok());
}

// Every prefix of a valid file is refused: nothing may depend on what follows the end.
// A value takes up to a hundred times the bytes of its text.
TEST(SafetensorsTest, RefusesHeadersOfManyValuesBeforeTheyAreBuilt) {
  std::string zeros = "0";
  for (int i = 0; i < 2000000; ++i) zeros += ",0";
  std::string keys = "\"a\":0";
  for (int i = 0; i < 300000; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[" + zeros + "],\"data_offsets\":[0,4]}}",
       "expected arrays of at most 256 elements"},
      {"{\"x\":[" + zeros + "]}", "expected arrays of at most 256 elements"},
      {"{" + keys + "}", "expected at most 262144 values"},
      {"{\"__metadata__\":{" + keys + "}}", "expected at most 262144 values"},
  };
  for (const auto& [header, expected] : cases) {
    const auto file = SafetensorsFile::Parse(RawSafetensors(header, "1234"), "m");
    ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(file.status().message()), ::testing::HasSubstr(expected));
  }
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string bytes = Safetensors({{"a", MakeTensor({2, 3})}, {"b", MakeTensor({4})}});
  ASSERT_TRUE(ParseStatus(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);  // a copy, so that ASan sees a read past its end
    EXPECT_EQ(ParseStatus(cut).code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(SafetensorsTest, FloatsNamesTensorExpectedAndFound) {
  TestTensors tensors = {
      {"x", MakeTensor({2, 3})}, {"nan", MakeTensor({70})}, {"inf", MakeTensor({2})}};
  tensors["nan"].values[69] = std::numeric_limits<float>::quiet_NaN();
  tensors["inf"].values[0] = -std::numeric_limits<float>::infinity();
  const std::string bytes = Safetensors(tensors);
  auto file = Checked(SafetensorsFile::Parse(bytes, "f"));
  EXPECT_TRUE((*file)->Floats("x", {2, 3}).ok());

  const absl::Status missing = (*file)->Floats("y", {2, 3}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "f: tensor 'y' is missing; expected F32 of shape [2, 3]");

  const absl::Status shape = (*file)->Floats("x", {3, 2}).status();
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(shape.message(), "f: tensor 'x': expected shape [3, 2], found [2, 3]");

  const absl::Status nan = (*file)->Floats("nan", {70}).status();
  EXPECT_EQ(nan.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(nan.message(), "f: tensor 'nan': expected finite values, found nan at element 69");
  EXPECT_EQ((*file)->Floats("inf", {2}).status().message(),
            "f: tensor 'inf': expected finite values, found -inf at element 0");

  const std::string half =
      RawSafetensors("{\"x\":" + Entry("F16", "[2]", "[0,4]") + "}", std::string(4, '\0'));
  auto wrong = Checked(SafetensorsFile::Parse(half, "f"));
  EXPECT_EQ((*wrong)->Floats("x", {2}).status().message(),
            "f: tensor 'x': expected dtype F32, found F16");
}

TEST(SafetensorsTest, OpensFiles) {
  TempDirectory directory;
  const std::string path =
      directory.Write("good.safetensors", Safetensors({{"x", MakeTensor({5})}}));
  auto file = Checked(SafetensorsFile::Open(path));
  EXPECT_EQ((*file)->source(), path);
  EXPECT_EQ((*file)->Floats("x", {5})->data[1], MakeTensor({5}).values[1]);

  const absl::Status absent = SafetensorsFile::Open(directory.path("absent")).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr(directory.path("absent")));

  EXPECT_EQ(SafetensorsFile::Open(directory.Write("empty", "")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(SafetensorsFile::Open(directory.path()).status().message()),
              HasSubstr("expected a regular file"));

  ASSERT_EQ(mkfifo(directory.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::Open(directory.path("pipe")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Whatever a header says, it is the same error as when the file is read whole.
TEST(SafetensorsTest, OpensFilesOnDemandAsItDoesWhole) {
  TempDirectory directory;
  const std::string good = Safetensors({{"m", MakeTensor({40, 50})}, {"v", MakeTensor({7})}});
  std::vector<std::string> contents = {
      good, "", "1234567", std::string(8, '\xff'), RawSafetensors("{", ""),
      RawSafetensors("{}", "1234"),
      RawSafetensors("{\"x\":" + Entry("F32", "[2]", "[0,8]") + "}", "1234"),
      // Not aligned: an odd number of bytes comes first.
      RawSafetensors("{\"v\":" + Entry("F32", "[1]", "[0,4]") + "} ",
                     std::string("\0\0\x80\x3f", 4))};
  for (size_t size = 0; size < 200; size += 9) contents.push_back(good.substr(0, size));
  for (size_t i = 0; i < contents.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string path = directory.Write("f", contents[i]);
    const auto whole = SafetensorsFile::Open(path);
    const auto on_demand = SafetensorsFile::OpenOnDemand(path);
    ASSERT_EQ(on_demand.status(), whole.status());
    if (!whole.ok()) continue;
    EXPECT_EQ((*whole)->weights(), nullptr);
    for (const auto& [name, tensor] : (*whole)->tensors()) {
      const auto expected = (*whole)->Floats(name, tensor.shape);
      const auto found = (*on_demand)->Floats(name, tensor.shape);
      ASSERT_TRUE(expected.ok() && found.ok()) << found.status();
      ASSERT_EQ(found->size, expected->size);
      const bool is_vector = tensor.shape.size() == 1;
      if (!is_vector) {
        EXPECT_FALSE((*on_demand)->CheckAllRead().ok());
        (*on_demand)->weights()->Read(*found);
      }
      EXPECT_TRUE(std::equal(found->data, found->data + found->size, expected->data)) << name;
    }
    EXPECT_TRUE((*on_demand)->CheckAllRead().ok()) << (*on_demand)->CheckAllRead();
  }
  EXPECT_EQ(SafetensorsFile::OpenOnDemand(directory.path("absent")).status(),
            SafetensorsFile::Open(directory.path("absent")).status());
  EXPECT_EQ(SafetensorsFile::OpenOnDemand(directory.path()).status(),
            SafetensorsFile::Open(directory.path()).status());
}

TEST(SafetensorsTest, VectorsAreCheckedAtOnceOnDemand) {
  TempDirectory directory;
  TestTensors tensors = {{"matrix", MakeTensor({2, 3})}, {"vector", MakeTensor({4})}};
  tensors["matrix"].values[4] = std::numeric_limits<float>::quiet_NaN();
  tensors["vector"].values[2] = std::numeric_limits<float>::quiet_NaN();
  const auto file =
      Checked(SafetensorsFile::OpenOnDemand(directory.Write("f", Safetensors(tensors))));
  EXPECT_TRUE((*file)->Floats("matrix", {2, 3}).ok());
  EXPECT_THAT(std::string((*file)->Floats("vector", {4}).status().message()),
              HasSubstr("tensor 'vector': expected finite values, found nan at element 2"));
}

TEST(SafetensorsTest, NamesEveryType) {
  for (const TensorType& type : kTensorTypes) {
    const std::string name(type.name);
    const std::string offsets = "[0," + std::to_string(type.bytes) + "]";
    const std::string contents = RawSafetensors(
        "{\"t\":" + Entry(name.c_str(), "[1]", offsets) + "}", std::string(type.bytes, '\0'));
    auto file = Checked(SafetensorsFile::Parse(contents, "test"));
    EXPECT_EQ((*file)->Find("t")->dtype.name, type.name);
  }
}

}  // namespace
}  // namespace sru::models
