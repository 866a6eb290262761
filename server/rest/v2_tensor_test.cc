#include "server/rest/v2_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sru::server::rest {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAllTypes[] = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
                                     "INT8", "INT16", "INT32",  "INT64",  "FP16",
                                     "FP32", "FP64",  "BF16",   "BYTES"};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string raw;
  for (const T value : values) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    raw.append(bytes, sizeof(T));
  }
  return raw;
}

std::string Strings(const std::vector<std::string>& values) {
  std::string raw;
  for (const std::string& value : values) {
    raw += Bytes(std::vector<uint32_t>{static_cast<uint32_t>(value.size())}) + value;
  }
  return raw;
}

std::string Read(const std::string& json, const char* type, const std::vector<int64_t>& shape) {
  std::string raw;
  const absl::Status status = ReadTensorData(json, *FindTensorType(type), shape, "input 'x'", &raw);
  EXPECT_TRUE(status.ok()) << status;
  return raw;
}

std::string Error(const std::string& json, const char* type, const std::vector<int64_t>& shape) {
  std::string raw;
  const absl::Status status = ReadTensorData(json, *FindTensorType(type), shape, "input 'x'", &raw);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(status.message());
}

std::string Written(const std::string& raw, const char* type, size_t count) {
  const absl::Status status = CheckTensorData(raw, *FindTensorType(type), count, "output 'y'");
  EXPECT_TRUE(status.ok()) << status;
  std::string json = "[";
  AppendTensorPart(raw, *FindTensorType(type), std::string::npos, &json);
  json += "]";
  EXPECT_LE(json.size(), JsonBytesBound(raw.size(), *FindTensorType(type), count));
  return json;
}

TEST(V2TensorTest, NamesOfTypes) {
  for (const char* const type : kAllTypes) EXPECT_NE(FindTensorType(type), nullptr) << type;
  EXPECT_EQ(FindTensorType("fp32"), nullptr);
  EXPECT_EQ(FindTensorType(""), nullptr);
  EXPECT_EQ(TensorTypeNames(), absl::StrJoin(kAllTypes, ", "));
}

TEST(V2TensorTest, ReadsEveryType) {
  EXPECT_EQ(Read("[true,false]", "BOOL", {2}), std::string("\1\0", 2));
  EXPECT_EQ(Read("[0,255]", "UINT8", {2}), Bytes<uint8_t>({0, 255}));
  EXPECT_EQ(Read("[65535]", "UINT16", {1}), Bytes<uint16_t>({65535}));
  EXPECT_EQ(Read("[4294967295]", "UINT32", {1}), Bytes<uint32_t>({4294967295U}));
  EXPECT_EQ(Read("[18446744073709551615]", "UINT64", {1}),
            Bytes<uint64_t>({std::numeric_limits<uint64_t>::max()}));
  EXPECT_EQ(Read("[-128]", "INT8", {1}), Bytes<int8_t>({-128}));
  EXPECT_EQ(Read("[-32768]", "INT16", {1}), Bytes<int16_t>({-32768}));
  EXPECT_EQ(Read("[-2147483648, 7]", "INT32", {2}),
            Bytes<int32_t>({std::numeric_limits<int32_t>::min(), 7}));
  EXPECT_EQ(Read("[-9223372036854775808]", "INT64", {1}),
            Bytes<int64_t>({std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(Read("[1, -2.5, 1e-3]", "FP32", {3}), Bytes<float>({1, -2.5F, 1e-3F}));
  EXPECT_EQ(Read("[1, 1e-999, -0.0]", "FP64", {3}), Bytes<double>({1, 0, -0.0}));
  EXPECT_EQ(Read(R"(["a\n", ""])", "BYTES", {2}), Strings({"a\n", ""}));
  EXPECT_EQ(Read("[]", "INT32", {0}), "");
  EXPECT_EQ(Read("[5]", "INT32", {}), Bytes<int32_t>({5}));
}

TEST(V2TensorTest, ReadsFlatAndNestedArrays) {
  const std::string expected = Bytes<int32_t>({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Read("[1,2,3,4,5,6]", "INT32", {2, 3}), expected);
  EXPECT_EQ(Read("[[1,2,3],[4,5,6]]", "INT32", {2, 3}), expected);
  EXPECT_EQ(Read("[[[1],[2],[3]],[[4],[5],[6]]]", "INT32", {2, 3, 1}), expected);
  EXPECT_EQ(Read("[[],[]]", "INT32", {2, 0}), "");
  // The same number of values in another arrangement is a mistake of the caller.
  EXPECT_THAT(Error("[[1,2],[3,4],[5,6]]", "INT32", {2, 3}),
              HasSubstr("input 'x': data: expected arrays of 3 at dimension 1 of the shape [2, 3], "
                        "found one of 2"));
  EXPECT_THAT(Error("[[1,2,3]]", "INT32", {2, 3}),
              HasSubstr("expected arrays of 2 at dimension 0 of the shape [2, 3], found one of 1"));
  EXPECT_THAT(Error("[[1,2,3],4]", "INT32", {2, 3}), HasSubstr("data[3]: expected an array"));
  EXPECT_THAT(Error("[1,[2]]", "INT32", {2, 1}), HasSubstr("data[1]: expected a whole number"));
  EXPECT_THAT(Error("[[1]]", "INT32", {1}), HasSubstr("found an array"));
}

// As languages without integers write them.
TEST(V2TensorTest, WholeNumbersMayHaveAPoint) {
  EXPECT_EQ(Read("[16.0, -2.0, 1e3]", "INT64", {3}), Bytes<int64_t>({16, -2, 1000}));
  EXPECT_EQ(Read("[255.0, -0.0]", "UINT8", {2}), Bytes<uint8_t>({255, 0}));
  EXPECT_EQ(Read("[9007199254740991.0]", "UINT64", {1}), Bytes<uint64_t>({9007199254740991}));
}

TEST(V2TensorTest, ErrorsNameTensorExpectedAndFound) {
  EXPECT_EQ(Error("[1,2]", "INT32", {3}),
            "input 'x': data: expected 3 values by the shape [3], found 2");
  EXPECT_EQ(Error("[1,2,3]", "INT32", {1, 2}),
            "input 'x': data: expected 2 values by the shape [1, 2], found 3");
  EXPECT_EQ(Error("[1, 3000000000]", "INT32", {2}),
            "input 'x': data[1]: expected a whole number from -2147483648 to 2147483647 (INT32), "
            "found 3000000000");
  EXPECT_THAT(Error("[256]", "UINT8", {1}), HasSubstr("from 0 to 255 (UINT8), found 256"));
  EXPECT_THAT(Error("[-1]", "UINT64", {1}), HasSubstr("found -1"));
  EXPECT_THAT(Error("[1.5]", "INT64", {1}), HasSubstr("found 1.5"));
  EXPECT_THAT(Error("[1e30]", "INT64", {1}), HasSubstr("found 1e30"));
  EXPECT_THAT(Error("[256.0]", "UINT8", {1}), HasSubstr("found 256.0"));
  EXPECT_THAT(Error("[-1.0]", "UINT64", {1}), HasSubstr("found -1.0"));
  EXPECT_THAT(Error("[99999999999999999999]", "INT64", {1}), HasSubstr("(INT64)"));
  EXPECT_THAT(Error("[\"1\"]", "INT64", {1}), HasSubstr("found \"1\""));
  EXPECT_THAT(Error("[null]", "FP32", {1}), HasSubstr("found null"));
  EXPECT_THAT(Error("[1e39]", "FP32", {1}), HasSubstr("(FP32), found 1e39"));
  EXPECT_THAT(Error("[-1e309]", "FP64", {1}), HasSubstr("(FP64), found -1e309"));
  EXPECT_THAT(Error("[\"nan\"]", "FP64", {1}), HasSubstr("found \"nan\""));
  EXPECT_THAT(Error("[1]", "BOOL", {1}), HasSubstr("true or false (BOOL), found 1"));
  EXPECT_THAT(Error("[1]", "BYTES", {1}), HasSubstr("a string (BYTES), found 1"));
  EXPECT_THAT(Error("[1]", "FP16", {1}), HasSubstr("FP16 has no form in JSON"));
  EXPECT_THAT(Error("[1]", "BF16", {1}), HasSubstr("binary data"));
  EXPECT_THAT(Error("7", "INT32", {1}), HasSubstr("expected an array of INT32, found 7"));
  EXPECT_LT(Error("[" + std::string(100000, '9') + "]", "INT64", {1}).size(), 300U);
}

TEST(V2TensorTest, ShapesAreChecked) {
  EXPECT_THAT(Error("[]", "INT32", {-1}), HasSubstr("shape [-1]: expected no negative size"));
  EXPECT_THAT(Error("[]", "INT32", {1LL << 40, 1LL << 40}), HasSubstr("found more"));
  EXPECT_THAT(Error("[1]", "INT32", {std::numeric_limits<int64_t>::max()}),
              HasSubstr("found more"));
  EXPECT_EQ(*CountElements({1LL << 62, 1LL << 62, 0}, 10, "x"), 0U);
  EXPECT_EQ(*CountElements({}, 10, "x"), 1U);
  EXPECT_EQ(*CountElements({2, 5}, 10, "x"), 10U);
  EXPECT_FALSE(CountElements({2, 6}, 10, "x").ok());
}

TEST(V2TensorTest, ValuesThatJsonLacksAreStrings) {
  const std::string json = R"(["NaN","Infinity","-Infinity",0,-0.0])";
  for (const char* const type : {"FP32", "FP64"}) {
    const std::string raw = Read(json, type, {5});
    EXPECT_EQ(Written(raw, type, 5), json);
  }
  EXPECT_TRUE(std::signbit(nlohmann::json::parse("-0.0").get<double>()));
}

TEST(V2TensorTest, WritesEveryType) {
  EXPECT_EQ(Written(std::string("\1\0", 2), "BOOL", 2), "[true,false]");
  EXPECT_EQ(Written(Bytes<uint8_t>({0, 255}), "UINT8", 2), "[0,255]");
  EXPECT_EQ(Written(Bytes<int8_t>({-128}), "INT8", 1), "[-128]");
  EXPECT_EQ(Written(Bytes<uint64_t>({~uint64_t{0}}), "UINT64", 1), "[18446744073709551615]");
  EXPECT_EQ(Written(Bytes<int64_t>({std::numeric_limits<int64_t>::min()}), "INT64", 1),
            "[-9223372036854775808]");
  EXPECT_EQ(Written(Bytes<float>({0.1F, 1, 1e20F}), "FP32", 3), "[0.1,1,1e+20]");
  EXPECT_EQ(Written(Bytes<double>({0.1}), "FP64", 1), "[0.1]");
  EXPECT_EQ(Written(Strings({"a\"", "\xc3\xa9", ""}), "BYTES", 3), "[\"a\\\"\",\"\xc3\xa9\",\"\"]");
  EXPECT_EQ(Written("", "FP32", 0), "[]");
}

TEST(V2TensorTest, LongestValuesStayWithinTheBound) {
  Written(Bytes<int32_t>({std::numeric_limits<int32_t>::min(), -2147483647}), "INT32", 2);
  Written(Bytes<int64_t>(std::vector<int64_t>(9, std::numeric_limits<int64_t>::min())), "INT64", 9);
  Written(Bytes<uint64_t>(std::vector<uint64_t>(9, ~uint64_t{0})), "UINT64", 9);
  Written(Bytes<double>(std::vector<double>(9, -1.2345678901234567e-308)), "FP64", 9);
  Written(Bytes<float>(std::vector<float>(9, -1.17549435e-38F)), "FP32", 9);
  Written(Strings({std::string(9, '\1')}), "BYTES", 1);
  Written(Strings(std::vector<std::string>(9)), "BYTES", 9);
}

template <typename T, typename Word>
void ExpectTheSameBits(const char* type) {
  std::mt19937_64 random(7);
  std::vector<T> values;
  while (values.size() < 20000) {
    const Word bits = static_cast<Word>(random());
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isfinite(value)) values.push_back(value);
  }
  values.push_back(std::numeric_limits<T>::denorm_min());
  values.push_back(std::numeric_limits<T>::max());
  values.push_back(std::numeric_limits<T>::lowest());
  const std::string raw = Bytes(values);
  const std::string json = Written(raw, type, values.size());
  EXPECT_EQ(Read(json, type, {static_cast<int64_t>(values.size())}), raw);
  // Readers that know only doubles.
  const nlohmann::json parsed = nlohmann::json::parse(json);
  for (size_t i = 0; i < values.size(); ++i) {
    const T read = static_cast<T>(parsed[i].get<double>());
    ASSERT_EQ(read, values[i]) << parsed[i];
  }
}

TEST(V2TensorTest, NumbersKeepTheirBits) {
  ExpectTheSameBits<float, uint32_t>("FP32");
  ExpectTheSameBits<double, uint64_t>("FP64");
}

TEST(V2TensorTest, RefusesToWriteWhatDoesNotFit) {
  constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  for (const auto& [raw, type, code] : {std::tuple{std::string("abc"), "FP32", kInternal},
                                        {"abcdefgh", "FP32", kInternal},
                                        {"abc", "BYTES", kInternal},
                                        {std::string("\5\0\0\0abcd", 8), "BYTES", kInternal},
                                        {Strings({"a", "b"}), "BYTES", kInternal},
                                        {"ab", "FP16", kInvalid}}) {
    EXPECT_EQ(CheckTensorData(raw, *FindTensorType(type), 1, "output 'y'").code(), code) << raw;
  }
  const absl::Status status =
      CheckTensorData(Strings({"a", "\xff"}), *FindTensorType("BYTES"), 2, "output 'y'");
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("output 'y': element 1 is not UTF-8"));
}

}  // namespace
}  // namespace sru::server::rest
