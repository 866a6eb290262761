// A student of Marian's shape as a program, against the float32 products of its weights alone (`ratio`), on
// one thread. BM_StudentEncode is a batch of sentences, BM_StudentStep a step of a greedy search, one token
// of each sentence with its own choices.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/bench/alternate.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/program_model.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/system_programs.h"

namespace sru::kernels {
namespace {

using Slot = StateArena::Slot;

// Firefox's tiny and base.
testing::StudentShape ShapeOf(int64_t number, bool int8) {
  testing::StudentShape shape;
  shape.vocabulary = 32000;
  shape.width = number == 0 ? 256 : 512;
  shape.heads = 8;
  shape.feed_forward = number == 0 ? 1536 : 2048;
  shape.encoder_layers = 6;
  shape.decoder_layers = 2;
  shape.int8 = int8;
  shape.max_candidates = 4;
  return shape;
}

constexpr int kSourceLength = 17;
constexpr int kChoices = 800;

class Student {
 public:
  Student(const testing::StudentShape& shape, int sentences) : sentences_(sentences) {
    testing::AddStudentSystem(&p_, shape);
    ProgramLimits limits;
    limits.axes = {{sentences * kSourceLength, sentences},
                   {sentences, sentences},
                   {sentences * kChoices, sentences}};
    model_ = std::make_unique<BenchmarkModel>(p_.program, DataType::kFloat32, limits);
    if (!status().ok()) return;
    source_ = testing::RandomData(p_.program, {std::vector<int>(sentences, kSourceLength)}, 3);
    target_ = testing::RandomData(
        p_.program, {{}, std::vector<int>(sentences, 1), std::vector<int>(sentences, kChoices)}, 4);
    for (size_t i = 0; i < p_.program.inputs.size(); ++i) {
      const std::string& name = p_.program.inputs[i].name;
      if (name == "token_counts") target_.ids[i].assign(sentences, 1);
      if (name == "target_positions") target_.ids[i].assign(sentences, 5);
      if (name != "token_choices_of") continue;
      for (int b = 0; b < sentences; ++b) target_.ids[i][b] = b;
    }
    slots_ = model_->NewSlots(sentences);
    BenchmarkBatch batch(p_.program, source_, {slots_, {}, {}}, 0);
    model_->Run(batch);
    step_ = std::make_unique<BenchmarkBatch>(p_.program, target_,
                                             std::vector<std::vector<Slot>>{{}, slots_, {}}, 0);
    for (size_t i = 0; i < p_.program.outputs.size(); ++i) {
      if (p_.program.outputs[i].name == "token_candidates") step_->Want(static_cast<int>(i));
    }
  }

  const Status& status() const { return model_->status(); }

  void Encode() {
    const std::vector<Slot> slots = model_->NewSlots(sentences_);
    BenchmarkBatch batch(p_.program, source_, {slots, {}, {}}, 0);
    model_->Run(batch);
    for (const Slot slot : slots) model_->arena().Free(slot);
  }
  void Step() { model_->Run(*step_); }

 private:
  testing::RandomProgram p_{1};
  const int sentences_;
  std::unique_ptr<BenchmarkModel> model_;
  std::vector<Slot> slots_;
  testing::ProgramData source_;
  testing::ProgramData target_;
  std::unique_ptr<BenchmarkBatch> step_;
};

void BM_Student(benchmark::State& state, bool encodes) {
  const testing::StudentShape shape = ShapeOf(state.range(0), state.range(1) != 0);
  const int sentences = static_cast<int>(state.range(2));
  Student student(shape, sentences);
  if (!student.status().ok()) return state.SkipWithError(student.status().message().c_str());
  const int tokens = encodes ? sentences * kSourceLength : sentences;
  BareProductList products(DataType::kFloat32);
  for (int i = 0; i < (encodes ? shape.encoder_layers : shape.decoder_layers); ++i) {
    for (int k = 0; k < 4; ++k) products.Add(tokens, shape.width, shape.width);
    products.Add(tokens, shape.width, shape.feed_forward);
    products.Add(tokens, shape.feed_forward, shape.width);
  }
  for (int k = 0; k < 2 * shape.decoder_layers && encodes; ++k) {
    products.Add(tokens, shape.width, shape.width);
  }
  if (!encodes) products.Add(tokens, shape.width, kChoices);
  const std::vector<double> us =
      Alternate(state, 6, 201,
                {[&] { encodes ? student.Encode() : student.Step(); }, [&] { products.Run(); }});
  state.counters["us_token"] = us[0] / tokens;
  state.counters["gmac_s"] = products.flop() / us[0] / 2e3;
  if (!student.status().ok()) state.SkipWithError(student.status().message().c_str());
}

void BM_StudentEncode(benchmark::State& state) { BM_Student(state, /*encodes=*/true); }
void BM_StudentStep(benchmark::State& state) { BM_Student(state, /*encodes=*/false); }

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"base", "int8", "sentences"})
      ->ArgsProduct({{0, 1}, {0, 1}, {1, 8, 64}})
      ->Apply(Once)
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_StudentEncode)->Apply(Shapes);
BENCHMARK(BM_StudentStep)->Apply(Shapes);

}  // namespace
}  // namespace sru::kernels
