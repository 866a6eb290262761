// A reader as a program: a batch of questions, each with a passage, from ids to the logits of spans, against
// what the model's matrix products alone cost, in one alternating run on one thread (`ratio`). Shape 0 is the
// reader of SQuAD in ../shared, shape 1 about that of DrQA.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/bench/alternate.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/program_model.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/system_programs.h"

namespace sru::kernels {
namespace {

testing::ReaderShape ShapeOf(int64_t number) {
  testing::ReaderShape shape;
  shape.vocabulary = 20000;
  shape.embedding = number == 0 ? 50 : 300;
  shape.hidden = number == 0 ? 96 : 128;
  shape.layers = 3;
  return shape;
}

// Of about `mean` tokens each, as paragraphs and questions are: from two thirds of it to twice as many.
std::vector<int> Lengths(int count, int mean, unsigned seed) {
  std::mt19937 random(seed);
  std::gamma_distribution<double> longer(1.0, mean / 3.0);
  std::vector<int> lengths;
  for (int i = 0; i < count; ++i) {
    lengths.push_back(std::min(2 * mean, mean * 2 / 3 + static_cast<int>(longer(random))));
  }
  return lengths;
}

void AddProducts(const testing::ReaderShape& shape, int passage, int question, int questions,
                 BareProductList* products) {
  const int width = 2 * shape.hidden;
  for (const bool of_passage : {true, false}) {
    const int rows = of_passage ? passage : question;
    if (shape.aligned) products->Add(rows, shape.embedding, shape.embedding);
    int input = shape.embedding;
    if (of_passage) input += shape.features + (shape.aligned ? shape.embedding : 0);
    for (int i = 0; i < shape.layers; ++i) {
      products->Add(rows, input, width * (input == width ? 3 : 4));
      input = width;
    }
  }
  if (shape.self_attention) products->Add(question, width, 1);
  for (int i = 0; i < 2; ++i) products->Add(questions, width, width);
}

void BM_Reader(benchmark::State& state) {
  const testing::ReaderShape shape = ShapeOf(state.range(0));
  const DataType dtype = state.range(1) == 0 ? DataType::kFloat32 : DataType::kBFloat16;
  const int batch = static_cast<int>(state.range(2));
  const int length = static_cast<int>(state.range(3));
  testing::RandomProgram p(1);
  const testing::ReaderIds ids = testing::AddReaderSystem(&p, shape);
  testing::ProgramData data =
      testing::RandomData(p.program, {Lengths(batch, length, 1), Lengths(batch, 12, 2)}, 3);
  for (int b = 0; b < batch; ++b) data.ids[ids.question_of][b] = b;
  const int passage = data.num_rows(p.program, ids.passage);
  const int question = data.num_rows(p.program, ids.question);
  ProgramLimits limits;
  limits.axes = {{passage, batch}, {question, batch}, {}};
  BenchmarkModel model(p.program, dtype, limits);
  if (!model.status().ok()) return state.SkipWithError(model.status().message().c_str());
  BenchmarkBatch run(p.program, data, {}, 0);
  run.Want(0);
  run.Want(1);
  BareProductList products(dtype);
  AddProducts(shape, passage, question, batch, &products);
  const std::vector<double> us =
      Alternate(state, 6, 201, {[&] { model.Run(run); }, [&] { products.Run(); }});
  state.counters["products_ms"] = us[1] / 1e3;
  state.counters["gflops"] = products.flop() / us[0] / 1e3;
  state.counters["passage_tokens"] = passage;
  if (!model.status().ok()) state.SkipWithError(model.status().message().c_str());
  state.counters["workspace_mb"] = static_cast<double>(model.workspace_bytes()) / 1e6;
}
BENCHMARK(BM_Reader)
    ->ArgNames({"shape", "bfloat16", "questions", "length"})
    ->ArgsProduct({{0, 1}, {0, 1}, {1, 32}, {130}})
    ->Apply(Once)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sru::kernels
