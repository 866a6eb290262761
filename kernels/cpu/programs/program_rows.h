// Arithmetic on single rows without padding, as the values of a program have them (program.h): n
// values each, on no particular boundary. The order of every sum depends on n alone. y may be x.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_ROWS_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace sru::kernels::cpu {

// y = a + b
void AddRows(const float* a, const float* b, size_t n, float* y);
// y = z + bias of each row, or max(0, z + bias) with `rectifies`. Rows have n values and are so
// many apart as their strides say.
void AddBias(const float* z, size_t z_stride, const float* bias, int rows, size_t n, bool rectifies,
             float* y, size_t y_stride);
// y = scale * x
void ScaleRow(float scale, const float* x, size_t n, float* y);
// y = scale * x + a
void ScaleAndAddRow(float scale, const float* x, const float* a, size_t n, float* y);
// y = unit * q
void Int8ToFloatRow(const int8_t* q, float unit, size_t n, float* y);
// f = sigmoid(forget), c = f * before + (1 - f) * x, y = max(0, c). c may be `before`.
void SsruRow(const float* x, const float* forget, const float* before, size_t n, float* c,
             float* y);
// y = max(y, x)
void MaxRow(const float* x, size_t n, float* y);
// sum_j a_j b_j
float DotRows(const float* a, const float* b, size_t n);
// sums[i] = sum_j rows[i]_j x_j for four rows, which may be the same
void DotFourRows(const float* const* rows, const float* x, size_t n, float* sums);
// y = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias; in float64 where the squares may
// not fit into float32.
void NormalizeValues(const float* x, const float* weight, const float* bias, size_t n,
                     float epsilon, float* y);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_ROWS_H_
