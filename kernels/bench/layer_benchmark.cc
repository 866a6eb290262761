// SRU layers that write all token vectors, on one thread: two of them (BM_Layers), and oneDNN's
// products of the same shapes alone (BM_LayerProducts), the least that such layers can cost. The
// arguments are equal, so that scripts/report.py finds the pairs.
//
//   kernel_benchmarks interactive     reads lines "layers input hidden directions length batch
//                                     type", answers each with the microseconds of one forward
//                                     pass, as gpu_bench does; compare_pytorch.py alternates them
//                                     with PyTorch
#include <benchmark/benchmark.h>

#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "kernels/backend.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/measure.h"
#include "kernels/bench/stack_run.h"
#include "kernels/bench/system_case.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

struct Shape {
  Shape() {
    options.vocabulary_size = 0;  // features: every product is computed
    options.num_labels = 0;
    options.pooling = Pooling::kNone;
  }
  explicit Shape(const benchmark::State& state) : Shape() {
    dtype = kAllDataTypes[state.range(0)];
    options.num_layers = 2;
    options.directions = static_cast<int>(state.range(1));
    options.hidden_size = static_cast<int>(state.range(2));
    options.input_size = options.directions * options.hidden_size;
    length = static_cast<int>(state.range(3));
    batch = static_cast<int>(state.range(4));
  }

  DataType dtype = DataType::kFloat32;
  int length = 0;
  int batch = 0;
  testing::StackOptions options;
};

// Random layers, compiled, and a batch of random features.
class Layers {
 public:
  explicit Layers(const Shape& shape) : stack_(shape.options, 1) {
    BackendOptions hardware;
    hardware.cpu_threads = 1;  // as the products
    CompileOptions compile;
    compile.dtype = shape.dtype;
    status_ = CreateBackend("cpu", hardware, &backend_);
    if (status_.ok()) status_ = backend_->Compile(stack_.spec(), compile, &executable_);
    if (status_.ok()) run_.emplace(stack_.spec(), *executable_, shape.length, shape.batch);
  }

  // The first error of all.
  const Status& status() const { return run_.has_value() ? run_->status() : status_; }
  void Run() {
    if (run_.has_value()) run_->Run();
  }

 private:
  const testing::RandomStack stack_;
  Status status_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executable> executable_;
  std::optional<StackRun> run_;
};

void BM_Layers(benchmark::State& state) {
  Layers layers{Shape(state)};
  for (auto _ : state) {
    layers.Run();
    if (!layers.status().ok()) return state.SkipWithError(layers.status().message().c_str());
  }
}

void BM_LayerProducts(benchmark::State& state) {
  const Shape shape(state);
  BareProducts products(shape.dtype, ProductsOf(shape.batch * shape.length,
                                                testing::RandomStack(shape.options, 1).spec()));
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

int Interactive() {
  constexpr double kLeastUs = 2000;  // of one timing
  std::string last;
  std::unique_ptr<Layers> layers;
  for (std::string line; std::getline(std::cin, line);) {
    if (line != last) {
      Shape shape;
      std::string type;
      std::istringstream words(line);
      words >> shape.options.num_layers >> shape.options.input_size >> shape.options.hidden_size >>
          shape.options.directions >> shape.length >> shape.batch >> type;
      if (words.fail() || !ParseDataType(type, &shape.dtype)) {
        std::cerr
            << "kernel_benchmarks: expected 'layers input hidden directions length batch type'"
               ", found '"
            << line << "'\n";
        return 2;
      }
      layers = std::make_unique<Layers>(shape);
      layers->Run();
      last = line;
    }
    int runs = 0;
    double us = 0;
    for (; us < kLeastUs && layers->status().ok(); ++runs) {
      us += Microseconds([&] { layers->Run(); });
    }
    if (!layers->status().ok()) {
      std::cerr << "kernel_benchmarks: " << layers->status().message() << "\n";
      return 1;
    }
    std::cout << us / runs << std::endl;  // flushed, because the caller waits for it
  }
  return 0;
}

}  // namespace

int BenchmarksMain(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "interactive") return Interactive();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace sru::kernels

int main(int argc, char** argv) { return sru::kernels::BenchmarksMain(argc, argv); }
