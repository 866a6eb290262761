#include "kernels/bench/layer_bench.h"

#include <exception>
#include <memory>
#include <vector>

#include "kernels/bench/bare_product.h"
#include "kernels/bench/scan_alone.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

Status Check(const LayerBenchOptions& o) {
  const auto check = [](const char* name, int64_t value, int low, int high) {
    if (value >= low && value <= high) return OkStatus();
    return InvalidArgument(name, ": expected ", low, " to ", high, ", found ", value);
  };
  for (const Status& status :
       {check("length", o.length, 1, 1 << 16), check("batch", o.batch, 1, 1 << 16),
        check("input", o.input, 0, 1 << 14), check("hidden", o.hidden, 1, 1 << 14),
        check("directions", o.directions, 1, 2), check("layers", o.layers, 1, 256),
        check("rounds", o.rounds.most, 1, 1 << 20),
        check("length * batch", int64_t{o.length} * o.batch, 1, 1 << 20)}) {
    if (!status.ok()) return status;
  }
  return OkStatus();
}

Status Measure(const LayerBenchOptions& o, LayerBenchResult* result) {
  testing::StackOptions shape;
  shape.input_size = o.input > 0 ? o.input : o.directions * o.hidden;
  shape.hidden_size = o.hidden;
  shape.num_layers = o.layers;
  shape.directions = o.directions;
  shape.vocabulary_size = 0;  // features: every product is computed
  shape.num_labels = 0;
  shape.pooling = Pooling::kNone;
  const testing::RandomStack stack(shape, 1);
  const StackSpec& spec = stack.spec();
  const std::vector<int> lengths(o.batch, o.length);
  const int tokens = o.length * o.batch;

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
  CompileOptions compile;
  compile.dtype = o.dtype;
  SRU_RETURN_IF_ERROR(CreateBackend(o.backend, o.hardware, &backend));
  SRU_RETURN_IF_ERROR(backend->Compile(spec, compile, &executable));
  SRU_RETURN_IF_ERROR(executable->CreateWorkspace({tokens, o.batch}, &workspace));
  result->description = backend->description();

  const testing::RandomBatch random(spec, lengths, /*initial_state=*/false, 2);
  const RaggedBatch batch = random.view();
  std::vector<float> h(static_cast<size_t>(tokens) * spec.output_size());
  std::vector<SequenceOutput> wanted(o.batch);
  for (int b = 0; b < o.batch; ++b) {
    wanted[b].token_vectors = &h[static_cast<size_t>(batch.offsets[b]) * spec.output_size()];
  }

  BareProductList products(o.dtype);
  products.Add(tokens, spec);
  ScanAlone scan(spec, lengths);

  Status status;
  const std::vector<double> medians =
      AlternatingMedians(o.rounds,
                         {[&] {
                            const Status run = executable->Run(batch, wanted.data(), *workspace);
                            if (!run.ok()) status = run;
                          },
                          [&] { products.Run(); }, [&] { scan.Run(); }},
                         &result->rounds);
  if (!status.ok()) return status;
  result->layer_us = medians[0];
  result->products_us = medians[1];
  result->scan_us = medians[2];
  result->ratio = result->layer_us / result->products_us;
  result->gflops = products.flop() / result->products_us / 1e3;
  return OkStatus();
}

}  // namespace

Status RunLayerBench(const LayerBenchOptions& options, LayerBenchResult* result) {
  SRU_RETURN_IF_ERROR(Check(options));
  try {
    return Measure(options, result);
  } catch (const std::exception& e) {
    return Internal("layer bench: ", e.what());
  }
}

}  // namespace sru::kernels
