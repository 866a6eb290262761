// The paper's systems as benchmarks run them: programs with random weights, and a batch of each
// that is run again and again from the same states.
#ifndef SRU_KERNELS_BENCH_SYSTEM_CASE_H_
#define SRU_KERNELS_BENCH_SYSTEM_CASE_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/program_executable.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_systems.h"

namespace sru::kernels {

struct Batch {
  std::vector<std::vector<int>> lengths;  // [axis]
  AxisId axis = kNone;                    // whose sequences have slots
};

// What is measured, and what comes before it.
struct Case {
  std::string name;
  std::shared_ptr<const testing::RandomProgram> program;
  DataType dtype;
  std::vector<Batch> before;         // run once, all in the same slots
  Batch measured;                    // in copies of these slots, or in new ones
  std::vector<std::string> outputs;  // that are asked for
  int candidates = 0;                // that are asked for
  int copies = 1;                    // of each slot: the hypotheses of a sentence

  int sequences() const {
    return static_cast<int>(measured.lengths[std::max(measured.axis, 0)].size()) / copies;
  }
};

// Three language models: a small one, that of the paper's size, and one with a large vocabulary
// without projections. Each session takes a token and picks the next one.
std::shared_ptr<const testing::RandomLanguageModel> LanguageModel(int number);
Case LanguageModelStep(const std::shared_ptr<const testing::RandomLanguageModel>& model,
                       DataType dtype, int sessions);

// A translator, small or the paper's: its encoder of sentences of 25 words, and a step of a beam of
// five after 20 words.
std::shared_ptr<const testing::RandomTranslator> Translator(bool paper);
Case TranslatorEncode(const std::shared_ptr<const testing::RandomTranslator>& model, DataType dtype,
                      int sentences);
Case TranslatorStep(const std::shared_ptr<const testing::RandomTranslator>& model, DataType dtype,
                    int sentences);

// A reader of DrQA's size: passages of 130 tokens and questions of 12.
std::shared_ptr<const testing::RandomReader> Reader();
Case ReaderBatch(const std::shared_ptr<const testing::RandomReader>& model, DataType dtype,
                 int questions);

// The matrix products of a batch: `rows` times weights of k x n.
struct ProductSize {
  int rows, k, n;
};
// Those of the measured batch; those of a stack's layers, where all gates and directions of a layer
// are one product, and a low-rank layer has two.
std::vector<ProductSize> ProductsOf(const Case& c);
std::vector<ProductSize> ProductsOf(int rows, const StackSpec& spec);

// A program compiled for cases that share it and the data type, with room for each of their
// batches.
class Model {
 public:
  // On `backend`; without one, on the processor with one thread, as the products alone.
  explicit Model(const std::vector<Case>& cases, Backend* backend = nullptr);

  // The first error of all.
  const Status& status() const { return status_; }
  size_t workspace_bytes() const { return workspace_->bytes(); }

 private:
  friend class System;
  void Note(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  Status status_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProgramExecutable> executable_;
  std::unique_ptr<ProgramWorkspace> workspace_;
  std::unique_ptr<StateArena> arena_;
};

// Runs the batch of a case, which is one of the model's. The model outlives it, and has the errors.
class System {
 public:
  System(const Case& c, Model* model);
  ~System();

  // Returns the microseconds of the run itself, without the making of its slots.
  double Run();

 private:
  struct Memory;

  void Run(Memory* memory);

  const Case case_;
  Model* const model_;
  std::unique_ptr<Memory> memory_;
  std::vector<StateArena::Slot> started_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_SYSTEM_CASE_H_
