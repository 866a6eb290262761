// Data types in the reference backend: float64 values that have been stored as one.
#ifndef SRU_KERNELS_REFERENCE_STORAGE_H_
#define SRU_KERNELS_REFERENCE_STORAGE_H_

#include <algorithm>
#include <cmath>
#include <vector>

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

// What storage in a data type does to a value; float32 storage is taken as exact.
class Storage {
 public:
  // As float32.
  Storage() = default;
  static Storage BFloat16() {
    Storage storage;
    storage.rounds_ = true;
    return storage;
  }

  double operator()(double value) const {
    return rounds_ ? RoundToBFloat16(static_cast<float>(value)) : value;
  }
  // Backends store a gate's weight multiplied by -log2(e), in float32, and round the product.
  double Gate(float weight) const {
    if (!rounds_) return weight;
    constexpr float kMinusLog2E = -1.4426950408889634f;
    return static_cast<double>(RoundToBFloat16(kMinusLog2E * weight)) / kMinusLog2E;
  }
  void Round(std::vector<double>* values) const {
    for (double& value : *values) value = (*this)(value);
  }

 private:
  bool rounds_ = false;
};

}  // namespace sru::kernels::reference

#endif  // SRU_KERNELS_REFERENCE_STORAGE_H_
