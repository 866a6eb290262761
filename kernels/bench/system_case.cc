#include "kernels/bench/system_case.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <variant>

#include "kernels/bench/measure.h"

namespace sru::kernels {
namespace {

std::vector<int> Equal(int count, int length) { return std::vector<int>(count, length); }

testing::ProgramData DataOf(const Case& c, const Batch& batch) {
  const Program& program = c.program->program;
  testing::ProgramData data = testing::RandomData(program, batch.lengths, 2);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec& input = program.inputs[i];
    std::vector<int32_t>& ids = data.ids[i];
    const auto has = [&](const char* part) { return input.name.find(part) != std::string::npos; };
    if (has("_counts")) ids.assign(ids.size(), c.candidates);
    if (has("_targets")) ids.assign(ids.size(), -1);
    if (input.type == InputType::kMap) std::iota(ids.begin(), ids.end(), 0);
    data.sampling[i].assign(data.sampling[i].size(), Sampling());  // greedy
  }
  return data;
}

// As much as the largest of all batches needs.
ProgramLimits LimitsOf(const std::vector<Case>& cases) {
  ProgramLimits limits;
  limits.axes.resize(cases.front().program->program.axes.size());
  const auto hold = [&](const Batch& batch) {
    for (size_t a = 0; a < batch.lengths.size(); ++a) {
      int rows = 0;
      for (const int length : batch.lengths[a]) rows += length;
      AxisLimits& axis = limits.axes[a];
      axis.max_rows = std::max(axis.max_rows, rows);
      axis.max_sequences = std::max(axis.max_sequences, static_cast<int>(batch.lengths[a].size()));
    }
  };
  for (const Case& c : cases) {
    std::for_each(c.before.begin(), c.before.end(), hold);
    hold(c.measured);
  }
  return limits;
}

}  // namespace

std::shared_ptr<const testing::RandomLanguageModel> LanguageModel(int number) {
  const testing::LanguageModelSizes sizes[] = {
      {205, 64, 512, 4, 128}, {205, 256, 2048, 12, 512}, {20000, 512, 1024, 5, 0}};
  return std::make_shared<testing::RandomLanguageModel>(sizes[number]);
}

Case LanguageModelStep(const std::shared_ptr<const testing::RandomLanguageModel>& model,
                       DataType dtype, int sessions) {
  return {"language model, step", model, dtype, {}, {{Equal(sessions, 1)}, model->tokens},
          {"next_picked"}};
}

std::shared_ptr<const testing::RandomTranslator> Translator(bool paper) {
  // Vocabulary, width, heads, hidden size, layers, candidates.
  const testing::TranslatorSizes sizes[] = {{6000, 128, 4, 512, 3, 64},
                                            {32000, 512, 8, 2048, 5, 64}};
  return std::make_shared<testing::RandomTranslator>(sizes[paper ? 1 : 0]);
}

Case TranslatorEncode(const std::shared_ptr<const testing::RandomTranslator>& model, DataType dtype,
                      int sentences) {
  return {"translator, encoder", model, dtype, {}, {{Equal(sentences, 25), {}}, model->source}, {}};
}

Case TranslatorStep(const std::shared_ptr<const testing::RandomTranslator>& model, DataType dtype,
                    int sentences) {
  constexpr int kBeam = 5;
  return {"translator, step",
          model,
          dtype,
          {TranslatorEncode(model, dtype, sentences).measured,
           {{{}, Equal(sentences, 20)}, model->target}},
          {{{}, Equal(sentences * kBeam, 1)}, model->target},
          {"next_candidates"},
          kBeam,
          kBeam};
}

std::shared_ptr<const testing::RandomReader> Reader() {
  // Vocabulary, width, hidden size, layers.
  return std::make_shared<testing::RandomReader>(testing::ReaderSizes{20000, 300, 128, 3});
}

Case ReaderBatch(const std::shared_ptr<const testing::RandomReader>& model, DataType dtype,
                 int questions) {
  return {"reader",        model, dtype, {}, {{Equal(questions, 130), Equal(questions, 12)}},
          {"start", "end"}};
}

std::vector<ProductSize> ProductsOf(int rows, const StackSpec& spec) {
  std::vector<ProductSize> products;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.projection_size > 0) {
      products.push_back({rows, layer.input_size, layer.projection_size});
    }
    products.push_back({rows, layer.product_size(), layer.output_size() * layer.num_matrices});
  }
  return products;
}

std::vector<ProductSize> ProductsOf(const Case& c) {
  const Program& program = c.program->program;
  const testing::ProgramData data = DataOf(c, c.measured);
  ProgramShape shape;
  (void)Validate(program, &shape);
  std::vector<ProductSize> products;
  for (size_t i = 0; i < program.operations.size(); ++i) {
    const int rows = data.num_rows(program, shape.values[i].axis);
    if (rows == 0) continue;
    if (const auto* linear = std::get_if<ops::Linear>(&program.operations[i])) {
      products.push_back({rows, shape.values[linear->x].width, linear->width});
    } else if (const auto* stack = std::get_if<ops::Stack>(&program.operations[i])) {
      for (const ProductSize& product : ProductsOf(rows, stack->spec)) products.push_back(product);
    } else if (const auto* predict = std::get_if<ops::Predict>(&program.operations[i])) {
      products.push_back({rows, shape.values[predict->x].width,
                          predict->choices != kNone
                              ? static_cast<int>(data.ids[predict->choices].size()) / rows
                              : predict->vocabulary_size});
    }
  }
  return products;
}

Model::Model(const std::vector<Case>& cases, Backend* backend) {
  if (backend == nullptr) {
    BackendOptions hardware;
    hardware.cpu_threads = 1;
    Note(CreateBackend("cpu", hardware, &backend_));
    backend = backend_.get();
  }
  CompileOptions options;
  options.dtype = cases.front().dtype;
  if (status_.ok()) Note(backend->Compile(cases.front().program->program, options, &executable_));
  if (status_.ok()) Note(executable_->CreateWorkspace(LimitsOf(cases), &workspace_));
  ArenaOptions arena;
  arena.budget_bytes = size_t{4} << 30;
  if (status_.ok()) Note(executable_->CreateArena(arena, &arena_));
}

// A batch of random inputs, and room for its slots and for the outputs that are asked for.
struct System::Memory {
  Memory(const Case& c, const Batch& batch, const std::vector<std::string>& asked)
      : data(DataOf(c, batch)), slots(SlotsOf(batch)), views(c.program->program, data, slots) {
    const Program& program = c.program->program;
    ProgramShape shape;
    (void)Validate(program, &shape);
    for (const OutputSpec& output : program.outputs) {
      OutputBatch& given = outputs.emplace_back();
      if (std::find(asked.begin(), asked.end(), output.name) == asked.end()) continue;
      const size_t size = testing::OutputSize(program, shape, data, output);
      if (testing::HasCandidates(output)) {
        given.candidates = candidates.emplace_back(size).data();
      } else {
        given.values = values.emplace_back(size).data();
      }
    }
  }

  static testing::Slots SlotsOf(const Batch& batch) {
    testing::Slots slots(batch.lengths.size());
    if (batch.axis != kNone) slots[batch.axis].resize(batch.lengths[batch.axis].size());
    return slots;
  }

  const testing::ProgramData data;
  testing::Slots slots;
  const testing::BatchViews views;
  std::vector<std::vector<float>> values;          // of the outputs that are rows
  std::vector<std::vector<Candidate>> candidates;  // of the other ones
  std::vector<OutputBatch> outputs;                // [output]
};

System::System(const Case& c, Model* model) : case_(c), model_(model) {
  if (!model->status().ok()) return;
  memory_ = std::make_unique<Memory>(c, c.measured, c.outputs);
  for (const Batch& before : c.before) {
    Memory memory(c, before, {});
    std::vector<StateArena::Slot>& slots = memory.slots[before.axis];
    if (started_.empty()) {
      for (StateArena::Slot& slot : slots) model->Note(model->arena_->Allocate(&slot));
      started_ = slots;
    }
    std::copy(started_.begin(), started_.end(), slots.begin());
    Run(&memory);
  }
}

System::~System() {
  for (const StateArena::Slot slot : started_) model_->arena_->Free(slot);
}

void System::Run(Memory* memory) {
  if (!model_->status().ok()) return;
  model_->Note(model_->executable_->Run(memory->views.batch(model_->arena_.get()),
                                        memory->outputs.data(), *model_->workspace_));
}

double System::Run() {
  if (!model_->status().ok()) return 0;
  for (std::vector<StateArena::Slot>& slots : memory_->slots) {
    for (size_t i = 0; i < slots.size(); ++i) {
      model_->Note(started_.empty() ? model_->arena_->Allocate(&slots[i])
                                    : model_->arena_->Copy(started_[i / case_.copies], &slots[i]));
    }
  }
  const double us = Microseconds([&] { Run(memory_.get()); });
  for (const std::vector<StateArena::Slot>& slots : memory_->slots) {
    for (const StateArena::Slot slot : slots) model_->arena_->Free(slot);
  }
  return us;
}

}  // namespace sru::kernels
