#include "server/rest/v2_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sru::server::rest {
namespace {

using ::testing::HasSubstr;

constexpr TensorType kAllTypes[] = {TensorType::kBool,   TensorType::kUint8,  TensorType::kUint16,
                                    TensorType::kUint32, TensorType::kUint64, TensorType::kInt8,
                                    TensorType::kInt16,  TensorType::kInt32,  TensorType::kInt64,
                                    TensorType::kFp16,   TensorType::kFp32,   TensorType::kFp64,
                                    TensorType::kBf16,   TensorType::kBytes};

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

std::string Read(const std::string& json, TensorType type, const std::vector<int64_t>& shape) {
  std::string raw;
  const absl::Status status = ReadTensorData(json, type, shape, "input 'x'", &raw);
  EXPECT_TRUE(status.ok()) << status;
  return raw;
}

std::string Error(const std::string& json, TensorType type, const std::vector<int64_t>& shape) {
  std::string raw;
  const absl::Status status = ReadTensorData(json, type, shape, "input 'x'", &raw);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(status.message());
}

std::string Written(const std::string& raw, TensorType type, size_t count) {
  const absl::Status status = CheckTensorData(raw, type, count, "output 'y'");
  EXPECT_TRUE(status.ok()) << status;
  std::string json = "[";
  AppendTensorPart(raw, type, /*is_first=*/true, std::string::npos, &json);
  json += "]";
  EXPECT_LE(json.size(), JsonBytesBound(raw.size(), type, count));
  return json;
}

TEST(V2TensorTest, NamesOfTypes) {
  for (const TensorType type : kAllTypes) {
    EXPECT_EQ(ParseTensorType(TensorTypeName(type)), type) << TensorTypeName(type);
  }
  EXPECT_EQ(ParseTensorType("fp32"), std::nullopt);
  EXPECT_EQ(ParseTensorType(""), std::nullopt);
  EXPECT_THAT(TensorTypeNames(), HasSubstr("INT64, FP16, FP32"));
}

TEST(V2TensorTest, ReadsEveryType) {
  EXPECT_EQ(Read("[true,false]", TensorType::kBool, {2}), std::string("\1\0", 2));
  EXPECT_EQ(Read("[0,255]", TensorType::kUint8, {2}), Bytes<uint8_t>({0, 255}));
  EXPECT_EQ(Read("[65535]", TensorType::kUint16, {1}), Bytes<uint16_t>({65535}));
  EXPECT_EQ(Read("[4294967295]", TensorType::kUint32, {1}), Bytes<uint32_t>({4294967295U}));
  EXPECT_EQ(Read("[18446744073709551615]", TensorType::kUint64, {1}),
            Bytes<uint64_t>({std::numeric_limits<uint64_t>::max()}));
  EXPECT_EQ(Read("[-128]", TensorType::kInt8, {1}), Bytes<int8_t>({-128}));
  EXPECT_EQ(Read("[-32768]", TensorType::kInt16, {1}), Bytes<int16_t>({-32768}));
  EXPECT_EQ(Read("[-2147483648, 7]", TensorType::kInt32, {2}),
            Bytes<int32_t>({std::numeric_limits<int32_t>::min(), 7}));
  EXPECT_EQ(Read("[-9223372036854775808]", TensorType::kInt64, {1}),
            Bytes<int64_t>({std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(Read("[1, -2.5, 1e-3]", TensorType::kFp32, {3}), Bytes<float>({1, -2.5F, 1e-3F}));
  EXPECT_EQ(Read("[1, 1e-999, -0.0]", TensorType::kFp64, {3}), Bytes<double>({1, 0, -0.0}));
  EXPECT_EQ(Read(R"(["a\n", ""])", TensorType::kBytes, {2}), Strings({"a\n", ""}));
  EXPECT_EQ(Read("[]", TensorType::kInt32, {0}), "");
  EXPECT_EQ(Read("[5]", TensorType::kInt32, {}), Bytes<int32_t>({5}));
}

TEST(V2TensorTest, ReadsFlatAndNestedArrays) {
  const std::string expected = Bytes<int32_t>({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Read("[1,2,3,4,5,6]", TensorType::kInt32, {2, 3}), expected);
  EXPECT_EQ(Read("[[1,2,3],[4,5,6]]", TensorType::kInt32, {2, 3}), expected);
  EXPECT_EQ(Read("[[[1],[2],[3]],[[4],[5],[6]]]", TensorType::kInt32, {2, 3, 1}), expected);
  EXPECT_EQ(Read("[[],[]]", TensorType::kInt32, {2, 0}), "");
  // The same number of values in another arrangement is a mistake of the caller.
  EXPECT_THAT(Error("[[1,2],[3,4],[5,6]]", TensorType::kInt32, {2, 3}),
              HasSubstr("input 'x': data: expected arrays of 3 at dimension 1 of the shape [2, 3], "
                        "found one of 2"));
  EXPECT_THAT(Error("[[1,2,3]]", TensorType::kInt32, {2, 3}),
              HasSubstr("expected arrays of 2 at dimension 0 of the shape [2, 3], found one of 1"));
  EXPECT_THAT(Error("[[1,2,3],4]", TensorType::kInt32, {2, 3}),
              HasSubstr("data[3]: expected an array"));
  EXPECT_THAT(Error("[1,[2]]", TensorType::kInt32, {2, 1}),
              HasSubstr("data[1]: expected a whole number"));
  EXPECT_THAT(Error("[[1]]", TensorType::kInt32, {1}), HasSubstr("found an array"));
}

// As languages without integers write them.
TEST(V2TensorTest, WholeNumbersMayHaveAPoint) {
  EXPECT_EQ(Read("[16.0, -2.0, 1e3]", TensorType::kInt64, {3}), Bytes<int64_t>({16, -2, 1000}));
  EXPECT_EQ(Read("[255.0, -0.0]", TensorType::kUint8, {2}), Bytes<uint8_t>({255, 0}));
  EXPECT_EQ(Read("[9007199254740991.0]", TensorType::kUint64, {1}),
            Bytes<uint64_t>({9007199254740991}));
}

TEST(V2TensorTest, ErrorsNameTensorExpectedAndFound) {
  EXPECT_EQ(Error("[1,2]", TensorType::kInt32, {3}),
            "input 'x': data: expected 3 values by the shape [3], found 2");
  EXPECT_EQ(Error("[1,2,3]", TensorType::kInt32, {1, 2}),
            "input 'x': data: expected 2 values by the shape [1, 2], found 3");
  EXPECT_EQ(Error("[1, 3000000000]", TensorType::kInt32, {2}),
            "input 'x': data[1]: expected a whole number from -2147483648 to 2147483647 (INT32), "
            "found 3000000000");
  EXPECT_THAT(Error("[256]", TensorType::kUint8, {1}),
              HasSubstr("from 0 to 255 (UINT8), found 256"));
  EXPECT_THAT(Error("[-1]", TensorType::kUint64, {1}), HasSubstr("found -1"));
  EXPECT_THAT(Error("[1.5]", TensorType::kInt64, {1}), HasSubstr("found 1.5"));
  EXPECT_THAT(Error("[1e30]", TensorType::kInt64, {1}), HasSubstr("found 1e30"));
  EXPECT_THAT(Error("[256.0]", TensorType::kUint8, {1}), HasSubstr("found 256.0"));
  EXPECT_THAT(Error("[-1.0]", TensorType::kUint64, {1}), HasSubstr("found -1.0"));
  EXPECT_THAT(Error("[99999999999999999999]", TensorType::kInt64, {1}), HasSubstr("(INT64)"));
  EXPECT_THAT(Error("[\"1\"]", TensorType::kInt64, {1}), HasSubstr("found \"1\""));
  EXPECT_THAT(Error("[null]", TensorType::kFp32, {1}), HasSubstr("found null"));
  EXPECT_THAT(Error("[1e39]", TensorType::kFp32, {1}), HasSubstr("(FP32), found 1e39"));
  EXPECT_THAT(Error("[-1e309]", TensorType::kFp64, {1}), HasSubstr("(FP64), found -1e309"));
  EXPECT_THAT(Error("[\"nan\"]", TensorType::kFp64, {1}), HasSubstr("found \"nan\""));
  EXPECT_THAT(Error("[1]", TensorType::kBool, {1}), HasSubstr("true or false (BOOL), found 1"));
  EXPECT_THAT(Error("[1]", TensorType::kBytes, {1}), HasSubstr("a string (BYTES), found 1"));
  EXPECT_THAT(Error("[1]", TensorType::kFp16, {1}), HasSubstr("FP16 has no form in JSON"));
  EXPECT_THAT(Error("[1]", TensorType::kBf16, {1}), HasSubstr("binary data"));
  EXPECT_THAT(Error("7", TensorType::kInt32, {1}),
              HasSubstr("expected an array of INT32, found 7"));
  EXPECT_LT(Error("[" + std::string(100000, '9') + "]", TensorType::kInt64, {1}).size(), 300U);
}

TEST(V2TensorTest, ShapesAreChecked) {
  EXPECT_THAT(Error("[]", TensorType::kInt32, {-1}),
              HasSubstr("shape [-1]: expected no negative size"));
  EXPECT_THAT(Error("[]", TensorType::kInt32, {1LL << 40, 1LL << 40}), HasSubstr("found more"));
  EXPECT_THAT(Error("[1]", TensorType::kInt32, {std::numeric_limits<int64_t>::max()}),
              HasSubstr("found more"));
  EXPECT_EQ(*CountElements({1LL << 62, 1LL << 62, 0}, 10, "x"), 0U);
  EXPECT_EQ(*CountElements({}, 10, "x"), 1U);
  EXPECT_EQ(*CountElements({2, 5}, 10, "x"), 10U);
  EXPECT_FALSE(CountElements({2, 6}, 10, "x").ok());
}

TEST(V2TensorTest, ValuesThatJsonLacksAreStrings) {
  const std::string json = R"(["NaN","Infinity","-Infinity",0,-0.0])";
  for (const TensorType type : {TensorType::kFp32, TensorType::kFp64}) {
    const std::string raw = Read(json, type, {5});
    EXPECT_EQ(Written(raw, type, 5), json);
  }
  EXPECT_TRUE(std::signbit(nlohmann::json::parse("-0.0").get<double>()));
}

TEST(V2TensorTest, WritesEveryType) {
  EXPECT_EQ(Written(std::string("\1\0", 2), TensorType::kBool, 2), "[true,false]");
  EXPECT_EQ(Written(Bytes<uint8_t>({0, 255}), TensorType::kUint8, 2), "[0,255]");
  EXPECT_EQ(Written(Bytes<int8_t>({-128}), TensorType::kInt8, 1), "[-128]");
  EXPECT_EQ(Written(Bytes<uint64_t>({~uint64_t{0}}), TensorType::kUint64, 1),
            "[18446744073709551615]");
  EXPECT_EQ(Written(Bytes<int64_t>({std::numeric_limits<int64_t>::min()}), TensorType::kInt64, 1),
            "[-9223372036854775808]");
  EXPECT_EQ(Written(Bytes<float>({0.1F, 1, 1e20F}), TensorType::kFp32, 3), "[0.1,1,1e+20]");
  EXPECT_EQ(Written(Bytes<double>({0.1}), TensorType::kFp64, 1), "[0.1]");
  EXPECT_EQ(Written(Strings({"a\"", "\xc3\xa9", ""}), TensorType::kBytes, 3),
            "[\"a\\\"\",\"\xc3\xa9\",\"\"]");
  EXPECT_EQ(Written("", TensorType::kFp32, 0), "[]");
}

TEST(V2TensorTest, LongestValuesStayWithinTheBound) {
  Written(Bytes<int32_t>({std::numeric_limits<int32_t>::min(), -2147483647}), TensorType::kInt32,
          2);
  Written(Bytes<int64_t>(std::vector<int64_t>(9, std::numeric_limits<int64_t>::min())),
          TensorType::kInt64, 9);
  Written(Bytes<uint64_t>(std::vector<uint64_t>(9, ~uint64_t{0})), TensorType::kUint64, 9);
  Written(Bytes<double>(std::vector<double>(9, -1.2345678901234567e-308)), TensorType::kFp64, 9);
  Written(Bytes<float>(std::vector<float>(9, -1.17549435e-38F)), TensorType::kFp32, 9);
  Written(Strings({std::string(9, '\1')}), TensorType::kBytes, 1);
  Written(Strings(std::vector<std::string>(9)), TensorType::kBytes, 9);
}

template <typename T, typename Word>
void ExpectTheSameBits(TensorType type) {
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
  ExpectTheSameBits<float, uint32_t>(TensorType::kFp32);
  ExpectTheSameBits<double, uint64_t>(TensorType::kFp64);
}

TEST(V2TensorTest, RefusesToWriteWhatDoesNotFit) {
  constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  for (const auto& [raw, type, code] :
       {std::tuple{std::string("abc"), TensorType::kFp32, kInternal},
        {"abcdefgh", TensorType::kFp32, kInternal},
        {"abc", TensorType::kBytes, kInternal},
        {std::string("\5\0\0\0abcd", 8), TensorType::kBytes, kInternal},
        {Strings({"a", "b"}), TensorType::kBytes, kInternal},
        {"ab", TensorType::kFp16, kInvalid}}) {
    EXPECT_EQ(CheckTensorData(raw, type, 1, "output 'y'").code(), code) << raw;
  }
  const absl::Status status =
      CheckTensorData(Strings({"a", "\xff"}), TensorType::kBytes, 2, "output 'y'");
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("output 'y': element 1 is not UTF-8"));
}

}  // namespace
}  // namespace sru::server::rest
