#include "models/language_model.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "models/stack_builder.h"
#include "models/tensor_reader.h"

namespace sru::models {

namespace ops = kernels::ops;

const kernels::StackSpec& LanguageModel::stack() const {
  return std::get<ops::Stack>(program.operations.front()).spec;
}

absl::StatusOr<LanguageModel> BuildLanguageModel(const ModelConfig& config,
                                                 const SafetensorsFile& tensors) {
  const int vocabulary = config.embedding.vocabulary_size;
  TensorReader reader(tensors);
  ops::Stack stack;
  stack.spec = ReadEncoder(config.encoder, "encoder.", reader);
  stack.spec.vocabulary_size = vocabulary;
  stack.spec.embedding = reader.Take("embedding.weight", {vocabulary, config.encoder.input_size});
  const int width = config.encoder.output_size();
  ops::Predict predict;
  predict.weight =
      config.tied ? stack.spec.embedding : reader.Take("out.weight", {vocabulary, width});
  predict.bias = reader.Take("out.bias", {vocabulary});
  if (!reader.status().ok()) return reader.status();
  if (absl::Status status = reader.CheckAllTaken(); !status.ok()) return status;

  LanguageModel model;
  kernels::Program& program = model.program;
  model.max_candidates = std::min(kMaxCandidates, vocabulary);
  model.tokens = program.AddAxis("tokens");
  model.ids = program.AddIds("token ids", model.tokens, 0, vocabulary);
  model.targets = program.AddIds("targets", model.tokens, -1, vocabulary);
  model.counts = program.AddIds("candidates", model.tokens, 0, model.max_candidates + 1);
  model.c = program.AddField("c", config.encoder.num_layers * width);
  model.last_h = program.AddField("h", width);

  stack.ids = model.ids;
  stack.state = model.c;
  const kernels::ValueId h = program.Apply(std::move(stack));
  ops::Shift shift;
  shift.x = h;
  shift.last = model.last_h;
  predict.x = program.Apply(shift);
  predict.vocabulary_size = vocabulary;
  predict.targets = model.targets;
  predict.counts = model.counts;
  predict.max_candidates = model.max_candidates;
  const kernels::ValueId predicted = program.Apply(predict);
  model.log_probs = program.AddOutput("log_probs", predicted, kernels::OutputType::kLogProb);
  model.candidates = program.AddOutput("candidates", predicted, kernels::OutputType::kCandidates);
  return model;
}

}  // namespace sru::models
