#include "kernels/bench/system_case.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "kernels/bench/measure.h"

namespace sru::kernels {
namespace {

using Slots = std::vector<StateArena::Slot>;

std::vector<int> Equal(int count, int length) { return std::vector<int>(count, length); }

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
    if (ends_with("_counts")) ids.assign(ids.size(), c.candidates);
    if (ends_with("_targets")) ids.assign(ids.size(), -1);
    if (input.type == InputType::kMap) {
      for (size_t b = 0; b < ids.size(); ++b) ids[b] = static_cast<int32_t>(b);
    }
    for (Sampling& row : data.sampling[i]) row = Sampling();  // greedy
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
  testing::TranslatorSizes sizes;
  sizes.vocabulary_size = paper ? 32000 : 6000;
  sizes.width = paper ? 512 : 128;
  sizes.heads = paper ? 8 : 4;
  sizes.hidden_size = paper ? 2048 : 512;
  sizes.layers = paper ? 5 : 3;
  sizes.max_candidates = 64;
  return std::make_shared<testing::RandomTranslator>(sizes);
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
  testing::ReaderSizes sizes;
  sizes.vocabulary_size = 20000;
  sizes.width = 300;
  sizes.hidden_size = 128;
  sizes.layers = 3;
  return std::make_shared<testing::RandomReader>(sizes);
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

// A batch of random inputs, and room for the outputs that are asked for.
struct System::Memory {
  Memory(const Case& c, const Batch& batch, const std::vector<std::string>& asked)
      : data(DataOf(c, batch)) {
    const Program& program = c.program->program;
    ProgramShape shape;
    (void)Validate(program, &shape);
    offsets.resize(program.axes.size());
    for (size_t a = 0; a < program.axes.size(); ++a) {
      const auto axis = static_cast<AxisId>(a);
      offsets[a] = data.Offsets(program, axis);
      AxisBatch& given = axes.emplace_back();
      given.num_sequences = data.num_sequences(program, axis);
      given.offsets = offsets[a].data();
    }
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      InputBatch& input = inputs.emplace_back();
      if (!data.ids[i].empty()) input.ids = data.ids[i].data();
      if (!data.features[i].empty()) input.values = data.features[i].data();
      if (!data.sampling[i].empty()) input.sampling = data.sampling[i].data();
    }
    for (const OutputSpec& output : program.outputs) {
      OutputBatch& given = outputs.emplace_back();
      if (std::find(asked.begin(), asked.end(), output.name) == asked.end()) continue;
      const ValueSpec& value = shape.values[output.value];
      const size_t rows = data.num_rows(program, value.axis);
      if (output.type == OutputType::kRows) {
        given.values = values.emplace_back(rows * value.width).data();
        continue;
      }
      const auto& predict = std::get<ops::Predict>(program.operations[output.value]);
      const int each = output.type == OutputType::kPicked ? 1 : predict.max_candidates;
      given.candidates = candidates.emplace_back(rows * each).data();
    }
  }

  const testing::ProgramData data;
  std::vector<std::vector<int32_t>> offsets;       // [axis]
  std::vector<AxisBatch> axes;                     // [axis]
  std::vector<InputBatch> inputs;                  // [input]
  std::vector<std::vector<float>> values;          // of the outputs that are rows
  std::vector<std::vector<Candidate>> candidates;  // of the other ones
  std::vector<OutputBatch> outputs;                // [output]
};

System::System(const Case& c, Model* model) : case_(c), model_(model) {
  if (!model->status().ok()) return;
  memory_ = std::make_unique<Memory>(c, c.measured, c.outputs);
  for (const Batch& before : c.before) {
    if (started_.empty()) {
      started_.resize(before.lengths[before.axis].size());
      for (StateArena::Slot& slot : started_) model->Note(model->arena_->Allocate(&slot));
    }
    Memory memory(c, before, {});
    memory.axes[before.axis].slots = started_.data();
    Run(&memory);
  }
}

System::~System() {
  for (const StateArena::Slot slot : started_) model_->arena_->Free(slot);
}

void System::Run(Memory* memory) {
  ProgramBatch batch;
  batch.axes = memory->axes.data();
  batch.inputs = memory->inputs.data();
  batch.arena = model_->arena_.get();
  if (!model_->status().ok()) return;
  model_->Note(model_->executable_->Run(batch, memory->outputs.data(), *model_->workspace_));
}

double System::Run() {
  if (!model_->status().ok()) return 0;
  const AxisId axis = case_.measured.axis;
  Slots slots(axis == kNone ? 0 : case_.measured.lengths[axis].size());
  for (size_t i = 0; i < slots.size(); ++i) {
    model_->Note(started_.empty() ? model_->arena_->Allocate(&slots[i])
                                  : model_->arena_->Copy(started_[i / case_.copies], &slots[i]));
  }
  if (axis != kNone) memory_->axes[axis].slots = slots.data();
  const double us = Microseconds([&] { Run(memory_.get()); });
  for (const StateArena::Slot slot : slots) model_->arena_->Free(slot);
  return us;
}

}  // namespace sru::kernels
