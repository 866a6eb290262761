// How the CPU backend stores one token's row. A row consists of one segment per direction; each
// segment is padded with zeros to full vectors, so that every kernel loads and stores whole vectors
// and no dimension needs a scalar tail. Padded weights are zero, so that padding stays zero through
// a stack.
#ifndef SRU_KERNELS_CPU_ROW_LAYOUT_H_
#define SRU_KERNELS_CPU_ROW_LAYOUT_H_

#include <algorithm>
#include <cstddef>

namespace sru::kernels {

// Lanes of the widest float32 vector that is used (AVX-512); narrower vectors divide it.
inline constexpr int kRowAlignment = 16;

inline constexpr int RoundUpToLanes(int size) {
  return (size + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

struct RowLayout {
  int segments = 1;
  int size = 0;  // values per segment

  int padded() const { return RoundUpToLanes(size); }
  // Values from one row to the next.
  int stride() const { return segments * padded(); }
  // Values without padding.
  int width() const { return segments * size; }
  bool is_dense() const { return padded() == size; }
  // Where value `i` of the unpadded row stands.
  int Position(int i) const { return i / size * padded() + i % size; }

  // Spreads an unpadded row. Leaves the padding as it is (zero).
  void Pack(const float* from, float* to) const {
    for (int s = 0; s < segments; ++s) std::copy_n(from + s * size, size, to + s * padded());
  }
  void Unpack(const float* from, float* to) const {
    for (int s = 0; s < segments; ++s) std::copy_n(from + s * padded(), size, to + s * size);
  }
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_CPU_ROW_LAYOUT_H_
