// Where a layer's highway term s_t comes from (stack_spec.h).
#ifndef SRU_KERNELS_COMMON_HIGHWAY_H_
#define SRU_KERNELS_COMMON_HIGHWAY_H_

#include "kernels/stack_spec.h"

namespace sru::kernels {

enum class Highway {
  kNone,    // 0
  kInput,   // alpha * x_t
  kMatrix,  // U3_t
};

inline Highway HighwayOf(const LayerSpec& layer) {
  if (!layer.has_skip_term) return Highway::kNone;
  return layer.num_matrices == 4 ? Highway::kMatrix : Highway::kInput;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_HIGHWAY_H_
