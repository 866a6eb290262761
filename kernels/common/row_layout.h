// How a backend stores one token's row: one segment per direction, each padded to a multiple of
// kAlignment values, so that every vector load is aligned and whole for any hidden size and no
// dimension needs a scalar tail. Weights are zero where they meet padding.
#ifndef SRU_KERNELS_COMMON_ROW_LAYOUT_H_
#define SRU_KERNELS_COMMON_ROW_LAYOUT_H_

#include <algorithm>

namespace sru::kernels {

template <int kAlignment>
struct PaddedRow {
  int segments = 1;  // 1 or 2
  int size = 0;      // values per segment

  static constexpr int RoundUp(int values) {
    return (values + kAlignment - 1) / kAlignment * kAlignment;
  }

  constexpr int padded() const { return RoundUp(size); }
  // Values from one row to the next.
  constexpr int stride() const { return segments * padded(); }
  // Values without padding.
  constexpr int width() const { return segments * size; }
  constexpr bool is_dense() const { return padded() == size; }
  // The position in a padded row of value i of a row without padding.
  constexpr int Position(int i) const { return i / size * padded() + i % size; }
  // The reverse: which value is at a position; -1 = padding.
  constexpr int ValueAt(int position) const {
    const int i = position % padded();
    return i < size ? position / padded() * size + i : -1;
  }

  // Spreads a row without padding. Leaves the padding as it is.
  void Pack(const float* from, float* to) const {
    for (int s = 0; s < segments; ++s) std::copy_n(from + s * size, size, to + s * padded());
  }
  void Unpack(const float* from, float* to) const {
    for (int s = 0; s < segments; ++s) std::copy_n(from + s * padded(), size, to + s * size);
  }
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_ROW_LAYOUT_H_
