#include "kernels/cpu/int8/byte_product.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/int8/int8_kernel.h"

namespace sru::kernels::cpu {
namespace {

int PanelColumns(int n) { return (n + kByteColumns - 1) / kByteColumns * kByteColumns; }

}  // namespace

ByteScales::ByteScales(const Int8View& weights, size_t k, size_t n, const FloatView& given,
                       size_t padded_n, bool for_table)
    : multiplier(weights.multiplier),
      activation(weights.activation),
      offsets(padded_n),
      bias(padded_n) {
  // The order of every operation is that of program.h.
  const float shift =
      activation > 0 ? -((127.0f / activation) * (127.0f / multiplier)) / 127.0f : 0.0f;
  for (size_t i = 0; i < n; ++i) {
    int32_t sum = 0;
    for (size_t j = 0; j < k; ++j) sum += weights.data[i * k + j];
    // The sums that are wanted are those of r + 127 or of r, those that there are of r or, by a
    // table, of r + 127.
    offsets[i] = 127 * sum * ((activation > 0 ? 1 : 0) - (for_table ? 1 : 0));
    const float shifted = static_cast<float>(sum) * shift;
    bias.data()[i] = shifted + (given.empty() ? 0.0f : given.data[i]);
  }
}

void ByteRows::Round(const Int8Kernel& kernel, const float* x, const int32_t* which, int rows,
                     int k, const ByteScales& scales, bool for_table) {
  const size_t padded = PaddedBytes(k);
  for (int r = 0; r < rows; ++r) {
    const float* const row = x + static_cast<size_t>(which == nullptr ? r : which[r]) * k;
    float a = scales.activation;
    float scale = 1.0f / (a * scales.multiplier);
    if (a == 0) {
      float largest = 0;
      for (int j = 0; j < k; ++j) largest = std::max(largest, std::abs(row[j]));
      a = largest < kInt8Tiny ? 0 : 127.0f / largest;
      scale = largest < kInt8Tiny ? 0 : 1.0f / (a * scales.multiplier);
    }
    rows_[r] = kernel.round_bytes(row, k, static_cast<int>(padded), a, for_table,
                                  x_.data() + r * padded * kernel.byte_size);
    rows_[r].scale = scale;
  }
}

ByteMatrix::ByteMatrix(const Int8View& weights, int k, int n, const FloatView& bias,
                       const Int8Kernel& kernel)
    : kernel_(&kernel),
      k_(k),
      n_(n),
      scales_(weights, k, n, bias, PanelColumns(n), /*for_table=*/false) {
  const size_t padded = PaddedBytes(k);
  weights_ = AlignedArray<uint8_t>(padded * PanelColumns(n));
  std::fill_n(weights_.data(), weights_.size(), static_cast<uint8_t>(kByteZero));
  const size_t depth = kernel.depth;
  for (int i = 0; i < n; ++i) {
    uint8_t* const panel = weights_.data() + i / kByteColumns * kByteColumns * padded;
    for (size_t j = 0; j < static_cast<size_t>(k); ++j) {
      panel[j / depth * depth * kByteColumns + i % kByteColumns * depth + j % depth] =
          static_cast<uint8_t>(weights.data[static_cast<size_t>(i) * k + j] + kByteZero);
    }
  }
}

void ByteMatrix::Multiply(const float* x, int rows, bool relu, ByteRows* rounded, float* y) const {
  rounded->Round(*kernel_, x, nullptr, rows, k_, scales_, /*for_table=*/false);
  ByteCall call;
  call.k = static_cast<int>(PaddedBytes(k_));
  call.n = n_;
  call.weights = weights_.data();
  call.offsets = scales_.offsets.data();
  call.bias = scales_.bias.data();
  call.relu = relu;
  call.x = rounded->x();
  call.x_rows = rounded->rows();
  call.rows = rows;
  call.y = y;
  call.y_stride = n_;
  kernel_->multiply_bytes(call);
}

}  // namespace sru::kernels::cpu
