// What a request says of vectors, and how they are written. Pure functions, thread-safe. Errors are
// kInvalidArgument and start with the field.
#ifndef SRU_SERVER_TASKS_ENCODE_ENCODING_H_
#define SRU_SERVER_TASKS_ENCODE_ENCODING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/stack_spec.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {

// POOLING_DEFAULT gives `model_pooling`.
absl::StatusOr<kernels::Pooling> ParsePooling(v1::Pooling pooling, kernels::Pooling model_pooling);

// OUTPUT_FORMAT_UNSPECIFIED gives OUTPUT_FORMAT_FLOATS.
absl::StatusOr<v1::OutputFormat> ParseOutputFormat(v1::OutputFormat format);

// IEEE 754 half precision, rounded to nearest, ties to even. Infinities and the sign are kept, a
// NaN stays one. A value that is too large becomes infinity. (bfloat16: kernels/common/bfloat16.h)
uint16_t FloatToHalf(float value);

// Scales `vector` to Euclidean length 1; a zero vector stays zero. Sums in double precision.
void Normalize(float* vector, int width);

// Writes `rows` vectors of `width` values as the values or data of `encoding`, in a format that
// ParseOutputFormat() gave. Does not set the shape.
void WriteValues(const float* values, int64_t rows, int width, v1::OutputFormat format,
                 v1::Encoding* encoding);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ENCODE_ENCODING_H_
