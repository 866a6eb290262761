#include "models/tagger.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/limits.h"
#include "base/status.h"
#include "models/stack_builder.h"
#include "models/tensor_reader.h"

namespace sru::models {

namespace ops = kernels::ops;

namespace {

// The rows of a piece of the output layer's product.
constexpr int64_t kPieceRows = 64;

}  // namespace

BuiltProgram BuildTagger(const ModelConfig& config, const SafetensorsFile& tensors) {
  const auto num_labels = static_cast<int>(config.labels.size());
  TensorReader reader(tensors);
  ops::Stack stack;
  stack.spec = ReadEncoder(config, "encoder.", reader);
  ops::Predict predict;
  predict.weight = reader.Take("out.weight", {num_labels, config.encoder.output_size()});
  predict.bias = reader.TakeIfPresent("out.bias", {num_labels});
  SRU_RETURN_UNLESS_OK(reader.Finish());

  auto tagger = std::make_unique<Tagger>();
  kernels::Program& program = tagger->program;
  tagger->max_labels = std::min(kMaxCandidates, num_labels);
  tagger->tokens = program.AddAxis("tokens");
  if (config.has_embedding) {
    tagger->ids = program.AddIds("token ids", tagger->tokens, 0, config.embedding.vocabulary_size);
    stack.ids = tagger->ids;
  } else {
    tagger->features = program.AddFeatures("features", tagger->tokens, config.encoder.input_size);
    stack.x = program.Apply(ops::Features{tagger->features});
  }
  tagger->counts = program.AddIds("labels", tagger->tokens, 0, tagger->max_labels + 1);
  predict.x = program.Apply(std::move(stack));
  predict.vocabulary_size = num_labels;
  predict.counts = tagger->counts;
  predict.max_candidates = tagger->max_labels;
  tagger->labels =
      program.AddOutput("labels", program.Apply(predict), kernels::OutputType::kCandidates);
  return tagger;
}

kernels::ModelSizes TaggerSizes(const ModelConfig& config) {
  kernels::ModelSizes sizes = StackSizes(config);
  const int64_t width = config.encoder.output_size();
  // Each token's vector, and the features where there is no embedding.
  sizes.program_row = width + (config.has_embedding ? 0 : config.encoder.input_size);
  // The rows that a thread multiplies by the output layer, which it gathers, with a piece of the
  // product; and those past the last that it may read.
  sizes.program_thread = 2 * kPieceRows * width + kernels::kProgramBlocks.piece_values;
  sizes.program_rest = kPieceRows * width;
  return sizes;
}

}  // namespace sru::models
