// Batches of whole programs with random weights on one thread (BM_Run), and the matrix products of
// each alone (BM_Products). The arguments are equal, so that scripts/report.py finds the pairs.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "kernels/bench/bare_product.h"
#include "kernels/bench/system_case.h"
#include "kernels/testing/system_programs.h"

namespace sru::kernels {
namespace {

template <Case make(const benchmark::State&)>
void BM_Run(benchmark::State& state) {
  const Case c = make(state);
  Model model({c});
  System system(c, &model);
  for (auto _ : state) {
    (void)system.Run();
    if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  }
}

template <Case make(const benchmark::State&)>
void BM_Products(benchmark::State& state) {
  const Case c = make(state);
  BareProducts products(c.dtype, ProductsOf(c));
  for (auto _ : state) products.Run();
}

int Argument(const benchmark::State& state, size_t number) {
  return static_cast<int>(state.range(number));
}

Case Decode(const benchmark::State& state) {
  return LanguageModelStep(LanguageModel(Argument(state, 0)), kAllDataTypes[state.range(1)],
                           Argument(state, 2));
}
Case TranslatorEncode(const benchmark::State& state) {
  return kernels::TranslatorEncode(Translator(state.range(0) != 0), kAllDataTypes[state.range(1)],
                                   Argument(state, 2));
}
Case TranslatorStep(const benchmark::State& state) {
  return kernels::TranslatorStep(Translator(state.range(0) != 0), kAllDataTypes[state.range(1)],
                                 Argument(state, 2));
}
Case Reader(const benchmark::State& state) {
  return ReaderBatch(kernels::Reader(), kAllDataTypes[state.range(0)], Argument(state, 1));
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
  const auto equal = [&](int length) { return std::vector<int>(state.range(2), length); };
  const Batch encode = {{equal(17), {}, {}}, 0};
  const DataType dtype = DataType::kFloat32;
  if (!steps) return {"student", p, dtype, {}, encode, {}};
  return {"student", p, dtype, {encode}, {{{}, equal(1), equal(kChoices)}, 1}, {"token_candidates"},
          1};
}
Case StudentEncode(const benchmark::State& state) { return Student(state, /*steps=*/false); }
Case StudentStep(const benchmark::State& state) { return Student(state, /*steps=*/true); }

void Shapes(benchmark::internal::Benchmark* benchmark, const std::vector<std::string>& names,
            const std::vector<std::vector<int64_t>>& values) {
  benchmark->ArgNames(names)->ArgsProduct(values)->Unit(benchmark::kMicrosecond);
}
void DecodeShapes(benchmark::internal::Benchmark* benchmark) {
  Shapes(benchmark, {"shape", "dtype", "batch"}, {{0, 1, 2}, {0, 1, 2}, {1, 8, 64}});
}
void TranslatorShapes(benchmark::internal::Benchmark* benchmark) {
  Shapes(benchmark, {"paper", "dtype", "batch"}, {{0, 1}, {0, 1}, {1, 32}});
}
void ReaderShapes(benchmark::internal::Benchmark* benchmark) {
  Shapes(benchmark, {"dtype", "batch"}, {{0, 1}, {1, 32}});
}
void StudentShapes(benchmark::internal::Benchmark* benchmark) {
  Shapes(benchmark, {"base", "int8", "batch"}, {{0, 1}, {0, 1}, {1, 8, 64}});
}

#define SRU_BENCHMARK(name, shapes)       \
  BENCHMARK(BM_Run<name>)->Apply(shapes); \
  BENCHMARK(BM_Products<name>)->Apply(shapes)
SRU_BENCHMARK(Decode, DecodeShapes);
SRU_BENCHMARK(TranslatorEncode, TranslatorShapes);
SRU_BENCHMARK(TranslatorStep, TranslatorShapes);
SRU_BENCHMARK(Reader, ReaderShapes);
SRU_BENCHMARK(StudentEncode, StudentShapes);
SRU_BENCHMARK(StudentStep, StudentShapes);

}  // namespace
}  // namespace sru::kernels
