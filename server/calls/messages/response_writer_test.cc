#include "server/calls/messages/response_writer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/bfloat16.h"

namespace sru::server::calls {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int> Order(const std::vector<float>& logits, int top_k) {
  std::vector<std::string> labels;
  std::vector<float> probabilities;
  for (size_t i = 0; i < logits.size(); ++i) {
    labels.push_back("label" + std::to_string(i));
    probabilities.push_back(0.125f * static_cast<float>(i));
  }
  v1::Classification classification;
  WriteLabels(labels, logits.data(), probabilities.data(), top_k, &classification);
  std::vector<int> order;
  for (const v1::Label& label : classification.labels()) {
    order.push_back(label.index());
    EXPECT_EQ(label.name(), labels[label.index()]);
    EXPECT_EQ(label.probability(), probabilities[label.index()]);
    if (!std::isnan(label.logit())) {
      EXPECT_EQ(label.logit(), logits[label.index()]);
    }
  }
  return order;
}

TEST(ResponseWriterTest, LabelsDescendAndTiesGoByIndex) {
  EXPECT_THAT(Order({1, 3, 2}, 3), ElementsAre(1, 2, 0));
  EXPECT_THAT(Order({1, 3, 2}, 1), ElementsAre(1));
  EXPECT_THAT(Order({2, 5, 2, 5, 2}, 5), ElementsAre(1, 3, 0, 2, 4));
  EXPECT_THAT(Order({2, 5, 2, 5, 2}, 3), ElementsAre(1, 3, 0));
  EXPECT_THAT(Order({0}, 1), ElementsAre(0));
  EXPECT_THAT(Order({NAN, 1, NAN, 2}, 4), ElementsAre(3, 1, 0, 2));
}

// Every half precision value, as a float.
float HalfToFloat(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  if (exponent == 31) return mantissa == 0 ? sign * kInfinity : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

TEST(ResponseWriterTest, HalfPrecisionRoundTripsAndRoundsToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    ASSERT_EQ(FloatToHalf(value), half) << value;
    ASSERT_EQ(FloatToHalf(-value), half | 0x8000) << value;
    if (half == 0x7bff) break;  // the largest value; its successor is infinity
    const float next = HalfToFloat(half + 1);
    const float middle = value + (next - value) / 2;  // exact in float32
    ASSERT_EQ(FloatToHalf(middle), half + (half & 1)) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), half) << middle;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, kInfinity)), half + 1) << middle;
  }
  EXPECT_EQ(FloatToHalf(65504), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520), 0x7c00);
  EXPECT_EQ(FloatToHalf(1e30f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-kInfinity), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(NAN))));
}

TEST(ResponseWriterTest, BFloat16RoundsToEven) {
  EXPECT_EQ(kernels::BFloat16Bits(1.0f), 0x3f80);
  EXPECT_EQ(kernels::BFloat16Bits(-2.0f), 0xc000);
  EXPECT_EQ(kernels::BFloat16Bits(0.0f), 0);
  EXPECT_EQ(kernels::BFloat16Bits(-0.0f), 0x8000);
  EXPECT_EQ(kernels::BFloat16Bits(1.00390625f), 0x3f80);  // half way, down to even
  EXPECT_EQ(kernels::BFloat16Bits(1.01171875f), 0x3f82);  // half way, up to even
  EXPECT_EQ(kernels::BFloat16Bits(1.00390637f), 0x3f81);
  EXPECT_EQ(kernels::BFloat16Bits(kInfinity), 0x7f80);
  EXPECT_EQ(kernels::BFloat16Bits(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN stays one even if its payload is only in the lower half.
  const uint32_t bits = 0x7f800001;
  float nan = 0;
  std::memcpy(&nan, &bits, sizeof(nan));
  EXPECT_GT(kernels::BFloat16Bits(nan) & 0x7fff, 0x7f80);
}

TEST(ResponseWriterTest, NormalizeGivesLengthOneAndKeepsZero) {
  std::vector<float> vector = {3, -4};
  Normalize(vector.data(), 2);
  EXPECT_THAT(vector, ElementsAre(FloatEq(0.6f), FloatEq(-0.8f)));
  std::vector<float> zero = {0, 0, 0};
  Normalize(zero.data(), 3);
  EXPECT_THAT(zero, ElementsAre(0, 0, 0));
  std::vector<float> large = {1e30f, 1e30f};  // its square does not fit into a float32
  Normalize(large.data(), 2);
  EXPECT_THAT(large, ElementsAre(FloatEq(std::sqrt(0.5f)), FloatEq(std::sqrt(0.5f))));
}

TEST(ResponseWriterTest, ValuesInEachFormat) {
  const std::vector<float> values = {1.0f, -2.0f, 0.5f, 65504.0f};
  v1::Encoding encoding;
  WriteValues(values.data(), 2, 2, v1::OUTPUT_FORMAT_FLOATS, &encoding);
  EXPECT_THAT(encoding.values(), ElementsAre(1.0f, -2.0f, 0.5f, 65504.0f));
  EXPECT_TRUE(encoding.data().empty());

  encoding.Clear();
  WriteValues(values.data(), 2, 1, v1::OUTPUT_FORMAT_RAW_FLOAT32, &encoding);
  EXPECT_EQ(encoding.data(), std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  EXPECT_TRUE(encoding.values().empty());

  encoding.Clear();
  WriteValues(values.data(), 1, 4, v1::OUTPUT_FORMAT_RAW_FLOAT16, &encoding);
  EXPECT_EQ(encoding.data(), std::string("\x00\x3c\x00\xc0\x00\x38\xff\x7b", 8));

  encoding.Clear();
  WriteValues(values.data(), 1, 3, v1::OUTPUT_FORMAT_RAW_BFLOAT16, &encoding);
  EXPECT_EQ(encoding.data(), std::string("\x80\x3f\x00\xc0\x00\x3f", 6));
}

TEST(ResponseWriterTest, TimesAreMicroseconds) {
  telemetry::CallTimes times;
  times.tokenize = absl::Nanoseconds(1500);
  times.queue = absl::Milliseconds(2);
  times.compute = absl::Microseconds(3);
  times.total = absl::Seconds(1);
  v1::StageTimes proto;
  WriteTimes(times, &proto);
  EXPECT_DOUBLE_EQ(proto.tokenize_us(), 1.5);
  EXPECT_DOUBLE_EQ(proto.queue_us(), 2000);
  EXPECT_DOUBLE_EQ(proto.compute_us(), 3);
  EXPECT_DOUBLE_EQ(proto.total_us(), 1e6);
}

}  // namespace
}  // namespace sru::server::calls
