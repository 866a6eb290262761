// Two SRU layers that write all token vectors (BM_Layers), and oneDNN's products of the same shapes
// alone (BM_LayerProducts), the least that such layers can cost. The arguments are equal, so that
// scripts/report.py finds the pairs.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/system_case.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

struct Shape {
  explicit Shape(const benchmark::State& state)
      : dtype(kAllDataTypes[state.range(0)]),
        lengths(state.range(4), static_cast<int>(state.range(3))),
        tokens(static_cast<int>(state.range(3) * state.range(4))) {
    options.directions = static_cast<int>(state.range(1));
    options.hidden_size = static_cast<int>(state.range(2));
    options.input_size = options.directions * options.hidden_size;
    options.num_layers = 2;
    options.vocabulary_size = 0;  // features: every product is computed
    options.num_labels = 0;
    options.pooling = Pooling::kNone;
  }

  DataType dtype;
  std::vector<int> lengths;
  int tokens;
  testing::StackOptions options;
};

void BM_Layers(benchmark::State& state) {
  const Shape shape(state);
  const testing::RandomStack stack(shape.options, 1);
  const testing::RandomBatch random(stack.spec(), shape.lengths, /*initial_state=*/false, 2);
  const RaggedBatch batch = random.view();
  std::vector<float> h(static_cast<size_t>(shape.tokens) * stack.spec().output_size());
  std::vector<SequenceOutput> wanted(shape.lengths.size());
  for (size_t b = 0; b < wanted.size(); ++b) {
    wanted[b].token_vectors =
        &h[static_cast<size_t>(batch.offsets[b]) * stack.spec().output_size()];
  }
  BackendOptions hardware;
  hardware.cpu_threads = 1;  // as the products
  CompileOptions compile;
  compile.dtype = shape.dtype;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
  Status status = CreateBackend("cpu", hardware, &backend);
  if (status.ok()) status = backend->Compile(stack.spec(), compile, &executable);
  if (status.ok()) {
    status = executable->CreateWorkspace({shape.tokens, batch.num_sequences}, &workspace);
  }
  if (!status.ok()) return state.SkipWithError(status.message().c_str());
  for (auto _ : state) {
    status = executable->Run(batch, wanted.data(), *workspace);
    if (!status.ok()) return state.SkipWithError(status.message().c_str());
  }
}

void BM_LayerProducts(benchmark::State& state) {
  const Shape shape(state);
  BareProductList products(shape.dtype,
                           ProductsOf(shape.tokens, testing::RandomStack(shape.options, 1).spec()));
  for (auto _ : state) products.Run();
}

// By data type 0, 1, ... of data_type.h.
void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "directions", "hidden", "length", "batch"})
      ->ArgsProduct({{0, 1}, {1, 2}, {64, 128, 256, 512}, {8, 32, 128}, {1, 32}})
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_Layers)->Apply(Shapes);
BENCHMARK(BM_LayerProducts)->Apply(Shapes);

}  // namespace
}  // namespace sru::kernels
