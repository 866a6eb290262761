// Whole batches through an executable: one layer (BM_Layer), and a small classifier as it is served
// (BM_Stack, by data type 0, 1, ... of data_type.h): embedding, two layers, pooling, softmax.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

// Runs batches of `batch` sequences of `length` tokens and counts tokens.
void RunBatches(benchmark::State& state, const testing::StackOptions& shape, DataType dtype,
                int length, int batch, bool token_vectors) {
  const testing::RandomStack stack(shape, 1);
  const testing::RandomBatch random(stack.spec(), std::vector<int>(batch, length), false, 2);
  const RaggedBatch view = random.view();
  testing::OutputArrays arrays(stack.spec(), view, shape.pooling);
  for (SequenceOutput& out : arrays.outputs) {
    out.final_state = nullptr;
    if (token_vectors) {
      out.pooled = nullptr;
    } else {
      out.token_vectors = nullptr;
    }
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
  CompileOptions options;
  options.dtype = dtype;
  Status status = CreateBackend("cpu", &backend);
  if (status.ok()) status = backend->Compile(stack.spec(), options, &executable);
  if (status.ok()) status = executable->CreateWorkspace({length * batch, batch}, &workspace);
  if (!status.ok()) {
    state.SkipWithError(status.message().c_str());
    return;
  }
  for (auto _ : state) {
    const Status run = executable->Run(view, arrays.outputs.data(), *workspace);
    if (!run.ok()) {
      state.SkipWithError(run.message().c_str());
      return;
    }
  }
  state.counters["tokens"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * length * batch, benchmark::Counter::kIsRate);
}

void BM_Layer(benchmark::State& state) {
  testing::StackOptions shape;
  shape.hidden_size = static_cast<int>(state.range(0));
  shape.directions = static_cast<int>(state.range(3));
  shape.input_size = shape.directions * shape.hidden_size;
  shape.num_layers = 1;
  shape.vocabulary_size = 0;
  shape.num_labels = 0;
  RunBatches(state, shape, DataType::kFloat32, static_cast<int>(state.range(1)),
             static_cast<int>(state.range(2)), /*token_vectors=*/true);
}
BENCHMARK(BM_Layer)
    ->ArgNames({"hidden", "length", "batch", "directions"})
    ->ArgsProduct({{64, 128, 256, 512}, {8, 32, 128}, {1, 32}, {1, 2}})
    ->Unit(benchmark::kMicrosecond);

void BM_Stack(benchmark::State& state) {
  testing::StackOptions shape;
  shape.input_size = 128;
  shape.hidden_size = 64;
  shape.vocabulary_size = 1000;
  RunBatches(state, shape, kAllDataTypes[state.range(2)], static_cast<int>(state.range(0)),
             static_cast<int>(state.range(1)), /*token_vectors=*/false);
}
BENCHMARK(BM_Stack)
    ->ArgNames({"length", "batch", "dtype"})
    ->ArgsProduct({{1, 8, 32, 128}, {1, 32}, {0, 1, 2}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sru::kernels
