// The running pool of a sequence: where it starts, what each h adds to it, how it ends. In the scan
// a step works on vectors (PoolStep() in scan_math-inl.h); here it works on rows in memory, for
// stacks that end with a layer norm. `pool` is a padded row.
#ifndef SRU_KERNELS_CPU_POOL_H_
#define SRU_KERNELS_CPU_POOL_H_

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/cpu/row_layout.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

inline float PoolStart(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone:
    case Pooling::kFirst:
    case Pooling::kLast:
    case Pooling::kMean:
      return 0.0f;
    case Pooling::kMax:
      return -std::numeric_limits<float>::infinity();
  }
  return 0.0f;
}

// Takes one token's row. The rows of a sequence come in the order of its tokens.
inline void PoolRow(const RowLayout& layout, Pooling pooling, bool first_token, bool last_token,
                    const float* row, float* pool) {
  const int padded = layout.padded();
  const int stride = layout.stride();
  switch (pooling) {
    case Pooling::kNone:
      return;
    case Pooling::kFirst:
      if (first_token) std::copy_n(row, stride, pool);
      return;
    case Pooling::kLast:
      if (last_token) std::copy_n(row, padded, pool);
      if (first_token && layout.segments == 2) std::copy_n(row + padded, padded, pool + padded);
      return;
    case Pooling::kMax:
      for (int j = 0; j < stride; ++j) pool[j] = std::max(pool[j], row[j]);
      return;
    case Pooling::kMean:
      for (int j = 0; j < stride; ++j) pool[j] += row[j];
      return;
  }
}

// After the last of `length` rows or steps.
inline void FinishPool(const RowLayout& layout, Pooling pooling, int length, float* pool) {
  switch (pooling) {
    case Pooling::kNone:
    case Pooling::kFirst:
    case Pooling::kLast:
    case Pooling::kMax:
      return;
    case Pooling::kMean: {
      const float scale = 1.0f / static_cast<float>(length);
      for (int j = 0; j < layout.stride(); ++j) pool[j] *= scale;
      return;
    }
  }
}

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_POOL_H_
