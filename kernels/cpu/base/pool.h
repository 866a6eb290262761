// The running pool of a sequence: where it starts, what each h adds to it, how it ends. In the scan
// a step works on vectors (PoolStep() in scan_math-inl.h); here it works on rows in memory, for
// stacks that end with a layer norm and for programs.
#ifndef SRU_KERNELS_CPU_BASE_POOL_H_
#define SRU_KERNELS_CPU_BASE_POOL_H_

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/cpu/base/row_layout.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

inline float PoolStart(Pooling pooling) {
  const bool is_largest = RuleOf(pooling).step == PoolingStep::kLargest;
  return is_largest ? -std::numeric_limits<float>::infinity() : 0.0f;
}

// Takes one token's row of `width` values, of which those from `forward` on are of the backward
// direction. The rows of a sequence come in the order of its tokens. max(row, pool) and
// add(row, pool) change the pool.
template <typename Max, typename Add>
void PoolRow(Pooling pooling, size_t forward, size_t width, bool first_token, bool last_token,
             const float* row, float* pool, const Max& max, const Add& add) {
  switch (RuleOf(pooling).step) {
    case PoolingStep::kNothing:
      return;
    case PoolingStep::kFirst:
      if (first_token) std::copy_n(row, width, pool);
      return;
    case PoolingStep::kLast:
      if (last_token) std::copy_n(row, forward, pool);
      if (first_token) std::copy_n(row + forward, width - forward, pool + forward);
      return;
    case PoolingStep::kLargest:
      return max(row, pool);
    case PoolingStep::kSum:
      return add(row, pool);
  }
}

// The same for padded rows.
inline void PoolRow(const RowLayout& layout, Pooling pooling, bool first_token, bool last_token,
                    const float* row, float* pool) {
  const int stride = layout.stride();
  PoolRow(
      pooling, layout.padded(), stride, first_token, last_token, row, pool,
      [stride](const float* from, float* to) {
        for (int j = 0; j < stride; ++j) to[j] = std::max(to[j], from[j]);
      },
      [stride](const float* from, float* to) {
        for (int j = 0; j < stride; ++j) to[j] += from[j];
      });
}

// After the last of `length` rows or steps.
inline void FinishPool(Pooling pooling, int length, size_t width, float* pool) {
  if (!RuleOf(pooling).divides) return;
  const float scale = 1.0f / static_cast<float>(length);
  for (size_t j = 0; j < width; ++j) pool[j] *= scale;
}

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_POOL_H_
