// What the benchmarks share: times and medians.
#ifndef SRU_KERNELS_BENCH_MEASURE_H_
#define SRU_KERNELS_BENCH_MEASURE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace sru::kernels {

// How long `body` takes by the wall clock.
template <typename Body>
double Microseconds(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// The middle value, the upper of two. `values` must not be empty.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_MEASURE_H_
