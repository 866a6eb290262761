#include "server/open_inference/tensors/tensor_values.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"

namespace sru::server::open_inference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

template <typename Value>
std::string Raw(const std::vector<Value>& values) {
  std::string raw;
  for (const Value value : values) {
    raw.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return raw;
}

// One input, raw or with typed contents.
class Tensor {
 public:
  Tensor(std::string datatype, std::vector<int64_t> shape)
      : datatype_(std::move(datatype)), shape_(std::move(shape)) {}

  Tensor& SetRaw(std::string raw) {
    raw_ = std::move(raw);
    is_raw_ = true;
    return *this;
  }
  inference::InferTensorContents* contents() { return &contents_; }
  // Instead of those of contents().
  Tensor& SetContents(std::string bytes) {
    bytes_ = std::move(bytes);
    return *this;
  }

  TensorValues values() {
    if (bytes_.empty()) bytes_ = contents_.SerializeAsString();
    input_.datatype = datatype_;
    input_.shape.assign(shape_.begin(), shape_.end());
    input_.has_contents = !is_raw_;
    input_.contents = bytes_;
    TensorValues values;
    values.input = &input_;
    values.name = "t";
    values.is_raw = is_raw_;
    values.raw = raw_;
    return values;
  }

 private:
  std::string datatype_;
  std::vector<int64_t> shape_;
  bool is_raw_ = false;
  std::string raw_;
  inference::InferTensorContents contents_;
  std::string bytes_;
  InferInput input_;
};

template <typename Result>
std::string ErrorOf(const absl::StatusOr<Result>& result) {
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  return std::string(result.status().message());
}

TEST(TensorValuesTest, ReadsRawStrings) {
  Tensor tensor("BYTES", {3});
  tensor.SetRaw(std::string("\x02\0\0\0ab\0\0\0\0\x01\0\0\0c", 15));
  EXPECT_THAT(*ReadStrings(tensor.values()), ElementsAre("ab", "", "c"));
  EXPECT_THAT(*ReadStrings(Tensor("BYTES", {0}).SetRaw("").values()), IsEmpty());
}

TEST(TensorValuesTest, RefusesRawStringsThatDoNotFit) {
  const std::string one("\x02\0\0\0ab", 6);
  EXPECT_THAT(
      ErrorOf(ReadStrings(Tensor("BYTES", {2}).SetRaw(one).values())),
      "input t: 6 bytes in raw_input_contents[0] are too few for the 2 elements of shape [2]");
  EXPECT_THAT(ErrorOf(ReadStrings(Tensor("BYTES", {2}).SetRaw(one + "abc").values())),
              "input t: raw_input_contents[0] ends before element 1, expected 2 elements for shape "
              "[2]");
  EXPECT_THAT(
      ErrorOf(ReadStrings(Tensor("BYTES", {1}).SetRaw(one + "c").values())),
      "input t: 1 bytes in raw_input_contents[0] after the 1 elements of shape [1], expected "
      "none");
  EXPECT_THAT(
      ErrorOf(ReadStrings(Tensor("BYTES", {1}).SetRaw("\xff\xff\xff\xff\x41").values())),
      "input t: element 0 of raw_input_contents[0] has 4294967295 bytes by its length, found "
      "1");
  EXPECT_THAT(ErrorOf(ReadStrings(Tensor("BYTES", {0}).SetRaw("abcd").values())),
              HasSubstr("4 bytes in raw_input_contents[0] after the 0 elements"));
}

TEST(TensorValuesTest, ReadsTypedStrings) {
  Tensor tensor("BYTES", {2, 1});
  tensor.contents()->add_bytes_contents("ab");
  tensor.contents()->add_bytes_contents("");
  EXPECT_THAT(*ReadStrings(tensor.values()), ElementsAre("ab", ""));
  Tensor more("BYTES", {1});
  more.contents()->add_bytes_contents("ab");
  more.contents()->add_bytes_contents("");
  EXPECT_THAT(ErrorOf(ReadStrings(more.values())), HasSubstr("expected 1"));
  Tensor fewer("BYTES", {1000000000});
  fewer.contents()->add_bytes_contents("ab");
  EXPECT_THAT(ErrorOf(ReadStrings(fewer.values())),
              "input t: contents.bytes_contents has another number of values than shape "
              "[1000000000] has elements, expected 1000000000");
  EXPECT_THAT(ErrorOf(ReadStrings(Tensor("BYTES", {1}).SetContents("\x42\x05zz").values())),
              HasSubstr("not a valid InferTensorContents"));
}

TEST(TensorValuesTest, ReadsIntegers) {
  const std::vector<int64_t> expected = {1, -2, std::numeric_limits<int64_t>::max()};
  EXPECT_THAT(*ReadIntegers(Tensor("INT64", {3}).SetRaw(Raw(expected)).values()),
              ElementsAre(1, -2, expected[2]));
  EXPECT_THAT(*ReadIntegers(Tensor("INT32", {2, 1}).SetRaw(Raw<int32_t>({7, -1})).values()),
              ElementsAre(7, -1));
  Tensor longs("INT64", {3});
  for (const int64_t value : expected) longs.contents()->add_int64_contents(value);
  EXPECT_THAT(*ReadIntegers(longs.values()), ElementsAre(1, -2, expected[2]));
  Tensor ints("INT32", {2});
  ints.contents()->add_int_contents(7);
  ints.contents()->add_int_contents(-1);
  EXPECT_THAT(*ReadIntegers(ints.values()), ElementsAre(7, -1));
  // Each a field of its own, and in two lists.
  EXPECT_THAT(*ReadIntegers(Tensor("INT64", {3}).SetContents("\x18\x01\x1a\x02\x02\x03").values()),
              ElementsAre(1, 2, 3));
}

TEST(TensorValuesTest, RefusesIntegersThatDoNotFit) {
  EXPECT_EQ(ErrorOf(ReadIntegers(Tensor("INT32", {3}).SetRaw("1234567").values())),
            "input t: 7 bytes in raw_input_contents[0], expected 12 for shape [3] of INT32");
  EXPECT_EQ(ErrorOf(ReadIntegers(Tensor("INT16", {3}).SetRaw("123456").values())),
            "input t: datatype 'INT16', expected INT64 or INT32");
  // Those of another type.
  Tensor other("INT64", {1});
  other.contents()->add_int_contents(1);
  EXPECT_THAT(ErrorOf(ReadIntegers(other.values())), HasSubstr("contents.int64_contents"));
  EXPECT_THAT(ErrorOf(ReadIntegers(Tensor("INT64", {1}).SetContents("\x1a\x02\x01\x02").values())),
              HasSubstr("another number of values"));
  EXPECT_THAT(ErrorOf(ReadIntegers(Tensor("INT64", {1}).SetContents("\x1a\x01\xff").values())),
              HasSubstr("not a valid InferTensorContents"));
}

TEST(TensorValuesTest, ReadsFloats) {
  std::string storage;
  const std::string raw = Raw<float>({1.5F, -0.0F});
  EXPECT_EQ(*ReadFloats(Tensor("FP32", {2}).SetRaw(raw).values(), &storage), raw);
  Tensor typed("FP32", {1, 2});
  typed.contents()->add_fp32_contents(1.5F);
  typed.contents()->add_fp32_contents(-0.0F);
  EXPECT_EQ(*ReadFloats(typed.values(), &storage), raw);
  EXPECT_EQ(ErrorOf(ReadFloats(Tensor("FP32", {3}).SetRaw(raw).values(), &storage)),
            "input t: 8 bytes in raw_input_contents[0], expected 12 for shape [3] of FP32");
  EXPECT_THAT(ErrorOf(ReadFloats(Tensor("FP64", {1}).SetRaw(raw).values(), &storage)),
              "input t: datatype 'FP64', expected FP32");
  Tensor more("FP32", {1});
  more.contents()->add_fp32_contents(1);
  more.contents()->add_fp32_contents(1);
  EXPECT_THAT(ErrorOf(ReadFloats(more.values(), &storage)), HasSubstr("fp32_contents"));
  EXPECT_THAT(ErrorOf(ReadFloats(Tensor("FP32", {1})
                                     .SetContents("\x32\x03"
                                                  "123")
                                     .values(),
                                 &storage)),
              HasSubstr("not a valid"));
}

TEST(TensorValuesTest, CountsElements) {
  EXPECT_EQ(*NumElements(Tensor("", {}).values()), 1);
  EXPECT_EQ(*NumElements(Tensor("", {2, 3, 4}).values()), 24);
  EXPECT_EQ(*NumElements(Tensor("", {0, 1000000000, 1000000000}).values()), 0);
  EXPECT_THAT(ErrorOf(NumElements(Tensor("", {-1}).values())),
              "input t: shape [-1], expected sizes of at least 0");
  EXPECT_THAT(ErrorOf(NumElements(Tensor("", {1 << 20, 1 << 20}).values())),
              StartsWith("input t: shape [1048576, 1048576], expected at most 2147483647"));
  EXPECT_THAT(ErrorOf(NumElements(Tensor("", {std::numeric_limits<int64_t>::max()}).values())),
              HasSubstr("expected at most"));
}

}  // namespace
}  // namespace sru::server::open_inference
