// A translator as a program, against what the model's matrix products alone cost, in one alternating run on
// one thread (`ratio`). BM_TranslatorStep is one step of a beam search: the hypotheses' slots are reordered
// as their parents are, then each takes one token, looks at `cached` to `cached` + 32 tokens of its own and at
// its sentence, and the best symbols are found. `arena_us` is what slots cost of that: the reordering, and
// the bookkeeping before and after the run. BM_TranslatorEncode is a batch of ragged sentences.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/bench/alternate.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/program_model.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/system_programs.h"

namespace sru::kernels {
namespace {

using Slot = StateArena::Slot;

// By number: that of Multi30k in ../shared, one in between, and about the paper's.
testing::TranslatorShape ShapeOf(int64_t number) {
  const struct {
    int width, heads, sru, layers, vocabulary;
  } kShapes[] = {{128, 4, 512, 3, 6000}, {256, 4, 1024, 6, 16000}, {512, 8, 2048, 6, 32000}};
  testing::TranslatorShape shape;
  shape.width = kShapes[number].width;
  shape.heads = kShapes[number].heads;
  shape.sru = kShapes[number].sru;
  shape.encoder_layers = shape.decoder_layers = kShapes[number].layers;
  shape.source_vocabulary = shape.target_vocabulary = kShapes[number].vocabulary;
  shape.max_candidates = 64;
  return shape;
}

constexpr int kStepsOfARound = 32;

// Hypotheses in the middle of their translation: those of a sentence share their source and the first half
// of their tokens.
class Decoding {
 public:
  Decoding(const testing::TranslatorShape& shape, DataType dtype, int sentences, int beam,
           int source_length, int cached, bool alignment)
      : rows_(sentences * beam), beam_(beam), random_(1) {
    const testing::TranslatorIds ids = testing::AddTranslatorSystem(&p_, shape);
    ProgramLimits limits;
    const int most = std::max(rows_, sentences * cached);
    limits.axes = {{sentences * source_length, sentences}, {most, rows_}};
    limits.max_attention_values = int64_t{rows_} * source_length;
    model_ = std::make_unique<BenchmarkModel>(p_.program, dtype, limits);
    if (!status().ok()) return;
    std::vector<Slot> sources = model_->NewSlots(sentences);
    RunOnce({std::vector<int>(sentences, source_length)}, {sources, {}});
    RunOnce({{}, std::vector<int>(sentences, cached / 2)}, {{}, sources});
    for (const Slot source : sources) {
      for (int i = 0; i < beam; ++i) {
        model_->Note(model_->arena().Copy(source, &started_.emplace_back()));
      }
    }
    for (int first = 0; first < rows_; first += sentences) {
      const std::vector<Slot> some(started_.begin() + first, started_.begin() + first + sentences);
      RunOnce({{}, std::vector<int>(sentences, cached - cached / 2)}, {{}, some});
    }
    slots_ = model_->NewSlots(rows_);
    unread_ = model_->NewSlots(rows_);
    Restart(&slots_);
    Restart(&unread_);
    data_ = testing::RandomData(p_.program, {{}, std::vector<int>(rows_, 1)}, 3);
    for (size_t i = 0; i < p_.program.inputs.size(); ++i) {
      const InputSpec& input = p_.program.inputs[i];
      if (input.name == "token_counts") data_.ids[i].assign(rows_, beam);
    }
    batch_ = std::make_unique<BenchmarkBatch>(
        p_.program, data_, std::vector<std::vector<Slot>>{{}, slots_}, limits.max_attention_values);
    for (size_t i = 0; i < p_.program.outputs.size(); ++i) {
      if (p_.program.outputs[i].name == "token_candidates") batch_->Want(static_cast<int>(i));
    }
    if (alignment) batch_->Want(ids.alignment);
    for (size_t f = 0; f < p_.program.fields.size(); ++f) {
      const std::string& name = p_.program.fields[f].name;
      if (name.rfind("context", 0) != 0) written_.push_back(static_cast<FieldId>(f));
    }
  }

  const Status& status() const { return model_->status(); }
  size_t workspace_bytes() const { return model_->workspace_bytes(); }
  // Of all hypotheses together.
  size_t state_bytes() const { return model_->arena().stats().used_bytes; }

  void Step() {
    Reorder(&slots_, &steps_);
    model_->Run(*batch_);
  }

  // A step without what it computes.
  void ReorderAndCommit() {
    Reorder(&unread_, &unread_steps_);
    const std::vector<int> added(rows_, 1);
    StateArena::Run run;
    model_->Note(model_->arena().BeginRun(unread_.data(), added.data(), rows_, written_, &run));
    if (status().ok()) run.Commit();
  }

 private:
  void RunOnce(const std::vector<std::vector<int>>& lengths,
               const std::vector<std::vector<Slot>>& slots) {
    const testing::ProgramData data = testing::RandomData(p_.program, lengths, random_());
    BenchmarkBatch batch(p_.program, data, slots, 0);
    model_->Run(batch);
  }

  // Every hypothesis is as it was at the start.
  void Restart(std::vector<Slot>* slots) {
    std::vector<Slot> both = *slots;
    both.insert(both.end(), started_.begin(), started_.end());
    std::vector<int> parents;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < rows_; ++i) parents.push_back(rows_ + i);
    }
    model_->Note(model_->arena().Reorder(both.data(), parents.data(), 2 * rows_));
  }

  void Reorder(std::vector<Slot>* slots, int* steps) {
    if (++*steps % kStepsOfARound == 0) Restart(slots);
    std::vector<int> parents(rows_);
    for (int i = 0; i < rows_; ++i) {
      parents[i] = i / beam_ * beam_ + static_cast<int>(random_() % beam_);
    }
    model_->Note(model_->arena().Reorder(slots->data(), parents.data(), rows_));
  }

  testing::RandomProgram p_{1};
  const int rows_;
  const int beam_;
  std::mt19937 random_;
  std::unique_ptr<BenchmarkModel> model_;
  std::vector<Slot> started_;
  std::vector<Slot> slots_;
  std::vector<Slot> unread_;  // of ReorderAndCommit(), which writes no values
  std::vector<FieldId> written_;
  testing::ProgramData data_;
  std::unique_ptr<BenchmarkBatch> batch_;
  int steps_ = 0;
  int unread_steps_ = 0;
};

void AddDecoderProducts(const testing::TranslatorShape& shape, int rows,
                        BareProductList* products) {
  for (int i = 0; i < shape.decoder_layers; ++i) {
    for (int k = 0; k < 6; ++k) products->Add(rows, shape.width, shape.width);
    products->Add(rows, shape.width, 3 * shape.sru);
    products->Add(rows, shape.sru, shape.width);
  }
  products->Add(rows, shape.width, shape.target_vocabulary);
}

// With the keys and values of the decoder's layers.
void AddEncoderProducts(const testing::TranslatorShape& shape, int rows,
                        BareProductList* products) {
  for (int i = 0; i < shape.encoder_layers; ++i) {
    for (int k = 0; k < 4; ++k) products->Add(rows, shape.width, shape.width);
    products->Add(rows, shape.width, 3 * shape.sru);
    products->Add(rows, shape.sru, shape.width);
  }
  for (int i = 0; i < 2 * shape.decoder_layers; ++i) {
    products->Add(rows, shape.width, shape.width);
  }
}

void BM_TranslatorStep(benchmark::State& state) {
  const testing::TranslatorShape shape = ShapeOf(state.range(0));
  const DataType dtype = state.range(1) == 0 ? DataType::kFloat32 : DataType::kBFloat16;
  const int sentences = static_cast<int>(state.range(2));
  const int beam = static_cast<int>(state.range(3));
  constexpr int kSourceLength = 30;
  Decoding decoding(shape, dtype, sentences, beam, kSourceLength, static_cast<int>(state.range(4)),
                    /*alignment=*/false);
  if (!decoding.status().ok()) return state.SkipWithError(decoding.status().message().c_str());
  BareProductList products(dtype);
  AddDecoderProducts(shape, sentences * beam, &products);
  state.counters["state_mb"] = static_cast<double>(decoding.state_bytes()) / 1e6;
  const std::vector<double> us = Alternate(
      state, 6, 401,
      {[&] { decoding.Step(); }, [&] { products.Run(); }, [&] { decoding.ReorderAndCommit(); }});
  state.counters["products_us"] = us[1];
  state.counters["arena_us"] = us[2];
  state.counters["gflops"] = products.flop() / us[0] / 1e3;
  if (!decoding.status().ok()) state.SkipWithError(decoding.status().message().c_str());
}
BENCHMARK(BM_TranslatorStep)
    ->ArgNames({"shape", "bfloat16", "sentences", "beam", "cached"})
    ->ArgsProduct({{0, 1, 2}, {0, 1}, {1, 32}, {1, 5}, {20}})
    ->ArgsProduct({{0, 2}, {0}, {32}, {5}, {80}})
    ->Apply(Once)
    ->Unit(benchmark::kMicrosecond);

void BM_TranslatorEncode(benchmark::State& state) {
  const testing::TranslatorShape shape = ShapeOf(state.range(0));
  const DataType dtype = state.range(1) == 0 ? DataType::kFloat32 : DataType::kBFloat16;
  const int sentences = static_cast<int>(state.range(2));
  testing::RandomProgram p(1);
  testing::AddTranslatorSystem(&p, shape);
  std::mt19937 random(2);
  std::vector<int> lengths;
  for (int b = 0; b < sentences; ++b) lengths.push_back(static_cast<int>(10 + random() % 40));
  const testing::ProgramData data = testing::RandomData(p.program, {lengths}, 3);
  const int rows = data.num_rows(p.program, 0);
  ProgramLimits limits;
  limits.axes = {{rows, sentences}, {}};
  BenchmarkModel model(p.program, dtype, limits);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  BareProductList products(dtype);
  AddEncoderProducts(shape, rows, &products);
  const auto encode = [&] {
    const std::vector<Slot> slots = model.NewSlots(sentences);
    BenchmarkBatch batch(p.program, data, {slots, {}}, 0);
    model.Run(batch);
    for (const Slot slot : slots) model.arena().Free(slot);
  };
  const std::vector<double> us = Alternate(state, 6, 201, {encode, [&] { products.Run(); }});
  state.counters["products_us"] = us[1];
  state.counters["gflops"] = products.flop() / us[0] / 1e3;
  state.counters["tokens"] = rows;
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
}
BENCHMARK(BM_TranslatorEncode)
    ->ArgNames({"shape", "bfloat16", "sentences"})
    ->ArgsProduct({{0, 1, 2}, {0, 1}, {1, 32}})
    ->Apply(Once)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sru::kernels
