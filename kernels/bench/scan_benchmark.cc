// The scan of one sequence and direction, U in the cache.
#include <benchmark/benchmark.h>

#include "kernels/bench/scan_alone.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

void BM_Scan(benchmark::State& state) {
  const int hidden = static_cast<int>(state.range(0));
  const int length = static_cast<int>(state.range(1));
  testing::StackOptions shape;
  shape.hidden_size = hidden;
  shape.directions = 1;
  shape.input_size = state.range(2) == 3 ? hidden : hidden + 1;
  shape.num_layers = 1;
  const testing::RandomStack stack(shape, 1);
  ScanAlone scan(stack.spec(), {length});
  for (auto _ : state) scan.Run();
  // Per second; its inverse is the time of one vector of 16 lanes and one step.
  const int vectors = length * ((hidden + 15) / 16);
  state.counters["vectors"] = benchmark::Counter(static_cast<double>(state.iterations()) * vectors,
                                                 benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Scan)
    ->ArgNames({"hidden", "length", "matrices"})
    ->ArgsProduct({{64, 128, 256, 512}, {1, 8, 512}, {3, 4}});

}  // namespace
}  // namespace sru::kernels
