#include "kernels/bench/layer_bench.h"

#include <omp.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <random>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/bfloat16_rows.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/product.h"

namespace sru::kernels {
namespace {

// Time of this thread on a core, which other programs do not lengthen, or of the wall's clock for
// a backend that computes elsewhere.
double NowMicroseconds(bool of_thread) {
  timespec now;
  clock_gettime(of_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

template <typename Body>
double Microseconds(bool of_thread, Body body) {
  const double start = NowMicroseconds(of_thread);
  body();
  return NowMicroseconds(of_thread) - start;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<float> Normal(size_t size, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

Status Check(const LayerBenchOptions& o) {
  const auto check = [](const char* name, int value, int high) {
    if (value >= 1 && value <= high) return OkStatus();
    return InvalidArgument(std::string(name) + ": expected 1 to " + std::to_string(high) +
                           ", found " + std::to_string(value));
  };
  for (const Status& status :
       {check("length", o.length, 1 << 16), check("batch", o.batch, 1 << 16),
        check("input", o.input, 1 << 14), check("hidden", o.hidden, 1 << 14),
        check("rounds", o.rounds, 1 << 20), check("length * batch", o.length * o.batch, 1 << 20)}) {
    if (!status.ok()) return status;
  }
  return OkStatus();
}

Status Measure(const LayerBenchOptions& o, LayerBenchResult* result) {
  std::mt19937 random(1);
  const int directions = o.bidirectional ? 2 : 1;
  LayerSpec layer;
  layer.input_size = o.input;
  layer.hidden_size = o.hidden;
  layer.directions = directions;
  layer.num_matrices = o.input == layer.output_size() ? 3 : 4;
  const int outputs = layer.output_size();
  const int columns = outputs * layer.num_matrices;
  const float scale = 1.0f / static_cast<float>(o.input);
  const std::vector<float> weight = Normal(static_cast<size_t>(o.input) * columns, scale, random);
  const std::vector<float> weight_c = Normal(2 * outputs, 0.5f, random);
  const std::vector<float> bias = Normal(2 * outputs, 0.5f, random);
  layer.weight = {weight.data(), weight.size()};
  layer.weight_c = {weight_c.data(), weight_c.size()};
  layer.bias = {bias.data(), bias.size()};
  StackSpec spec;
  spec.input_size = o.input;
  spec.layers.push_back(layer);

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
  const int tokens = o.length * o.batch;
  CompileOptions compile;
  compile.dtype = o.dtype;
  BackendOptions backend_options;
  backend_options.cpu_isa = o.cpu_isa;
  backend_options.cpu_threads = 1;
  Status status = CreateBackend(o.backend, backend_options, &backend);
  if (status.ok()) status = backend->Compile(spec, compile, &executable);
  if (status.ok()) status = executable->CreateWorkspace({tokens, o.batch}, &workspace);
  if (!status.ok()) return status;
  result->description = backend->description();

  const std::vector<float> x = Normal(static_cast<size_t>(tokens) * o.input, 1.0f, random);
  std::vector<float> h(static_cast<size_t>(tokens) * outputs);
  std::vector<int32_t> offsets;
  std::vector<SequenceOutput> wanted(o.batch);
  for (int b = 0; b <= o.batch; ++b) offsets.push_back(b * o.length);
  for (int b = 0; b < o.batch; ++b) {
    wanted[b].token_vectors = &h[static_cast<size_t>(offsets[b]) * outputs];
  }
  RaggedBatch batch;
  batch.num_sequences = o.batch;
  batch.offsets = offsets.data();
  batch.features = x.data();

  omp_set_num_threads(1);
  const bool in_bfloat16 = o.dtype == DataType::kBFloat16 && HasAvx512Bf16();
  ProductShapes shapes(in_bfloat16 ? ProductType::kBFloat16 : ProductType::kFloat32);
  const Product product(shapes, weight.data(), o.input, columns, {tokens});
  ProductRunner runner(product);
  AlignedBuffer u(static_cast<size_t>(tokens) * columns);
  AlignedArray<BFloat16> rounded_x(x.size());
  ToBFloat16Row(x.data(), x.size(), rounded_x.data());
  const auto multiply = [&] {
    if (in_bfloat16) {
      runner.Run(rounded_x.data(), tokens, u.data());
    } else {
      runner.Run(x.data(), tokens, u.data());
    }
  };

  const bool of_thread = o.backend != "cuda";
  std::vector<double> layer_us;
  std::vector<double> products_us;
  constexpr int kWarmUp = 3;
  for (int round = -kWarmUp; round < o.rounds; ++round) {
    const double of_layer = Microseconds(
        of_thread, [&] { status = executable->Run(batch, wanted.data(), *workspace); });
    if (!status.ok()) return status;
    const double of_products = Microseconds(of_thread, multiply);
    if (round < 0) continue;
    layer_us.push_back(of_layer);
    products_us.push_back(of_products);
  }
  result->layer_us = Median(layer_us);
  result->products_us = Median(products_us);
  result->ratio = result->layer_us / result->products_us;
  result->gflops = 2.0 * tokens * o.input * columns / result->products_us / 1e3;
  return OkStatus();
}

}  // namespace

Status RunLayerBench(const LayerBenchOptions& options, LayerBenchResult* result) {
  const Status status = Check(options);
  if (!status.ok()) return status;
  try {
    return Measure(options, result);
  } catch (const std::exception& e) {
    return Internal(std::string("layer bench: ") + e.what());
  }
}

}  // namespace sru::kernels
