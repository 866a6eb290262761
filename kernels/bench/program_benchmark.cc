// A language model as a program: a stack on ids with a state, the last row of the run before, and
// Predict. BM_LanguageModel scores sequences, and BM_DecodingStep takes one token of each sequence and
// picks the next (`sampled`: among those that have nine tenths, else the best), against what the model's
// matrix products alone cost, its stack alone, and reading as much memory as its weights as fast as one
// thread can, in one alternating run on one thread (`ratio` is to the products, `to_reading` to the memory). The last shape is the size of the
// paper's model. BM_Predict and BM_Attend measure one operation.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/measure.h"
#include "kernels/bench/memory_reading.h"
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

// A compiled language model with its workspace, an arena and a batch.
class LanguageModel {
 public:
  // Scores without slots, else picks.
  LanguageModel(const ModelShape& shape, DataType dtype, int length, int batch, bool slots,
                bool sampled = false)
      : stack_(StackOptionsOf(shape), 1),
        weight_(static_cast<size_t>(shape.vocabulary) * shape.hidden, 0.01f),
        rows_(length * batch),
        ids_(rows_),
        targets_(rows_),
        sampling_(batch),
        log_prob_(rows_),
        picked_(batch) {
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
    program_.AddOutput("log_prob", program_.Apply(predict), OutputType::kLogProb);
    ops::Last last;
    last.x = shift.x;
    last.axis = sequences;
    last.last = shift.last;
    predict.x = program_.Apply(last);
    predict.targets = kNone;
    predict.sampling = sampling;
    program_.AddOutput("picked", program_.Apply(predict), OutputType::kPicked);

    CompileOptions options;
    options.dtype = dtype;
    BackendOptions hardware;
    hardware.cpu_threads = 1;  // as the products that it is compared with
    status_ = CreateBackend("cpu", hardware, &backend_);
    if (status_.ok()) status_ = backend_->Compile(program_, options, &executable_);
    ProgramLimits limits;
    limits.axes = {{rows_, batch}, {}};
    if (status_.ok()) status_ = executable_->CreateWorkspace(limits, &workspace_);
    ArenaOptions arena;
    arena.budget_bytes = size_t{1} << 30;
    if (status_.ok()) status_ = executable_->CreateArena(arena, &arena_);
    // The stack alone.
    if (status_.ok()) status_ = backend_->Compile(stack_.spec(), options, &stack_alone_);
    if (status_.ok()) {
      status_ = stack_alone_->CreateWorkspace({rows_, batch}, &stack_workspace_);
    }
    vectors_.resize(static_cast<size_t>(rows_) * shape.hidden);
    for (int b = 0; b < batch; ++b) {
      SequenceOutput output;
      output.token_vectors = vectors_.data() + static_cast<size_t>(b) * length * shape.hidden;
      stack_outputs_.push_back(output);
    }
    for (int b = 0; b <= batch; ++b) offsets_.push_back(b * length);
    for (int t = 0; t < rows_; ++t) {
      ids_[t] = (t * 131) % shape.vocabulary;
      targets_[t] = t % length == 0 ? -1 : ids_[t];
    }
    slots_.resize(batch);
    for (int b = 0; b < batch && slots && status_.ok(); ++b) {
      status_ = arena_->Allocate(&slots_[b]);
    }
    for (int b = 0; b < batch && sampled; ++b) {
      sampling_[b].temperature = 1;
      sampling_[b].top_p = 0.9f;
      sampling_[b].random = 0x9e3779b97f4a7c15 * static_cast<uint64_t>(b + 1);
    }
    axes_[0].num_sequences = batch;
    axes_[0].offsets = offsets_.data();
    axes_[0].slots = slots ? slots_.data() : nullptr;
    inputs_[0].ids = ids_.data();
    inputs_[1].ids = targets_.data();
    inputs_[2].sampling = sampling_.data();
    batch_.axes = axes_;
    batch_.inputs = inputs_;
    batch_.arena = arena_.get();
    stack_batch_.num_sequences = batch;
    stack_batch_.offsets = offsets_.data();
    stack_batch_.token_ids = ids_.data();
    if (slots) {
      outputs_[1].candidates = picked_.data();
    } else {
      outputs_[0].values = log_prob_.data();
    }
  }

  const Status& status() const { return status_; }
  const StackSpec& stack() const { return stack_.spec(); }
  size_t workspace_bytes() const { return workspace_->bytes(); }
  size_t weight_bytes() const { return executable_->weight_bytes(); }

  void Run() {
    const Status run = executable_->Run(batch_, outputs_, *workspace_);
    if (!run.ok()) status_ = run;
  }
  void RunStackAlone() {
    const Status run = stack_alone_->Run(stack_batch_, stack_outputs_.data(), *stack_workspace_);
    if (!run.ok()) status_ = run;
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
  int rows_;
  Program program_;
  Status status_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProgramExecutable> executable_;
  std::unique_ptr<ProgramWorkspace> workspace_;
  std::unique_ptr<StateArena> arena_;
  std::unique_ptr<Executable> stack_alone_;
  std::unique_ptr<Workspace> stack_workspace_;
  std::vector<float> vectors_;
  std::vector<SequenceOutput> stack_outputs_;
  RaggedBatch stack_batch_;
  std::vector<int32_t> offsets_, ids_, targets_;
  std::vector<Sampling> sampling_;
  std::vector<float> log_prob_;
  std::vector<Candidate> picked_;
  std::vector<StateArena::Slot> slots_;
  AxisBatch axes_[2];
  InputBatch inputs_[3];
  ProgramBatch batch_;
  OutputBatch outputs_[2];
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
  double tokens = 0;
  for (auto _ : state) {
    Rounds rounds;
    rounds.seconds = 20;
    rounds.most = 15;
    const std::vector<double> medians = AlternatingMedians(
        rounds, {[&] { model.Run(); }, [&] { products.Run(); }, [&] { model.RunStackAlone(); }});
    state.SetIterationTime(medians[0] / 1e6);
    state.counters["products_ms"] = medians[1] / 1e3;
    state.counters["stack_ms"] = medians[2] / 1e3;
    state.counters["ratio"] = medians[0] / medians[1];
    tokens = kLength * kBatch / medians[0] * 1e6;
  }
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
  state.counters["tokens"] = tokens;
  state.counters["workspace_mb"] = static_cast<double>(model.workspace_bytes()) / 1e6;
}
BENCHMARK(BM_LanguageModel)
    ->ArgNames({"shape", "bfloat16"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void BM_DecodingStep(benchmark::State& state) {
  const ModelShape& shape = kShapes[state.range(0)];
  const DataType dtype = TypeOf(state.range(1));
  const int batch = static_cast<int>(state.range(2));
  LanguageModel model(shape, dtype, 1, batch, /*slots=*/true, state.range(3) != 0);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  BareProductList products = ProductsOf(model.stack(), shape.vocabulary, dtype, batch);
  const MemoryReading reading(model.weight_bytes());
  for (auto _ : state) {
    Rounds rounds;
    rounds.most = 1001;
    rounds.seconds = 4;
    const std::vector<double> medians = AlternatingMedians(
        rounds, {[&] { model.Run(); }, [&] { products.Run(); }, [&] { model.RunStackAlone(); },
                 [&] { benchmark::DoNotOptimize(reading.Run()); }});
    state.counters["reading_us"] = medians[3];
    state.counters["to_reading"] = medians[0] / medians[3];
    state.counters["reading_gb_s"] = static_cast<double>(model.weight_bytes()) / medians[3] / 1e3;
    state.counters["streams"] = MemoryReading::way(reading.fastest()).streams;
    state.SetIterationTime(medians[0] / 1e6);
    state.counters["products_us"] = medians[1];
    state.counters["stack_us"] = medians[2];
    state.counters["ratio"] = medians[0] / medians[1];
    state.counters["tokens"] = batch / medians[0] * 1e6;
  }
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
}
BENCHMARK(BM_DecodingStep)
    ->ArgNames({"shape", "bfloat16", "batch", "sampled"})
    ->ArgsProduct({{0, 1}, {0, 1}, {1, 64}, {0, 1}})
    ->UseManualTime()
    ->Iterations(1)
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
  for (auto _ : state) {
    Rounds rounds;
    rounds.most = 1001;
    rounds.seconds = 6;
    const std::vector<double> medians = AlternatingMedians(rounds, bodies);
    for (size_t i = 0; i < kAllDataTypes.size(); ++i) {
      const std::string name = DataTypeName(kAllDataTypes[i]);
      state.counters[name + "_us"] = medians[2 * i];
      state.counters[name + "_reading_us"] = medians[2 * i + 1];
      state.counters[name + "_mb"] = static_cast<double>(models[i]->weight_bytes()) / 1e6;
    }
    state.SetIterationTime(medians[0] / 1e6);
  }
}
BENCHMARK(BM_DecodingStepByType)
    ->ArgNames({"shape", "batch"})
    ->ArgsProduct({{0, 1, 2}, {1, 8, 64}})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMicrosecond);

// Runs a program of features on one axis: `batch` sequences of `length` rows, all outputs.
class FeatureModel {
 public:
  FeatureModel(const Program& program, DataType dtype, int length, int batch) {
    CompileOptions options;
    options.dtype = dtype;
    BackendOptions hardware;
    hardware.cpu_threads = 1;
    status_ = CreateBackend("cpu", hardware, &backend_);
    if (status_.ok()) status_ = backend_->Compile(program, options, &executable_);
    ProgramLimits limits;
    limits.axes.resize(program.axes.size());
    limits.axes[0] = {length * batch, batch};
    if (status_.ok()) status_ = executable_->CreateWorkspace(limits, &workspace_);
    data_ = testing::RandomData(program, {std::vector<int>(batch, length)}, 2);
    offsets_ = data_.Offsets(program, 0);
    axis_.num_sequences = batch;
    axis_.offsets = offsets_.data();
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      InputBatch& input = inputs_.emplace_back();
      input.ids = data_.ids[i].data();
      input.values = data_.features[i].data();
      input.sampling = data_.sampling[i].data();
    }
    axes_.resize(program.axes.size());
    values_.resize(size_t{1} << 22);
    picked_.resize(offsets_.back());
    for (const OutputSpec& output : program.outputs) {
      OutputBatch& wanted = outputs_.emplace_back();
      if (output.type == OutputType::kPicked) {
        wanted.candidates = picked_.data();
      } else if (output.type != OutputType::kCandidates) {
        wanted.values = values_.data();
      }
    }
    axes_[0] = axis_;
    batch_.axes = axes_.data();
    batch_.inputs = inputs_.data();
  }

  const Status& status() const { return status_; }
  size_t workspace_bytes() const { return workspace_->bytes(); }
  void Sample(InputId input, const Sampling& sampling) {
    std::mt19937_64 random(3);
    for (Sampling& row : data_.sampling[input]) {
      row = sampling;
      row.random = random();
    }
  }
  // Leaves this output alone.
  void Ask(size_t output) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (i != output) outputs_[i] = {};
    }
  }
  void Run() {
    const Status run = executable_->Run(batch_, outputs_.data(), *workspace_);
    if (!run.ok()) status_ = run;
  }

 private:
  Status status_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProgramExecutable> executable_;
  std::unique_ptr<ProgramWorkspace> workspace_;
  testing::ProgramData data_;
  std::vector<int32_t> offsets_;
  AxisBatch axis_;
  std::vector<AxisBatch> axes_;
  std::vector<InputBatch> inputs_;
  std::vector<float> values_;
  std::vector<Candidate> picked_;
  std::vector<OutputBatch> outputs_;
  ProgramBatch batch_;
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
  BareProduct product(dtype, kRows, width, vocabulary);
  for (auto _ : state) {
    Rounds rounds;
    rounds.seconds = 4;
    const std::vector<double> medians =
        AlternatingMedians(rounds, {[&] { model.Run(); }, [&] { product.Run(); }});
    state.SetIterationTime(medians[0] / 1e6);
    state.counters["ratio"] = medians[0] / medians[1];
    state.counters["product_gflops"] = product.flop() / medians[1] / 1e3;
  }
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
  state.counters["workspace_mb"] = static_cast<double>(model.workspace_bytes()) / 1e6;
}
BENCHMARK(BM_Predict)
    ->ArgNames({"bfloat16", "vocabulary", "width"})
    ->ArgsProduct({{0, 1}, {205, 10000, 50000}, {512}})
    ->UseManualTime()
    ->Iterations(1)
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
  model.Sample(std::get<ops::Predict>(random.program.operations[value]).sampling,
               kinds[state.range(2)]);
  model.Ask(2);
  BareProduct product(dtype, kRows, kWidth, vocabulary);
  for (auto _ : state) {
    Rounds rounds;
    rounds.seconds = 2;
    rounds.most = 501;
    const std::vector<double> medians =
        AlternatingMedians(rounds, {[&] { model.Run(); }, [&] { product.Run(); }});
    state.SetIterationTime(medians[0] / 1e6);
    state.counters["products_us"] = medians[1];
    state.counters["ratio"] = medians[0] / medians[1];
  }
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
}
BENCHMARK(BM_Pick)
    ->ArgNames({"bfloat16", "vocabulary", "kind"})
    ->ArgsProduct({{0, 1}, {205, 10000, 50000}, {0, 1, 2, 3, 4}})
    ->UseManualTime()
    ->Iterations(1)
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
