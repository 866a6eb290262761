// Arithmetic on single rows without padding, as the values of a program have them (program.h): n
// values each, on no particular boundary. The order of every sum depends on n alone. y may be x.
#ifndef SRU_KERNELS_CPU_PROGRAM_ROWS_H_
#define SRU_KERNELS_CPU_PROGRAM_ROWS_H_

#include <cstddef>

namespace sru::kernels::cpu {

// y = a + b
void AddRows(const float* a, const float* b, size_t n, float* y);
// y = max(0, a + b)
void AddRowsAndRectify(const float* a, const float* b, size_t n, float* y);
// y = scale * x
void ScaleRow(float scale, const float* x, size_t n, float* y);
// y = scale * x + a
void ScaleAndAddRow(float scale, const float* x, const float* a, size_t n, float* y);
// y = max(y, x)
void MaxRow(const float* x, size_t n, float* y);
// sum_j a_j b_j
float DotRows(const float* a, const float* b, size_t n);
// y = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias; in float64 where the squares may
// not fit into float32.
void NormalizeValues(const float* x, const float* weight, const float* bias, size_t n,
                     float epsilon, float* y);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAM_ROWS_H_
