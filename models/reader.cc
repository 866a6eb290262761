#include "models/reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/weight_source.h"
#include "models/stack_builder.h"
#include "models/tensor_reader.h"

namespace sru::models {

namespace ops = kernels::ops;
using kernels::FloatView;
using kernels::ValueId;

namespace {

// max(0, W e + b) for each row e of an embedding of this width.
std::vector<float> MatchTable(kernels::WeightSource* source, const FloatView& embedding,
                              const ops::Linear& linear) {
  const auto width = static_cast<size_t>(linear.width);
  const kernels::ReadWeights readable_weight(source, linear.weight);
  const kernels::ReadWeights readable_bias(source, linear.bias);
  // With W transposed, a row's sums can be made beside each other.
  std::vector<float> transposed(width * width);
  for (size_t out = 0; out < width; ++out) {
    for (size_t in = 0; in < width; ++in) {
      transposed[in * width + out] = linear.weight.data[out * width + in];
    }
  }
  std::vector<float> table(embedding.size);
  const auto multiply = [&](size_t first, size_t rows, const float* values) {
    for (size_t row = 0; row < rows; ++row) {
      float* const sums = &table[(first + row) * width];
      std::copy_n(linear.bias.data, width, sums);
      for (size_t in = 0; in < width; ++in) {
        const float value = values[row * width + in];
        const float* const weights = &transposed[in * width];
        for (size_t out = 0; out < width; ++out) sums[out] += value * weights[out];
      }
      for (size_t out = 0; out < width; ++out) sums[out] = std::max(0.0f, sums[out]);
    }
  };
  kernels::ReadRows(source, embedding, width, multiply);
  return table;
}

// The stack over questions.
EncoderConfig QuestionEncoder(const ModelConfig& config) {
  EncoderConfig encoder = config.encoder;
  encoder.input_size = config.reader.embedding_dim;
  encoder.num_layers = config.reader.question_layers;
  return encoder;
}

// Builds a program from the tensors that it takes.
class ReaderBuilder {
 public:
  ReaderBuilder(const ModelConfig& config, const SafetensorsFile& tensors, size_t max_table_bytes)
      : config_(config), tensors_(tensors), reader_(tensors), max_table_bytes_(max_table_bytes) {}

  absl::StatusOr<Reader> Build() {
    AddInputs();
    const FloatView embedding =
        reader_.Take("embedding.weight", {config_.embedding.vocabulary_size, width()});
    const ValueId passage = Embed(model_.passage_ids, embedding, vocabulary_size(), width());
    const ValueId question = Embed(model_.question_ids, embedding, vocabulary_size(), width());

    ops::Concat inputs;
    inputs.xs = {passage};
    if (model_.passage_features != kernels::kNone) {
      inputs.xs.push_back(program().Apply(ops::Features{model_.passage_features}));
    }
    if (options().use_qemb) {
      model_.aligned = AlignedQuestion(embedding, passage, question);
      inputs.xs.push_back(model_.aligned);
    }
    AddTags("pos_embedding.weight", model_.pos_ids, options().pos_size, options().pos_dim, &inputs);
    AddTags("ner_embedding.weight", model_.ner_ids, options().ner_size, options().ner_dim, &inputs);
    const ValueId read = inputs.xs.size() == 1 ? passage : program().Apply(std::move(inputs));

    int passage_width = 0;
    model_.passage_vectors = Stack("doc_rnn.rnns.", config_.encoder, read, &passage_width);
    int question_width = 0;
    model_.question_vectors =
        Stack("question_rnn.rnns.", QuestionEncoder(config_), question, &question_width);
    model_.question_vector = Merge(question_width);
    model_.start_logits = Logits("start", question_width, passage_width);
    model_.end_logits = Logits("end", question_width, passage_width);

    SRU_RETURN_UNLESS_OK(reader_.Finish());
    if (options().use_qemb) MakeMatchTable(embedding);
    return std::move(model_);
  }

 private:
  kernels::Program& program() { return model_.program; }
  const ReaderConfig& options() const { return config_.reader; }
  int width() const { return options().embedding_dim; }
  int vocabulary_size() const { return config_.embedding.vocabulary_size; }

  void AddInputs() {
    model_.passage = program().AddAxis("passage");
    model_.question = program().AddAxis("question");
    model_.questions = program().AddSequenceAxis("questions", model_.question);
    model_.passage_ids = program().AddIds("passage ids", model_.passage, 0, vocabulary_size());
    model_.question_ids = program().AddIds("question ids", model_.question, 0, vocabulary_size());
    model_.question_of = program().AddMap("question of a passage", model_.passage, model_.question);
    if (options().num_features() > 0) {
      model_.passage_features =
          program().AddFeatures("features", model_.passage, options().num_features());
    }
    if (options().pos_size > 0) {
      model_.pos_ids = program().AddIds("parts of speech", model_.passage, 0, options().pos_size);
    }
    if (options().ner_size > 0) {
      model_.ner_ids = program().AddIds("named entities", model_.passage, 0, options().ner_size);
    }
  }

  ValueId Embed(kernels::InputId ids, const FloatView& table, int size, int table_width) {
    ops::Embed embed;
    embed.ids = ids;
    embed.table = table;
    embed.vocabulary_size = size;
    embed.width = table_width;
    return program().Apply(embed);
  }

  void AddTags(const char* tensor, kernels::InputId ids, int size, int dim, ops::Concat* inputs) {
    if (ids == kernels::kNone) return;
    inputs->xs.push_back(Embed(ids, reader_.Take(tensor, {size, dim}), size, dim));
  }

  // The tensors of a linear layer, to be applied to `x`.
  ops::Linear Linear(const std::string& module, ValueId x, int in, int out) {
    ops::Linear linear;
    linear.x = x;
    linear.width = out;
    linear.weight = reader_.Take(absl::StrCat(module, ".linear.weight"), {out, in});
    linear.bias = reader_.Take(absl::StrCat(module, ".linear.bias"), {out});
    return linear;
  }

  ValueId AlignedQuestion(const FloatView& embedding, ValueId passage, ValueId question) {
    match_ = Linear("qemb_match", passage, width(), width());
    match_.relu = true;
    ops::Attend attend;
    if (embedding.size * sizeof(float) <= max_table_bytes_) {
      // Their table is made once every tensor is known to be good.
      attend.q = Embed(model_.passage_ids, embedding, vocabulary_size(), width());
      attend.keys = Embed(model_.question_ids, embedding, vocabulary_size(), width());
      matches_ = {attend.q, attend.keys};
    } else {
      attend.q = program().Apply(match_);
      ops::Linear of_question = match_;
      of_question.x = question;
      attend.keys = program().Apply(of_question);
    }
    attend.values = question;
    attend.map = model_.question_of;
    return program().Apply(attend);
  }

  void MakeMatchTable(const FloatView& embedding) {
    if (matches_.empty()) return;
    const auto table = std::make_shared<const std::vector<float>>(
        MatchTable(tensors_.weights(), embedding, match_));
    for (const ValueId match : matches_) {
      std::get<ops::Embed>(program().operations[match]).table = {table->data(), table->size()};
    }
    model_.values = table;
  }

  // The vectors of the last layer, or of all layers.
  ValueId Stack(const char* prefix, const EncoderConfig& encoder, ValueId x, int* stack_width) {
    const int per_stack = options().concat_rnn_layers ? 1 : encoder.num_layers;
    ops::Concat all;
    for (int first = 0; first < encoder.num_layers; first += per_stack) {
      ops::Stack stack;
      stack.x = first == 0 ? x : all.xs.back();
      stack.spec.input_size = encoder.layer_input_size(first);
      for (int i = first; i < first + per_stack; ++i) {
        stack.spec.layers.push_back(ReadLayer(encoder, i, absl::StrCat(prefix, i, "."), reader_));
      }
      all.xs.push_back(program().Apply(std::move(stack)));
    }
    *stack_width = encoder.output_size() * static_cast<int>(all.xs.size());
    return all.xs.size() == 1 ? all.xs.front() : program().Apply(std::move(all));
  }

  ValueId Merge(int question_width) {
    ops::Pool pool;
    pool.x = model_.question_vectors;
    pool.axis = model_.questions;
    if (options().question_merge == QuestionMerge::kAverage) {
      pool.pooling = kernels::Pooling::kMean;
    } else {
      pool.weights =
          program().Apply(Linear("self_attn", model_.question_vectors, question_width, 1));
    }
    return program().Apply(pool);
  }

  // The output of `end`, which is "start" or "end".
  int Logits(const std::string& end, int question_width, int passage_width) {
    ops::RowDot dot;
    dot.x = model_.passage_vectors;
    dot.v = program().Apply(
        Linear(end + "_attn", model_.question_vector, question_width, passage_width));
    dot.map = model_.question_of;
    return program().AddOutput(end + " logits", program().Apply(dot));
  }

  const ModelConfig& config_;
  const SafetensorsFile& tensors_;
  TensorReader reader_;
  const size_t max_table_bytes_;
  Reader model_;
  ops::Linear match_;             // of a passage's embeddings
  std::vector<ValueId> matches_;  // what looks m up in the table
};

// What is in the file; scale_x is a constant that the package keeps.
int64_t CountWeights(const SafetensorsFile& tensors) {
  size_t count = 0;
  for (const auto& [name, view] : tensors.tensors()) {
    if (!absl::EndsWith(name, ".scale_x")) count += view.num_elements();
  }
  return static_cast<int64_t>(count);
}

}  // namespace

kernels::ProgramLimits ReaderLimits(const Reader& reader, int max_tokens, int max_sequences) {
  kernels::ProgramLimits limits;
  limits.axes.resize(reader.program.axes.size());
  limits.axes[reader.passage] = {max_tokens, max_sequences};
  limits.axes[reader.question] = {max_tokens, max_sequences};
  return limits;
}

absl::StatusOr<Reader> BuildReader(const ModelConfig& config, const SafetensorsFile& tensors,
                                   size_t max_match_table_bytes) {
  absl::StatusOr<Reader> reader = ReaderBuilder(config, tensors, max_match_table_bytes).Build();
  if (reader.ok()) reader->parameter_count = CountWeights(tensors);
  return reader;
}

// Its values are in one workspace with those of the stacks.
kernels::ModelSizes ReaderSizes(const ModelConfig& config) {
  const ReaderConfig& reader = config.reader;
  kernels::ModelSizes sizes;
  const int64_t width = reader.embedding_dim;
  const int64_t embedding = config.embedding.vocabulary_size * width;
  sizes.in_file = embedding + int64_t{reader.pos_size} * reader.pos_dim +
                  int64_t{reader.ner_size} * reader.ner_dim;
  sizes.embedding = sizes.in_file;
  sizes.program_row = 2 * width + config.encoder.input_size + reader.num_features() +
                      reader.pos_dim + reader.ner_dim;
  sizes.program_thread = kernels::kProgramBlocks.piece_values;
  int64_t match_table = 0;  // in memory while all else is packed
  if (reader.use_qemb) {
    sizes.in_file += width * width;
    // The aligned question compares rows of a table, too, unless that is too large.
    if (embedding * kernels::kValueBytes <= static_cast<int64_t>(kMaxMatchTableBytes)) {
      sizes.embedding += embedding;
      match_table = embedding;
    }
    sizes.program_row += 3 * width;
  }
  sizes.stacks = 0;
  const auto add_stack = [&](const EncoderConfig& encoder) {
    AddStack(StackShape(encoder), &sizes);
    const int64_t layers = reader.concat_rnn_layers ? encoder.num_layers : 1;
    sizes.stacks += layers;
    // The vectors of each layer, and beside each other.
    sizes.program_row += encoder.output_size() * (layers == 1 ? 1 : 2 * layers);
    return encoder.output_size() * layers;
  };
  const int64_t passage_vector = add_stack(config.encoder);
  const int64_t question_vector = add_stack(QuestionEncoder(config));
  sizes.passing += match_table;
  sizes.passing_gates += match_table;
  sizes.in_file += 2 * question_vector * passage_vector;
  for (int i = 0; i < 2; ++i) kernels::AddProduct(question_vector, passage_vector, &sizes);
  return sizes;
}

}  // namespace sru::models
