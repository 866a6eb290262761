// kFirst and kLast pick the h of one token (stack_spec.h). Here they are translated to a walk over
// the h of one direction, where kFirst picks the h of the walk's first step and kLast that of its
// last. The other steps do not depend on the order.
#ifndef SRU_KERNELS_COMMON_POOLING_H_
#define SRU_KERNELS_COMMON_POOLING_H_

#include "kernels/host_and_device.h"
#include "kernels/stack_spec.h"

namespace sru::kernels {

// For a scan, which takes the backward direction from the last token to the first.
SRU_HOST_DEVICE constexpr PoolingStep PoolingInTime(PoolingStep step, bool backward) {
  return step == PoolingStep::kFirst && backward ? PoolingStep::kLast : step;
}

// For rows in memory, which are taken from the first token to the last in both directions.
SRU_HOST_DEVICE constexpr PoolingStep PoolingOverTokens(PoolingStep step, bool backward) {
  return step == PoolingStep::kLast && backward ? PoolingStep::kFirst : step;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_POOLING_H_
