// Benchmarks whose bodies take turns in one run, so that ratios hold on a machine whose speed moves.
#ifndef SRU_KERNELS_BENCH_ALTERNATE_H_
#define SRU_KERNELS_BENCH_ALTERNATE_H_

#include <benchmark/benchmark.h>

#include <functional>
#include <vector>

#include "kernels/bench/measure.h"

namespace sru::kernels {

// A benchmark times itself: once, by Alternate().
inline void Once(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Iterations(1);
}

// Runs the bodies in turn, for so many seconds and rounds at most, and returns their median times in
// microseconds. The first is the benchmark's time, and `ratio` what it is of the second.
inline std::vector<double> Alternate(benchmark::State& state, double seconds, int most,
                                     const std::vector<std::function<void()>>& bodies) {
  std::vector<double> medians;
  for (auto _ : state) {
    Rounds rounds;
    rounds.seconds = seconds;
    rounds.most = most;
    medians = AlternatingMedians(rounds, bodies);
    state.SetIterationTime(medians[0] / 1e6);
  }
  state.counters["ratio"] = medians[0] / medians[1];
  return medians;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_ALTERNATE_H_
