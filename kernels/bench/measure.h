// What the benchmarks share: times, medians, one core, peak memory.
#ifndef SRU_KERNELS_BENCH_MEASURE_H_
#define SRU_KERNELS_BENCH_MEASURE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/status.h"

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
double Median(std::vector<double> values);

// When a series of measurements ends.
struct Rounds {
  int most = 51;       // odd, so that the median is a sample
  double seconds = 1;  // no further round is begun after so long, warm-up included
  int least = 3;       // whatever the time
};

// Times each body once per round, in turn: A B C A B C ... Returns the medians in the order of
// `bodies`, and in `*rounds_run`, unless null, the number of rounds. Before them comes a warm-up:
// three rounds, fewer when they take longer than a tenth of the time. A warm-up that takes all of
// it counts as a round: then what a first round costs more is small. `bodies` must not be empty.
std::vector<double> AlternatingMedians(const Rounds& rounds,
                                       const std::vector<std::function<void()>>& bodies,
                                       int* rounds_run = nullptr);

// Keeps the calling thread, and those that it starts, on one core: `core`, or with -1 the one that
// it is running on. `*pinned`, unless null, is that core.
Status PinToCore(int core, int* pinned = nullptr);

// Most memory that the process has had resident since its start or ResetPeakMemory(); 0 where the
// system does not say.
int64_t PeakMemoryBytes();
// False where the system does not allow it.
bool ResetPeakMemory();

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_MEASURE_H_
