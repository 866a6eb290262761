// A language model as a program: a stack on ids with a state, the last row of the run before, and
// Predict. BM_LanguageModel scores sequences, and BM_DecodingStep takes one token of each sequence and
// picks the next (`sampled`: among those that have nine tenths, else the best), against what the model's
// matrix products alone cost, its stack alone, and reading as much memory as its weights as fast as one
// thread can, in one alternating run on one thread (`ratio` is to the products, `to_reading` to the memory). The last shape is the size of the
// paper's model. BM_Predict and BM_Attend measure one operation.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/alternate.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/memory_reading.h"
#include "kernels/bench/program_model.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

struct ModelShape {
  int vocabulary = 0;
  int input = 0;
  int hidden = 0;
  int layers = 0;
  int projection = 0;
};

// By number, as arguments of a benchmark: a small one, 48.8 million parameters, and 44 million with a large
// vocabulary and no projections.
const ModelShape kShapes[] = {
    {205, 64, 512, 4, 128}, {205, 256, 2048, 12, 512}, {20000, 512, 1024, 5, 0}};

// A compiled language model and its stack alone, with a batch.
class LanguageModel {
 public:
  // Scores without slots, else picks.
  LanguageModel(const ModelShape& shape, DataType dtype, int length, int batch, bool slots,
                bool sampled = false)
      : stack_(StackOptionsOf(shape), 1),
        weight_(static_cast<size_t>(shape.vocabulary) * shape.hidden, 0.01f) {
    const AxisId tokens = program_.AddAxis("tokens");
    const AxisId sequences = program_.AddSequenceAxis("sequences", tokens);
    const InputId ids = program_.AddIds("ids", tokens, 0, shape.vocabulary);
    const InputId targets = program_.AddIds("targets", tokens, -1, shape.vocabulary);
    const InputId sampling = program_.AddSampling("sampling", sequences);
    ops::Stack stack;
    stack.ids = ids;
    stack.spec = stack_.spec();
    stack.state = program_.AddField("c", shape.layers * shape.hidden);
    ops::Shift shift;
    shift.x = program_.Apply(stack);
    shift.last = program_.AddField("h", shape.hidden);
    ops::Predict predict;
    predict.x = program_.Apply(shift);
    predict.vocabulary_size = shape.vocabulary;
    predict.weight = {weight_.data(), weight_.size()};
    predict.targets = targets;
    const int log_prob =
        program_.AddOutput("log_prob", program_.Apply(predict), OutputType::kLogProb);
    ops::Last last;
    last.x = shift.x;
    last.axis = sequences;
    last.last = shift.last;
    predict.x = program_.Apply(last);
    predict.targets = kNone;
    predict.sampling = sampling;
    const int picked = program_.AddOutput("picked", program_.Apply(predict), OutputType::kPicked);

    const int rows = length * batch;
    const std::vector<int> lengths(batch, length);
    ProgramLimits limits;
    limits.axes = {{rows, batch}, {}};
    model_ = std::make_unique<BenchmarkModel>(program_, dtype, limits);
    if (!status().ok()) return;
    data_ = testing::RandomData(program_, {lengths}, 2);
    for (int t = 0; t < rows; ++t) {
      data_.ids[targets][t] = t % length == 0 ? -1 : data_.ids[ids][t];
    }
    for (Sampling& row : data_.sampling[sampling]) {
      row = sampled ? Sampling{1, 0, 0.9f, 0, row.random} : Sampling();
    }
    std::vector<StateArena::Slot> of_batch;
    if (slots) of_batch = model_->NewSlots(batch);
    batch_ = std::make_unique<BenchmarkBatch>(
        program_, data_, std::vector<std::vector<StateArena::Slot>>{of_batch}, 0);
    batch_->Want(slots ? picked : log_prob);

    CompileOptions options;
    options.dtype = dtype;
    model_->Note(model_->backend().Compile(stack_.spec(), options, &stack_alone_));
    if (!status().ok()) return;
    model_->Note(stack_alone_->CreateWorkspace({rows, batch}, &stack_workspace_));
    stack_batch_ = std::make_unique<testing::RandomBatch>(stack_.spec(), lengths, false, 2);
    stack_outputs_ = std::make_unique<testing::OutputArrays>(stack_.spec(), stack_batch_->view(),
                                                             Pooling::kNone);
    for (SequenceOutput& output : stack_outputs_->outputs) output.final_state = nullptr;
  }

  const Status& status() const { return model_->status(); }
  const StackSpec& stack() const { return stack_.spec(); }
  size_t workspace_bytes() const { return model_->workspace_bytes(); }
  size_t weight_bytes() const { return model_->weight_bytes(); }

  void Run() { model_->Run(*batch_); }
  void RunStackAlone() {
    model_->Note(
        stack_alone_->Run(stack_batch_->view(), stack_outputs_->outputs.data(), *stack_workspace_));
  }

 private:
  static testing::StackOptions StackOptionsOf(const ModelShape& shape) {
    testing::StackOptions options;
    options.vocabulary_size = shape.vocabulary;
    options.input_size = shape.input;
    options.hidden_size = shape.hidden;
    options.num_layers = shape.layers;
    options.directions = 1;
    options.projection_size = shape.projection;
    options.alpha = 1.0f;
    options.pooling = Pooling::kNone;
    options.num_labels = 0;
    return options;
  }

  testing::RandomStack stack_;
  std::vector<float> weight_;
  Program program_;
  testing::ProgramData data_;
  std::unique_ptr<BenchmarkModel> model_;
  std::unique_ptr<BenchmarkBatch> batch_;
  std::unique_ptr<Executable> stack_alone_;
  std::unique_ptr<Workspace> stack_workspace_;
  std::unique_ptr<testing::RandomBatch> stack_batch_;
  std::unique_ptr<testing::OutputArrays> stack_outputs_;
};

// Every product of the model.
BareProductList ProductsOf(const StackSpec& stack, int vocabulary, DataType dtype, int rows) {
  BareProductList products(dtype);
  products.Add(rows, stack);
  products.Add(rows, stack.output_size(), vocabulary);
  return products;
}

DataType TypeOf(int64_t argument) {
  return argument == 0 ? DataType::kFloat32 : DataType::kBFloat16;
}

void BM_LanguageModel(benchmark::State& state) {
  const ModelShape& shape = kShapes[state.range(0)];
  const DataType dtype = TypeOf(state.range(1));
  constexpr int kLength = 128;
  constexpr int kBatch = 32;
  LanguageModel model(shape, dtype, kLength, kBatch, /*slots=*/false);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  BareProductList products = ProductsOf(model.stack(), shape.vocabulary, dtype, kLength * kBatch);
  const std::vector<double> us =
      Alternate(state, 20, 15,
                {[&] { model.Run(); }, [&] { products.Run(); }, [&] { model.RunStackAlone(); }});
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
  state.counters["products_ms"] = us[1] / 1e3;
  state.counters["stack_ms"] = us[2] / 1e3;
  state.counters["tokens"] = kLength * kBatch / us[0] * 1e6;
  state.counters["workspace_mb"] = static_cast<double>(model.workspace_bytes()) / 1e6;
}
BENCHMARK(BM_LanguageModel)
    ->ArgNames({"shape", "bfloat16"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Apply(Once)
    ->Unit(benchmark::kMillisecond);

void BM_DecodingStep(benchmark::State& state) {
  const ModelShape& shape = kShapes[state.range(0)];
  const DataType dtype = TypeOf(state.range(1));
  const int batch = static_cast<int>(state.range(2));
  LanguageModel model(shape, dtype, 1, batch, /*slots=*/true, state.range(3) != 0);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  BareProductList products = ProductsOf(model.stack(), shape.vocabulary, dtype, batch);
  const MemoryReading reading(model.weight_bytes());
  const std::vector<double> us =
      Alternate(state, 4, 1001,
                {[&] { model.Run(); }, [&] { products.Run(); }, [&] { model.RunStackAlone(); },
                 [&] { benchmark::DoNotOptimize(reading.Run()); }});
  state.counters["products_us"] = us[1];
  state.counters["stack_us"] = us[2];
  state.counters["reading_us"] = us[3];
  state.counters["to_reading"] = us[0] / us[3];
  state.counters["reading_gb_s"] = static_cast<double>(model.weight_bytes()) / us[3] / 1e3;
  state.counters["streams"] = MemoryReading::way(reading.fastest()).streams;
  state.counters["tokens"] = batch / us[0] * 1e6;
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
}
BENCHMARK(BM_DecodingStep)
    ->ArgNames({"shape", "bfloat16", "batch", "sampled"})
    ->ArgsProduct({{0, 1}, {0, 1}, {1, 64}, {0, 1}})
    ->Apply(Once)
    ->Unit(benchmark::kMicrosecond);

// A step in every data type in one alternating run on one thread, and reading the weights of each as fast as
// one thread can: what a smaller type saves where weights are read once.
void BM_DecodingStepByType(benchmark::State& state) {
  const ModelShape& shape = kShapes[state.range(0)];
  const int batch = static_cast<int>(state.range(1));
  std::vector<std::unique_ptr<LanguageModel>> models;
  std::vector<std::unique_ptr<MemoryReading>> readings;
  std::vector<std::function<void()>> bodies;
  for (const DataType dtype : kAllDataTypes) {
    models.push_back(std::make_unique<LanguageModel>(shape, dtype, 1, batch, /*slots=*/true));
    LanguageModel* const model = models.back().get();
    if (!model->status().ok()) return state.SkipWithError(model->status().message().c_str());
    readings.push_back(std::make_unique<MemoryReading>(model->weight_bytes()));
    bodies.emplace_back([model] { model->Run(); });
    bodies.emplace_back(
        [reading = readings.back().get()] { benchmark::DoNotOptimize(reading->Run()); });
  }
  const std::vector<double> us = Alternate(state, 6, 1001, bodies);
  for (size_t i = 0; i < kAllDataTypes.size(); ++i) {
    const std::string name = DataTypeName(kAllDataTypes[i]);
    state.counters[name + "_us"] = us[2 * i];
    state.counters[name + "_reading_us"] = us[2 * i + 1];
    state.counters[name + "_mb"] = static_cast<double>(models[i]->weight_bytes()) / 1e6;
  }
}
BENCHMARK(BM_DecodingStepByType)
    ->ArgNames({"shape", "batch"})
    ->ArgsProduct({{0, 1, 2}, {1, 8, 64}})
    ->Apply(Once)
    ->Unit(benchmark::kMicrosecond);

// A program of features on one axis: `sequences` of `length` rows, random.
struct FeatureModel {
  testing::ProgramData data;
  BenchmarkModel model;
  BenchmarkBatch batch;

  FeatureModel(const Program& program, DataType dtype, int length, int sequences)
      : data(testing::RandomData(program, {std::vector<int>(sequences, length)}, 2)),
        model(program, dtype, Limits(program, length * sequences, sequences)),
        batch(program, data, {}, 0) {}

  static ProgramLimits Limits(const Program& program, int rows, int sequences) {
    ProgramLimits limits;
    limits.axes.resize(program.axes.size());
    limits.axes[0] = {rows, sequences};
    return limits;
  }

  const Status& status() const { return model.status(); }
  void Run() { model.Run(batch); }
};

// Log-probabilities of rows against the product alone (`ratio`).
void BM_Predict(benchmark::State& state) {
  const DataType dtype = TypeOf(state.range(0));
  const int vocabulary = static_cast<int>(state.range(1));
  const int width = static_cast<int>(state.range(2));
  constexpr int kRows = 512;
  testing::RandomProgram random(1);
  const AxisId rows = random.program.AddAxis("rows");
  random.Predict("next", random.Features("x", rows, width), rows, vocabulary, 1);
  FeatureModel model(random.program, dtype, kRows, 1);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  model.batch.Want(0);
  BareProduct product(dtype, kRows, width, vocabulary);
  const std::vector<double> us =
      Alternate(state, 4, 51, {[&] { model.Run(); }, [&] { product.Run(); }});
  state.counters["product_gflops"] = product.flop() / us[1] / 1e3;
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
  state.counters["workspace_mb"] = static_cast<double>(model.model.workspace_bytes()) / 1e6;
}
BENCHMARK(BM_Predict)
    ->ArgNames({"bfloat16", "vocabulary", "width"})
    ->ArgsProduct({{0, 1}, {205, 10000, 50000}, {512}})
    ->Apply(Once)
    ->Unit(benchmark::kMillisecond);

// Picks of 64 rows against the product alone (`ratio`): greedy, of all symbols, of the best 40, of those
// with nine tenths, and of the best 1,000 of these.
void BM_Pick(benchmark::State& state) {
  const DataType dtype = TypeOf(state.range(0));
  const int vocabulary = static_cast<int>(state.range(1));
  constexpr int kRows = 64;
  constexpr int kWidth = 512;
  const Sampling kinds[] = {{},
                            {1.0f, 0, 0.0f, 0.0f, 0},
                            {1.0f, 40, 0.0f, 0.0f, 0},
                            {1.0f, 0, 0.9f, 0.0f, 0},
                            {1.0f, 1000, 0.9f, 0.0f, 0}};
  testing::RandomProgram random(1);
  const AxisId rows = random.program.AddAxis("rows");
  const ValueId value =
      random.Pick("next", random.Features("x", rows, kWidth), rows, vocabulary, 1, 0.15f);
  FeatureModel model(random.program, dtype, 1, kRows);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  const InputId sampling = std::get<ops::Predict>(random.program.operations[value]).sampling;
  for (Sampling& row : model.data.sampling[sampling]) {
    const uint64_t number = row.random;
    row = kinds[state.range(2)];
    row.random = number;
  }
  model.batch.Want(2);
  BareProduct product(dtype, kRows, kWidth, vocabulary);
  const std::vector<double> us =
      Alternate(state, 2, 501, {[&] { model.Run(); }, [&] { product.Run(); }});
  state.counters["products_us"] = us[1];
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
}
BENCHMARK(BM_Pick)
    ->ArgNames({"bfloat16", "vocabulary", "kind"})
    ->ArgsProduct({{0, 1}, {205, 10000, 50000}, {0, 1, 2, 3, 4}})
    ->Apply(Once)
    ->Unit(benchmark::kMicrosecond);

// 16 sequences that attend to themselves.
void BM_Attend(benchmark::State& state) {
  const int heads = static_cast<int>(state.range(0));
  const int width = static_cast<int>(state.range(1));
  const int length = static_cast<int>(state.range(2));
  constexpr int kBatch = 16;
  testing::RandomProgram random(1);
  const AxisId rows = random.program.AddAxis("rows");
  ops::Attend attend;
  attend.q = attend.keys = attend.values = random.Features("x", rows, width);
  attend.heads = heads;
  random.Output(random.Attend(attend, width), "y");
  FeatureModel model(random.program, DataType::kFloat32, length, kBatch);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  model.batch.Want(0);
  for (auto _ : state) model.Run();
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
  const double flop = 4.0 * kBatch * length * length * width;
  state.counters["flops"] = benchmark::Counter(flop * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Attend)
    ->ArgNames({"heads", "width", "length"})
    ->Args({1, 300, 100})
    ->ArgsProduct({{1, 8}, {512}, {20, 100}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sru::kernels
