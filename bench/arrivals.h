// Poisson arrivals: the times at which independent users send, regardless of what the server does.
#ifndef SRU_BENCH_ARRIVALS_H_
#define SRU_BENCH_ARRIVALS_H_

#include <cstdint>
#include <random>

namespace sru::bench {

// Not thread-safe.
class PoissonArrivals {
 public:
  // `rate`: the mean number of arrivals per second, more than 0. The same seed gives the same
  // times.
  PoissonArrivals(double rate, uint64_t seed) : random_(seed), gap_s_(rate) {}

  // Nanoseconds from the start to the next arrival; never decreases.
  int64_t Next() {
    now_s_ += gap_s_(random_);
    return static_cast<int64_t>(now_s_ * 1e9);
  }

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_s_;
  double now_s_ = 0;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_ARRIVALS_H_
