// The recurrence of one SRU layer, one direction, over consecutive steps of one sequence:
//
//   f = 1 / (1 + 2^(U1 + v_f c + b_f))        c' = f c + (1 - f) U0
//   r = 1 / (1 + 2^(U2 + v_r c + b_r))        h  = r g(c') + (1 - r) s
//
// which is stack_spec.h's equation with -log2(e) folded into U1, U2, v and b when the weights are
// packed (kExp2GateScale). s = alpha x, U3, or 0. All rows are padded to full vectors
// (row_layout.h).
#ifndef SRU_KERNELS_CPU_BASE_SCAN_H_
#define SRU_KERNELS_CPU_BASE_SCAN_H_

#include <cstddef>

#include "kernels/common/gate_scale.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

// What does not change from call to call. Arrays are [padded], zero in the padding.
struct ScanParameters {
  int padded = 0;  // hidden size, rounded up to full vectors
  Highway highway = Highway::kNone;
  Activation activation = Activation::kIdentity;
  float alpha = 1.0f;
  const float* v_f = nullptr;
  const float* v_r = nullptr;
  const float* b_f = nullptr;
  const float* b_r = nullptr;
};

// One run of steps. Pointers point to the row of the first step; strides are signed (the backward
// direction walks up in memory), in floats.
struct ScanSteps {
  int steps = 0;
  const float* u = nullptr;  // planes U0 U1 U2 [U3], each [padded]
  ptrdiff_t u_stride = 0;
  const float* x = nullptr;  // read with Highway::kInput
  ptrdiff_t x_stride = 0;
  float* c = nullptr;  // [padded], in and out
  float* h = nullptr;  // null = not wanted
  ptrdiff_t h_stride = 0;
  Rounding h_rounding = Rounding::kNone;  // of each h that is stored; the pool is not rounded
  // Running pool over the steps, [padded], in and out, which begins with PoolStart() (pool.h). The
  // step is PoolingInTime()'s. Null with kNothing.
  PoolingStep pooling = PoolingStep::kNothing;
  bool starts = false;  // the first of these steps is the first one of the sequence
  float* pool = nullptr;
};

void Scan(const ScanParameters& parameters, const ScanSteps& steps);

// One step of each of several sequences, without a pool. Here states are rows without padding, so
// that `padded` must be their size.
struct SingleSteps {
  int rows = 0;
  const float* u = nullptr;  // planes as of ScanSteps, row after row
  size_t u_stride = 0;
  const float* x = nullptr;  // read with Highway::kInput
  size_t x_stride = 0;
  // [rows]: c before and after the step begins at column `c_column`. Null is zeros before it, and
  // not wanted after it, of one row or of all.
  const float* const* before = nullptr;
  float* const* after = nullptr;
  size_t c_column = 0;
  // h of each row, row after row, or where `h_rows` is set, [rows], at column `h_column` of its own
  // row.
  float* h = nullptr;
  size_t h_stride = 0;
  float* const* h_rows = nullptr;  // null of one row = not wanted
  size_t h_column = 0;
  Rounding h_rounding = Rounding::kNone;  // as of ScanSteps
};

// The same bits as Scan() of each row.
void ScanSingleSteps(const ScanParameters& parameters, const SingleSteps& steps);

// The instruction set that Scan() and NormalizeRows() run on here, such as "AVX3".
const char* VectorTargetName();

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_SCAN_H_
