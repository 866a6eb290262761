// Batches of whole programs with random weights on one thread (BM_Run), the matrix products of each
// alone (BM_Products), and reading as much memory as its weights (BM_ReadWeights). The arguments
// are equal, so that scripts/report.py finds the pairs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/memory_reading.h"
#include "kernels/bench/program_model.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_systems.h"
#include "kernels/testing/system_programs.h"

namespace sru::kernels {
namespace {

using Slot = StateArena::Slot;

struct Batch {
  std::vector<std::vector<int>> lengths;  // [axis]
  AxisId axis = kNone;                    // whose sequences have slots
};

// What is measured, and what comes before it.
struct Case {
  std::shared_ptr<testing::RandomProgram> program;
  DataType dtype;
  std::vector<Batch> before;  // run once, all in the same slots
  Batch measured;             // in copies of these slots, or in new ones
  std::string output;
  int copies = 1;  // of each slot: the hypotheses of a sentence
};

std::vector<int> Equal(int64_t count, int length) { return std::vector<int>(count, length); }

testing::ProgramData DataOf(const Case& c, const Batch& batch) {
  const Program& program = c.program->program;
  testing::ProgramData data = testing::RandomData(program, batch.lengths, 2);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec& input = program.inputs[i];
    std::vector<int32_t>& ids = data.ids[i];
    const auto ends_with = [&](const std::string& end) {
      return input.name.size() >= end.size() &&
             input.name.compare(input.name.size() - end.size(), end.size(), end) == 0;
    };
    if (ends_with("_counts")) ids.assign(ids.size(), c.copies);
    if (ends_with("_targets")) ids.assign(ids.size(), -1);
    if (input.type == InputType::kMap) {
      for (size_t b = 0; b < ids.size(); ++b) ids[b] = static_cast<int32_t>(b);
    }
    for (Sampling& row : data.sampling[i]) row = Sampling();  // greedy
  }
  return data;
}

// Runs the batch of a case again and again from the same states.
class System {
 public:
  explicit System(const Case& c)
      : case_(c),
        data_(DataOf(c, c.measured)),
        model_(c.program->program, c.dtype, Limits(c)),
        batch_(c.program->program, data_, {}, 0) {
    if (!status().ok()) return;
    for (const Batch& before : c.before) {
      if (started_.empty()) {
        started_ = model_.NewSlots(static_cast<int>(before.lengths[before.axis].size()));
      }
      const testing::ProgramData data = DataOf(c, before);
      std::vector<std::vector<Slot>> slots(before.axis + 1);
      slots[before.axis] = started_;
      BenchmarkBatch batch(c.program->program, data, slots, 0);
      model_.Run(batch);
    }
    const std::vector<OutputSpec>& outputs = c.program->program.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].name == c.output) batch_.Want(static_cast<int>(i));
    }
  }

  const Status& status() const { return model_.status(); }
  size_t weight_bytes() const { return model_.weight_bytes(); }

  void Run() {
    const AxisId axis = case_.measured.axis;
    std::vector<Slot> slots(axis == kNone ? 0 : case_.measured.lengths[axis].size());
    for (size_t i = 0; i < slots.size(); ++i) {
      model_.Note(started_.empty() ? model_.arena().Allocate(&slots[i])
                                   : model_.arena().Copy(started_[i / case_.copies], &slots[i]));
    }
    if (axis != kNone) batch_.SetSlots(axis, slots);
    if (status().ok()) model_.Run(batch_);
    for (const Slot slot : slots) model_.arena().Free(slot);
  }

 private:
  // As much as the largest of all batches needs.
  static ProgramLimits Limits(const Case& c) {
    ProgramLimits limits;
    limits.axes.resize(c.program->program.axes.size());
    std::vector<Batch> batches = c.before;
    batches.push_back(c.measured);
    for (const Batch& batch : batches) {
      for (size_t a = 0; a < batch.lengths.size(); ++a) {
        int rows = 0;
        for (const int length : batch.lengths[a]) rows += length;
        limits.axes[a] = {
            std::max(limits.axes[a].max_rows, rows),
            std::max(limits.axes[a].max_sequences, static_cast<int>(batch.lengths[a].size()))};
      }
    }
    return limits;
  }

  const Case case_;
  const testing::ProgramData data_;
  BenchmarkModel model_;
  BenchmarkBatch batch_;
  std::vector<Slot> started_;
};

// Every product of the measured batch.
BareProductList ProductsOf(const Case& c) {
  const Program& program = c.program->program;
  const testing::ProgramData data = DataOf(c, c.measured);
  ProgramShape shape;
  (void)Validate(program, &shape);
  BareProductList products(c.dtype);
  for (size_t i = 0; i < program.operations.size(); ++i) {
    const int rows = data.num_rows(program, shape.values[i].axis);
    if (const auto* linear = std::get_if<ops::Linear>(&program.operations[i])) {
      products.Add(rows, shape.values[linear->x].width, linear->width);
    } else if (const auto* stack = std::get_if<ops::Stack>(&program.operations[i])) {
      products.Add(rows, stack->spec);
    } else if (const auto* predict = std::get_if<ops::Predict>(&program.operations[i])) {
      const bool chooses = predict->choices != kNone && rows > 0;
      products.Add(rows, shape.values[predict->x].width,
                   chooses ? static_cast<int>(data.ids[predict->choices].size()) / rows
                           : predict->vocabulary_size);
    }
  }
  return products;
}

template <Case make(const benchmark::State&)>
void BM_Run(benchmark::State& state) {
  System system(make(state));
  for (auto _ : state) {
    system.Run();
    if (!system.status().ok()) return state.SkipWithError(system.status().message().c_str());
  }
}

template <Case make(const benchmark::State&)>
void BM_Products(benchmark::State& state) {
  BareProductList products = ProductsOf(make(state));
  for (auto _ : state) products.Run();
}

template <Case make(const benchmark::State&)>
void BM_ReadWeights(benchmark::State& state) {
  const System system(make(state));
  if (!system.status().ok()) return state.SkipWithError(system.status().message().c_str());
  const MemoryReading reading(system.weight_bytes());
  for (auto _ : state) benchmark::DoNotOptimize(reading.Run());
  state.counters["weight_mb"] = static_cast<double>(system.weight_bytes()) / 1e6;
}

// A language model takes a token of each sequence and picks the next: a small one, that of the
// paper's size, and one with a large vocabulary without projections.
Case Decode(const benchmark::State& state) {
  const testing::LanguageModelSizes shapes[] = {
      {205, 64, 512, 4, 128}, {205, 256, 2048, 12, 512}, {20000, 512, 1024, 5, 0}};
  auto p = std::make_shared<testing::RandomLanguageModel>(shapes[state.range(0)]);
  return {
      p, kAllDataTypes[state.range(1)], {}, {{Equal(state.range(2), 1)}, p->tokens}, "next_picked"};
}

// A translator, small or the paper's: its encoder of sentences of 25 words, and a step of a beam of
// five.
Case Translator(const benchmark::State& state, bool steps) {
  constexpr int kBeam = 5;
  const bool paper = state.range(0) != 0;
  testing::TranslatorSizes sizes;
  sizes.vocabulary_size = paper ? 32000 : 6000;
  sizes.width = paper ? 512 : 128;
  sizes.heads = paper ? 8 : 4;
  sizes.hidden_size = paper ? 2048 : 512;
  sizes.layers = paper ? 5 : 3;
  sizes.max_candidates = 64;
  auto p = std::make_shared<testing::RandomTranslator>(sizes);
  const int64_t sentences = state.range(2);
  const Batch encode = {{Equal(sentences, 25), {}}, p->source};
  const DataType dtype = kAllDataTypes[state.range(1)];
  if (!steps) return {p, dtype, {}, encode, ""};
  return {p,
          dtype,
          {encode, {{{}, Equal(sentences, 20)}, p->target}},
          {{{}, Equal(sentences * kBeam, 1)}, p->target},
          "next_candidates",
          kBeam};
}
Case TranslatorEncode(const benchmark::State& state) { return Translator(state, /*steps=*/false); }
Case TranslatorStep(const benchmark::State& state) { return Translator(state, /*steps=*/true); }

// A reader of DrQA's size.
Case Reader(const benchmark::State& state) {
  testing::ReaderSizes sizes;
  sizes.vocabulary_size = 20000;
  sizes.width = 300;
  sizes.hidden_size = 128;
  sizes.layers = 3;
  const int64_t questions = state.range(1);
  return {std::make_shared<testing::RandomReader>(sizes),
          kAllDataTypes[state.range(0)],
          {},
          {{Equal(questions, 130), Equal(questions, 12)}, kNone},
          "start"};
}

// A student of Firefox's sizes, tiny or base, with a shortlist of 800 words: its encoder, and a
// greedy step.
Case Student(const benchmark::State& state, bool steps) {
  constexpr int kChoices = 800;
  testing::StudentShape shape;
  shape.vocabulary = 32000;
  shape.width = state.range(0) == 0 ? 256 : 512;
  shape.heads = 8;
  shape.feed_forward = state.range(0) == 0 ? 1536 : 2048;
  shape.encoder_layers = 6;
  shape.decoder_layers = 2;
  shape.int8 = state.range(1) != 0;
  shape.max_candidates = 4;
  auto p = std::make_shared<testing::RandomProgram>(1);
  testing::AddStudentSystem(p.get(), shape);
  const int64_t sentences = state.range(2);
  const Batch encode = {{Equal(sentences, 17), {}, {}}, 0};
  if (!steps) return {p, DataType::kFloat32, {}, encode, ""};
  return {p,
          DataType::kFloat32,
          {encode},
          {{{}, Equal(sentences, 1), Equal(sentences, kChoices)}, 1},
          "token_candidates"};
}
Case StudentEncode(const benchmark::State& state) { return Student(state, /*steps=*/false); }
Case StudentStep(const benchmark::State& state) { return Student(state, /*steps=*/true); }

void DecodeShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"shape", "dtype", "batch"})
      ->ArgsProduct({{0, 1, 2}, {0, 1, 2}, {1, 8, 64}})
      ->Unit(benchmark::kMicrosecond);
}
void TranslatorShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"paper", "dtype", "batch"})
      ->ArgsProduct({{0, 1}, {0, 1}, {1, 32}})
      ->Unit(benchmark::kMicrosecond);
}
void ReaderShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "batch"})
      ->ArgsProduct({{0, 1}, {1, 32}})
      ->Unit(benchmark::kMicrosecond);
}
void StudentShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"base", "int8", "batch"})
      ->ArgsProduct({{0, 1}, {0, 1}, {1, 8, 64}})
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_Run<Decode>)->Apply(DecodeShapes);
BENCHMARK(BM_Products<Decode>)->Apply(DecodeShapes);
BENCHMARK(BM_ReadWeights<Decode>)->Apply(DecodeShapes);
BENCHMARK(BM_Run<TranslatorEncode>)->Apply(TranslatorShapes);
BENCHMARK(BM_Products<TranslatorEncode>)->Apply(TranslatorShapes);
BENCHMARK(BM_Run<TranslatorStep>)->Apply(TranslatorShapes);
BENCHMARK(BM_Products<TranslatorStep>)->Apply(TranslatorShapes);
BENCHMARK(BM_Run<Reader>)->Apply(ReaderShapes);
BENCHMARK(BM_Products<Reader>)->Apply(ReaderShapes);
BENCHMARK(BM_Run<StudentEncode>)->Apply(StudentShapes);
BENCHMARK(BM_Products<StudentEncode>)->Apply(StudentShapes);
BENCHMARK(BM_Run<StudentStep>)->Apply(StudentShapes);
BENCHMARK(BM_Products<StudentStep>)->Apply(StudentShapes);

}  // namespace
}  // namespace sru::kernels
