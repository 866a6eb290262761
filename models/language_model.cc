#include "models/language_model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "models/stack_builder.h"
#include "models/tensor_reader.h"

namespace sru::models {

namespace ops = kernels::ops;

namespace {

// What comes after the sequences, by the weights of `predict`.
void AddPicks(kernels::ValueId h, ops::Predict predict, LanguageModel* model) {
  kernels::Program& program = model->program;
  model->sequences = program.AddSequenceAxis("sequences", model->tokens);
  model->picks = program.AddAxis("picks");
  model->adjustments = program.AddAxis("adjustments");
  model->pick_sequences = program.AddRows("sequences of picks", model->picks, model->sequences);
  model->sampling = program.AddSampling("sampling", model->picks);
  model->pick_counts =
      program.AddIds("candidates of picks", model->picks, 0, model->max_candidates + 1);
  model->pick_adjustments =
      program.AddAdjustments("adjustments", model->adjustments, predict.vocabulary_size);

  ops::Last last;
  last.x = h;
  last.axis = model->sequences;
  last.last = model->last_h;
  ops::Select select;
  select.x = program.Apply(last);
  select.rows = model->pick_sequences;
  predict.x = program.Apply(select);
  predict.targets = kernels::kNone;
  predict.counts = model->pick_counts;
  predict.sampling = model->sampling;
  predict.adjustments = model->pick_adjustments;
  const kernels::ValueId predicted = program.Apply(predict);
  model->picked = program.AddOutput("picked", predicted, kernels::OutputType::kPicked);
  model->pick_candidates =
      program.AddOutput("candidates of picks", predicted, kernels::OutputType::kCandidates);
}

}  // namespace

kernels::ProgramLimits LanguageModelLimits(const LanguageModel& model, int max_tokens,
                                           int max_sequences, int max_picks, int max_adjustments) {
  kernels::ProgramLimits limits;
  limits.axes.resize(model.program.axes.size());
  limits.axes[model.tokens] = {max_tokens, max_sequences};
  limits.axes[model.picks] = {max_picks, std::min(max_picks, 1)};
  limits.axes[model.adjustments] = {max_adjustments, max_picks};
  return limits;
}

BuiltProgram BuildLanguageModel(const ModelConfig& config, const SafetensorsFile& tensors) {
  const int vocabulary = config.embedding.vocabulary_size;
  TensorReader reader(tensors);
  ops::Stack stack;
  stack.spec = ReadEncoder(config, "encoder.", reader);
  const int width = config.encoder.output_size();
  ops::Predict predict;
  predict.weight =
      config.tied ? stack.spec.embedding : reader.Take("out.weight", {vocabulary, width});
  predict.bias = reader.Take("out.bias", {vocabulary});
  SRU_RETURN_UNLESS_OK(reader.Finish());

  auto model = std::make_unique<LanguageModel>();
  model->keeps_states = true;
  kernels::Program& program = model->program;
  model->max_candidates = std::min(kMaxCandidates, vocabulary);
  model->tokens = program.AddAxis("tokens");
  model->ids = program.AddIds("token ids", model->tokens, 0, vocabulary);
  model->targets = program.AddIds("targets", model->tokens, -1, vocabulary);
  model->counts = program.AddIds("candidates", model->tokens, 0, model->max_candidates + 1);
  model->c = program.AddField("c", config.encoder.num_layers * width);
  model->last_h = program.AddField("h", width);

  stack.ids = model->ids;
  stack.state = model->c;
  const kernels::ValueId h = program.Apply(std::move(stack));
  ops::Shift shift;
  shift.x = h;
  shift.last = model->last_h;
  predict.x = program.Apply(shift);
  predict.vocabulary_size = vocabulary;
  predict.targets = model->targets;
  predict.counts = model->counts;
  predict.max_candidates = model->max_candidates;
  const kernels::ValueId predicted = program.Apply(predict);
  model->log_probs = program.AddOutput("log_probs", predicted, kernels::OutputType::kLogProb);
  model->candidates = program.AddOutput("candidates", predicted, kernels::OutputType::kCandidates);
  AddPicks(h, predict, model.get());
  return model;
}

kernels::ModelSizes LanguageModelSizes(const ModelConfig& config) {
  kernels::ModelSizes sizes =
      StackSizes(config, config.embedding.vocabulary_size, kernels::kProgramBlocks.columns);
  const int64_t width = config.encoder.output_size();
  // The token vectors, and those of the tokens before, from which the tokens are predicted; and per
  // thread the rows that it multiplies by the output layer, with a piece of the product.
  sizes.program_row = 2 * width;
  sizes.program_thread =
      kernels::kProgramBlocks.output_rows * width + kernels::kProgramBlocks.piece_values;
  sizes.step_tokens = kMaxStepTokens;
  return sizes;
}

}  // namespace sru::models
