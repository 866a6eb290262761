// Data types in the reference backend (data_type.h): what storage does to float64 values.
#ifndef SRU_KERNELS_REFERENCE_STORAGE_H_
#define SRU_KERNELS_REFERENCE_STORAGE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::reference {

// The bfloat16 value (8 bits of precision, the exponents of float32) that is nearest to a float32,
// ties to even. Like everything here it shares no code with the backends that it judges.
inline float RoundToBFloat16(float value) {
  if (!std::isfinite(value) || value == 0.0f) return value;
  constexpr int kPrecision = 8;
  constexpr int kSmallestUnit = -133;  // of the subnormal values, 2^-126 * 2^-7
  const int exponent = std::ilogb(value);
  const int unit = std::max(exponent - kPrecision + 1, kSmallestUnit);
  // Exact in float64. Past the largest value the conversion gives infinity.
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(double{value}, -unit)), unit));
}

// Rounds values to whole multiples of a scale, of which the largest magnitude is 127. The scale and
// the quotients are float32, so that every backend rounds to the same multiples.
inline void RoundToInt8(std::vector<float>* values, std::vector<double>* rounded) {
  constexpr float kTiny = 1e-30f;  // below, all are 0
  float largest = 0;
  for (float value : *values) largest = std::max(largest, std::abs(value));
  const float scale = largest / 127;
  for (size_t i = 0; i < values->size(); ++i) {
    (*rounded)[i] =
        largest < kTiny ? 0 : static_cast<double>(std::nearbyint((*values)[i] / scale)) * scale;
  }
}

// What storage in a data type does to a value; float32 storage is taken as exact.
class Storage {
 public:
  explicit Storage(DataType dtype = DataType::kFloat32) : dtype_(dtype) {}

  static bool Has(DataType dtype) {
    switch (dtype) {
      case DataType::kFloat32:
      case DataType::kBFloat16:
      case DataType::kInt8:
        return true;
    }
    return false;
  }

  // The storage of tables, which are never in int8.
  Storage OfTables() const {
    return Storage(dtype_ == DataType::kFloat32 ? dtype_ : DataType::kBFloat16);
  }

  // What one layer passes to the next.
  void RoundActivations(std::vector<double>* values) const {
    if (dtype_ != DataType::kBFloat16) return;
    for (double& value : *values) value = RoundToBFloat16(static_cast<float>(value));
  }

  double Embedding(float value) const {
    return dtype_ == DataType::kFloat32 ? value : RoundToBFloat16(value);
  }

  // The weights of a product: w is [rows][columns] with a result for each of its columns, or
  // transposed, with a result for each of its rows. Of a layer's gates `num_matrices` results
  // belong to one dimension.
  std::vector<double> Weights(const FloatView& w, int rows, int columns, bool transposed,
                              int num_matrices = 1) const {
    std::vector<double> stored(w.data, w.data + w.size);
    if (dtype_ == DataType::kFloat32) return stored;
    const int results = transposed ? rows : columns;
    const int size = transposed ? columns : rows;
    std::vector<float> of_result(size);
    std::vector<double> rounded(size);
    for (int result = 0; result < results; ++result) {
      // Backends store a gate's weight multiplied by -log2(e), in float32, and round the product.
      const int matrix = result % num_matrices;
      const float factor = matrix == 1 || matrix == 2 ? -1.4426950408889634f : 1.0f;
      const auto at = [&](int i) {
        return transposed ? static_cast<size_t>(result) * columns + i
                          : static_cast<size_t>(i) * columns + result;
      };
      for (int i = 0; i < size; ++i) of_result[i] = factor * w.data[at(i)];
      if (dtype_ == DataType::kInt8) {
        RoundToInt8(&of_result, &rounded);
      } else {
        std::transform(of_result.begin(), of_result.end(), rounded.begin(), RoundToBFloat16);
      }
      for (int i = 0; i < size; ++i) stored[at(i)] = rounded[i] / factor;
    }
    return stored;
  }

 private:
  DataType dtype_;
};

}  // namespace sru::kernels::reference

#endif  // SRU_KERNELS_REFERENCE_STORAGE_H_
