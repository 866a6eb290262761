#include "server/tasks/encode/encoding.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/bfloat16.h"
#include "server/calls/messages/wire_pooling.h"
#include "server/tasks/tasks.h"
#include "tests/testing/puppet_exchange.h"

namespace sru::server::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::StartsWith;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every half precision value, as a float.
float HalfToFloat(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  if (exponent == 31) return mantissa == 0 ? sign * kInfinity : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

TEST(EncodingTest, HalfPrecisionRoundTripsAndRoundsToEven) {
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

TEST(EncodingTest, BFloat16RoundsToEven) {
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

TEST(EncodingTest, NormalizeGivesLengthOneAndKeepsZero) {
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

TEST(EncodingTest, ValuesInEachFormat) {
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

TEST(EncodingTest, Pooling) {
  EXPECT_EQ(*ParsePooling(v1::POOLING_DEFAULT, kernels::Pooling::kMax), kernels::Pooling::kMax);
  EXPECT_EQ(*ParsePooling(v1::POOLING_DEFAULT, kernels::Pooling::kNone), kernels::Pooling::kNone);
  EXPECT_EQ(*ParsePooling(v1::POOLING_NONE, kernels::Pooling::kMax), kernels::Pooling::kNone);
  EXPECT_EQ(*ParsePooling(v1::POOLING_FIRST, kernels::Pooling::kMax), kernels::Pooling::kFirst);
  EXPECT_EQ(*ParsePooling(v1::POOLING_LAST, kernels::Pooling::kMax), kernels::Pooling::kLast);
  EXPECT_EQ(*ParsePooling(v1::POOLING_MAX, kernels::Pooling::kNone), kernels::Pooling::kMax);
  EXPECT_EQ(*ParsePooling(v1::POOLING_MEAN, kernels::Pooling::kMax), kernels::Pooling::kMean);
  for (const kernels::Pooling pooling : kernels::kAllPoolings) {
    EXPECT_EQ(*ParsePooling(calls::ToProto(pooling), kernels::Pooling::kMax), pooling);
  }
  for (const int unknown : {v1::Pooling_MAX + 1, -1}) {
    const absl::Status status =
        ParsePooling(static_cast<v1::Pooling>(unknown), kernels::Pooling::kMax).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                StartsWith("pooling: " + std::to_string(unknown) + " is unknown"));
  }
}

TEST(EncodingTest, OutputFormat) {
  EXPECT_EQ(*ParseOutputFormat(v1::OUTPUT_FORMAT_UNSPECIFIED), v1::OUTPUT_FORMAT_FLOATS);
  EXPECT_EQ(*ParseOutputFormat(v1::OUTPUT_FORMAT_RAW_FLOAT16), v1::OUTPUT_FORMAT_RAW_FLOAT16);
  const absl::Status status = ParseOutputFormat(static_cast<v1::OutputFormat>(9)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("output_format: 9 is unknown"));
}

TEST(EncodeStreamTest, ADrainDoesNotTakeTheExchangeFromAStreamThatIsAboutToRead) {
  const RealClock clock;
  telemetry::Metrics metrics(&clock);
  telemetry::AccessLog access_log({telemetry::LogRequests::kNone}, &clock);
  calls::InFlight in_flight;
  calls::ByteBudget budget(1 << 20);
  calls::OpenStreams streams(1);
  calls::ServiceContext context;
  context.metrics = &metrics;
  context.in_flight = &in_flight;
  context.budget = &budget;
  context.access_log = &access_log;
  context.clock = &clock;
  context.streams = &streams;
  const calls::Method row = MethodOf(EncodeStream(), context);
  {
    sru::testing::PuppetExchange exchange;
    // The server drains when the call is about to read.
    exchange.on_read = [&] {
      streams.Drain();
      EXPECT_FALSE(exchange.end().has_value()) << "the exchange may be gone";
    };
    exchange.Start(row);
    ASSERT_TRUE(exchange.end().has_value());
    EXPECT_TRUE(absl::IsUnavailable(exchange.end()->status)) << exchange.end()->status;
  }
  EXPECT_EQ(streams.count() + in_flight.count() + budget.used(), 0);
}

}  // namespace
}  // namespace sru::server::tasks
