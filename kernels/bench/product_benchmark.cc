// The CPU backend's products, and oneDNN's alone in the same shapes.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/bench/bare_product.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/stacks/product.h"

namespace sru::kernels::cpu {
namespace {

void CountFlop(benchmark::State& state, double flop) {
  state.counters["flop"] = benchmark::Counter(flop * static_cast<double>(state.iterations()),
                                              benchmark::Counter::kIsRate);
}

// Values of ProductType that this processor multiplies: oneDNN refuses bfloat16 on others.
std::vector<int64_t> ProductTypes() {
  if (!HasAvx512Bf16()) return {0, 2};
  return {0, 1, 2};
}

// One direction of a layer in a bidirectional stack: k = 2 hidden, n = 3 hidden. By ProductType: 0
// float32, 1 bfloat16, 2 int8.
void BM_Product(benchmark::State& state) {
  const int hidden = static_cast<int>(state.range(0));
  const int rows = static_cast<int>(state.range(1));
  omp_set_num_threads(1);  // as the backend does
  const int k = 2 * hidden;
  const int n = 3 * hidden;
  const std::vector<float> weights(static_cast<size_t>(k) * n, 0.5f);
  ProductShapes shapes(static_cast<ProductType>(state.range(2)));
  const Product product(shapes, weights.data(), k, n, RowBuckets(256));
  ProductRunner runner(product);
  AlignedBuffer x(static_cast<size_t>(256) * k);
  AlignedBuffer y(static_cast<size_t>(256) * n);
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::generate_n(x.data(), x.size(), [&] { return uniform(random); });
  for (auto _ : state) runner.Run(x.data(), rows, y.data());
  CountFlop(state, 2.0 * rows * k * n);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(product.bytes()));
}
BENCHMARK(BM_Product)
    ->ArgNames({"hidden", "rows", "type"})
    ->ArgsProduct({{64, 128, 256, 512}, {1, 9, 32, 256}, ProductTypes()});

void BM_BareProduct(benchmark::State& state) {
  const int hidden = static_cast<int>(state.range(0));
  const auto dtype = state.range(2) == 16 ? DataType::kBFloat16 : DataType::kFloat32;
  BareProduct product(dtype, static_cast<int>(state.range(1)), 2 * hidden, 3 * hidden);
  for (auto _ : state) product.Run();
  CountFlop(state, product.flop());
}
BENCHMARK(BM_BareProduct)
    ->ArgNames({"hidden", "rows", "bits"})
    ->ArgsProduct({{64, 128, 256, 512}, {1, 9, 32, 256}, {32, 16}});

}  // namespace
}  // namespace sru::kernels::cpu
