// The CUDA backend's rows (common/row_layout.h). What is in the padding of a row does not matter as
// long as it is finite.
#ifndef SRU_KERNELS_CUDA_DEVICE_ROW_LAYOUT_H_
#define SRU_KERNELS_CUDA_DEVICE_ROW_LAYOUT_H_

#include "kernels/common/row_layout.h"

namespace sru::kernels::cuda {

// 16 bytes of bfloat16, 32 of float32.
inline constexpr int kSegmentAlignment = 8;

using RowLayout = PaddedRow<kSegmentAlignment>;

// Whether rows are in memory as those of as many values in one segment.
constexpr bool IsPlain(const RowLayout& row) { return row.segments == 1 || row.is_dense(); }

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_ROW_LAYOUT_H_
