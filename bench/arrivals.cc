#include "bench/arrivals.h"

namespace sru::bench {

PoissonArrivals::PoissonArrivals(double rate, uint64_t seed) : random_(seed), gap_s_(rate) {}

int64_t PoissonArrivals::Next() {
  now_s_ += gap_s_(random_);
  return static_cast<int64_t>(now_s_ * 1e9);
}

}  // namespace sru::bench
