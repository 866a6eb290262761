// How the CUDA backend stores one token's row: one segment per direction, each padded to a multiple
// of kSegmentAlignment values. Every vector load is then aligned and whole, for any hidden size.
// Weights are zero where they meet padding, so what stands in the padding of a row is of no
// consequence as long as it is finite.
#ifndef SRU_KERNELS_CUDA_ROW_LAYOUT_H_
#define SRU_KERNELS_CUDA_ROW_LAYOUT_H_

namespace sru::kernels::cuda {

// 16 bytes of bfloat16, 32 of float32.
inline constexpr int kSegmentAlignment = 8;

struct RowLayout {
  int segments = 1;  // 1 or 2
  int size = 0;      // values per segment

  constexpr int padded() const {
    return (size + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
  }
  // Values from one row to the next.
  constexpr int stride() const { return segments * padded(); }
  // Values without padding.
  constexpr int width() const { return segments * size; }
  // Where value i of a row without padding stands.
  constexpr int Position(int i) const { return i / size * padded() + i % size; }
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_ROW_LAYOUT_H_
