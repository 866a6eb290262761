// Sine and cosine in float64 of angles that are not negative, as positions are. The same operations
// on the GPU and on the host, so that the bits are too; the toolkit's own would also keep a table
// for huge angles in local memory.
#ifndef SRU_KERNELS_CUDA_KERNELS_SINUSOID_CUH_
#define SRU_KERNELS_CUDA_KERNELS_SINUSOID_CUH_

#include <cmath>
#include <cstdint>

namespace sru::kernels::cuda {

// Polynomials for |x| <= pi / 4, from the series; their errors are below 2^-57.
__device__ __forceinline__ double SineNearZero(double x) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;  // 17!
  p = fma(p, z, -1.0 / 1307674368000.0);
  p = fma(p, z, 1.0 / 6227020800.0);
  p = fma(p, z, -1.0 / 39916800.0);
  p = fma(p, z, 1.0 / 362880.0);
  p = fma(p, z, -1.0 / 5040.0);
  p = fma(p, z, 1.0 / 120.0);
  p = fma(p, z, -1.0 / 6.0);
  return fma(p * z, x, x);
}

__device__ __forceinline__ double CosineNearZero(double x) {
  const double z = x * x;
  double p = 1.0 / 20922789888000.0;  // 16!
  p = fma(p, z, -1.0 / 87178291200.0);
  p = fma(p, z, 1.0 / 479001600.0);
  p = fma(p, z, -1.0 / 3628800.0);
  p = fma(p, z, 1.0 / 40320.0);
  p = fma(p, z, -1.0 / 720.0);
  p = fma(p, z, 1.0 / 24.0);
  p = fma(p, z, -0.5);
  return fma(p, z, 1.0);
}

// sin(angle + quarters * pi / 2), for angles up to 2^32.
__device__ __forceinline__ double SineFrom(double angle, int quarters) {
  // pi / 2 in two parts: what is left of the difference is below 2^-70 for every quarter.
  constexpr double kQuarter = 1.5707963267948966;
  constexpr double kQuarterRest = 6.123233995736766e-17;
  const double whole = rint(angle * 0.6366197723675814);
  const double rest = fma(-whole, kQuarterRest, fma(-whole, kQuarter, angle));
  const int quarter = static_cast<int>((static_cast<int64_t>(whole) + quarters) % 4);
  const double value = quarter % 2 == 0 ? SineNearZero(rest) : CosineNearZero(rest);
  return quarter < 2 ? value : -value;
}

__device__ __forceinline__ double Sine(double angle) { return SineFrom(angle, 0); }
__device__ __forceinline__ double Cosine(double angle) { return SineFrom(angle, 1); }

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SINUSOID_CUH_
