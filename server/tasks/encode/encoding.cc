#include "server/tasks/encode/encoding.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "base/status.h"
#include "kernels/common/bfloat16.h"
#include "server/calls/messages/wire_pooling.h"

namespace sru::server::tasks {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw values are little-endian");

uint32_t Bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// `bits` without its lowest `count` bits, rounded to nearest, ties to even.
uint32_t RoundOff(uint32_t bits, int count) {
  const uint32_t half = uint32_t{1} << (count - 1);
  const uint32_t odd = (bits >> count) & 1;
  return (bits + half - 1 + odd) >> count;
}

template <uint16_t (*Convert)(float)>
void WriteHalves(const float* values, size_t count, std::string* data) {
  data->resize(count * sizeof(uint16_t));
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = Convert(values[i]);
    std::memcpy(data->data() + i * sizeof(half), &half, sizeof(half));
  }
}

}  // namespace

absl::StatusOr<kernels::Pooling> ParsePooling(v1::Pooling pooling, kernels::Pooling model_pooling) {
  if (pooling == v1::POOLING_DEFAULT) return model_pooling;
  if (const std::optional<kernels::Pooling> known = calls::FromProto(pooling); known.has_value()) {
    return *known;
  }
  return InvalidArgument(
      "pooling: ", static_cast<int>(pooling), " is unknown, expected 0 (POOLING_DEFAULT) to ",
      static_cast<int>(v1::Pooling_MAX), " (", v1::Pooling_Name(v1::Pooling_MAX), ")");
}

absl::StatusOr<v1::OutputFormat> ParseOutputFormat(v1::OutputFormat format) {
  static_assert(v1::OutputFormat_MAX == v1::OUTPUT_FORMAT_RAW_BFLOAT16, "a case for each format");
  switch (format) {
    case v1::OUTPUT_FORMAT_UNSPECIFIED:
      return v1::OUTPUT_FORMAT_FLOATS;
    case v1::OUTPUT_FORMAT_FLOATS:
    case v1::OUTPUT_FORMAT_RAW_FLOAT32:
    case v1::OUTPUT_FORMAT_RAW_FLOAT16:
    case v1::OUTPUT_FORMAT_RAW_BFLOAT16:
      return format;
    default:
      return InvalidArgument(
          "output_format: ", static_cast<int>(format),
          " is unknown, expected 0 or 1 (OUTPUT_FORMAT_FLOATS) to 4 (OUTPUT_FORMAT_RAW_BFLOAT16)");
  }
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = Bits(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and more, infinity
  if (magnitude >= 0x38800000) {
    // Normal: the exponent's bias goes from 127 to 15; rounding may carry into it, up to infinity.
    return static_cast<uint16_t>(sign | RoundOff(magnitude - (uint32_t{112} << 23), 13));
  }
  if (magnitude < 0x33000000) return sign;  // below half of the smallest subnormal
  // Subnormal: the value is mantissa * 2^(exponent - 150), a unit of half precision 2^-24.
  const int shift = 126 - static_cast<int>(magnitude >> 23);
  return static_cast<uint16_t>(sign | RoundOff((magnitude & 0x7fffff) | 0x800000, shift));
}

void Normalize(float* vector, int width) {
  double sum = 0;
  for (int i = 0; i < width; ++i) sum += static_cast<double>(vector[i]) * vector[i];
  if (sum == 0) return;
  const double scale = 1.0 / std::sqrt(sum);
  for (int i = 0; i < width; ++i) vector[i] = static_cast<float>(vector[i] * scale);
}

void WriteValues(const float* values, int64_t rows, int width, v1::OutputFormat format,
                 v1::Encoding* encoding) {
  static_assert(v1::OutputFormat_MAX == v1::OUTPUT_FORMAT_RAW_BFLOAT16, "a case for each format");
  const size_t count = static_cast<size_t>(rows) * width;
  switch (format) {
    case v1::OUTPUT_FORMAT_RAW_FLOAT32:
      encoding->mutable_data()->assign(reinterpret_cast<const char*>(values),
                                       count * sizeof(float));
      return;
    case v1::OUTPUT_FORMAT_RAW_FLOAT16:
      WriteHalves<FloatToHalf>(values, count, encoding->mutable_data());
      return;
    case v1::OUTPUT_FORMAT_RAW_BFLOAT16:
      WriteHalves<kernels::BFloat16Bits>(values, count, encoding->mutable_data());
      return;
    default:
      encoding->mutable_values()->Add(values, values + count);
      return;
  }
}

}  // namespace sru::server::tasks
