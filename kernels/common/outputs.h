// Which part of the forward pass makes a sequence's outputs.
#ifndef SRU_KERNELS_COMMON_OUTPUTS_H_
#define SRU_KERNELS_COMMON_OUTPUTS_H_

#include "kernels/backend.h"
#include "kernels/stack_spec.h"

namespace sru::kernels {

// Whether the last scan makes token vectors and pooled vectors. With a layer norm after it they are
// made from the normalized rows.
inline bool ScanFinishesOutputs(const StackSpec& spec) {
  return spec.layers.back().layer_norm != LayerNorm::kAfter;
}

// The pooling that a sequence needs; kNone when it wants neither a pooled vector nor labels.
inline Pooling PoolingOf(const StackSpec& spec, const SequenceOutput& out) {
  if (out.wants_labels()) return spec.pooling;
  return out.pooled != nullptr ? out.pooling : Pooling::kNone;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_OUTPUTS_H_
