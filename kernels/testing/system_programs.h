// Programs in the shapes of the paper's reader (section 4.2) and translator (section 4.3) and of
// Marian's students, with random weights, for tests and benchmarks of backends.
#ifndef SRU_KERNELS_TESTING_SYSTEM_PROGRAMS_H_
#define SRU_KERNELS_TESTING_SYSTEM_PROGRAMS_H_

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "kernels/program.h"
#include "kernels/testing/random_program.h"

namespace sru::testing {

// Another Linear with the weights of the one that made `like`.
inline kernels::ValueId LinearLike(RandomProgram* p, kernels::ValueId like, kernels::ValueId x) {
  const auto original = p->op<kernels::ops::Linear>(like);
  const kernels::ValueId y = p->Linear(x, original.width, !original.bias.empty(), original.relu);
  auto& op = p->op<kernels::ops::Linear>(y);
  op.weight = original.weight;
  op.bias = original.bias;
  return y;
}

// Another Embed with the table of the one that made `like`.
inline kernels::ValueId EmbedLike(RandomProgram* p, kernels::ValueId like, kernels::InputId ids) {
  auto op = p->op<kernels::ops::Embed>(like);
  op.ids = ids;
  return p->Apply(op, op.width);
}

struct ReaderShape {
  int vocabulary = 50;
  int embedding = 16;
  int features = 3;  // 0: none
  int tags = 0;      // of a further embedding of width 4; 0: none
  int hidden = 16;   // of each direction
  int layers = 1;
  bool aligned = true;         // passages look at their question
  bool concat_layers = false;  // every layer's output, side by side, in place of the last one's
  bool self_attention = true;  // the question's rows are weighted, else their mean is taken
};

// Stacks of bidirectional layers on x, each an operation of its own where all of their outputs are
// wanted.
inline kernels::ValueId ReaderStack(RandomProgram* p, const ReaderShape& shape,
                                    kernels::ValueId x) {
  StackOptions options;
  options.hidden_size = shape.hidden;
  options.num_layers = shape.layers;
  if (!shape.concat_layers) return p->Stack(x, options);
  options.num_layers = 1;
  std::vector<kernels::ValueId> outputs;
  for (int i = 0; i < shape.layers; ++i) {
    x = p->Stack(x, options);
    outputs.push_back(x);
  }
  return p->Concat(outputs);
}

// Passages look at their question, both go through bidirectional layers, and the question becomes
// one vector, with which each row of the passage is multiplied.
inline void AddReaderSystem(RandomProgram* p, const ReaderShape& shape) {
  const kernels::AxisId passages = p->program.AddAxis("passage");
  const kernels::AxisId questions = p->program.AddAxis("question");
  const kernels::AxisId asked = p->program.AddSequenceAxis("questions", questions);
  const kernels::InputId question_of = p->program.AddMap("question_of", passages, questions);
  const kernels::ValueId x =
      p->Embed(p->program.AddIds("passage_ids", passages, 0, shape.vocabulary), shape.vocabulary,
               shape.embedding);
  const kernels::ValueId q =
      EmbedLike(p, x, p->program.AddIds("question_ids", questions, 0, shape.vocabulary));
  std::vector<kernels::ValueId> parts = {x};
  if (shape.features > 0) parts.push_back(p->Features("features", passages, shape.features));
  if (shape.aligned) {
    const kernels::ValueId query = p->Linear(x, shape.embedding, true, true);
    parts.push_back(p->Attend(query, LinearLike(p, query, q), q, 1, false, question_of));
    p->op<kernels::ops::Attend>(parts.back()).scale = 1.0f;
  }
  if (shape.tags > 0) {
    parts.push_back(p->Embed(p->program.AddIds("tags", passages, 0, shape.tags), shape.tags, 4));
  }
  const kernels::ValueId passage = ReaderStack(p, shape, p->Concat(parts));
  const kernels::ValueId question = ReaderStack(p, shape, q);
  const kernels::ValueId vector = shape.self_attention
                                      ? p->WeightedPool(question, asked, p->Linear(question, 1))
                                      : p->Pool(question, asked, kernels::Pooling::kMean);
  const int width = p->width(passage);
  p->Output(p->RowDot(passage, p->Linear(vector, width), question_of), "start");
  p->Output(p->RowDot(passage, p->Linear(vector, width), question_of), "end");
}

struct TranslatorShape {
  int source_vocabulary = 40;
  int target_vocabulary = 45;
  int width = 16;
  int heads = 4;
  int hidden = 16;  // of each direction of an SRU layer
  int encoder_layers = 1;
  int decoder_layers = 1;
  bool bidirectional = true;  // the encoder's SRU layers
  bool has_skip_term = false;
  int max_candidates = 6;
};

// n = Normalize(x); W SRU(n) + b is added to x.
inline kernels::ValueId AddSruLayer(RandomProgram* p, const TranslatorShape& shape,
                                    kernels::ValueId x, int directions, const std::string& state) {
  StackOptions options;
  options.hidden_size = shape.hidden;
  options.directions = directions;
  options.num_layers = 1;
  options.has_skip_term = shape.has_skip_term;
  return p->Add(x, p->Linear(p->Stack(p->Normalize(x, 1e-6f), options, state), shape.width));
}

// A Transformer with SRU in place of the feed-forward layers. `source` and `target` are axes 0 and
// 1. Slots are on the source's axis in one run, which fills the context, and on the target's in
// later ones. Operations of one axis come between those of the other, as those of no model need to.
// Outputs: encoded, next_log_prob, next_candidates, and the alignment of the last layer.
inline void AddTranslatorSystem(RandomProgram* p, const TranslatorShape& shape) {
  using kernels::ValueId;
  const kernels::AxisId source = p->program.AddAxis("source");
  const kernels::AxisId target = p->program.AddAxis("target");
  const int width = shape.width;
  const float scale = std::sqrt(static_cast<float>(width));
  const auto linear = [&](ValueId x) { return p->Linear(x, width); };

  const kernels::InputId source_ids =
      p->program.AddIds("source_ids", source, 0, shape.source_vocabulary);
  ValueId x = p->Embed(source_ids, shape.source_vocabulary, width, true, kernels::kNone, scale);
  for (int i = 0; i < shape.encoder_layers; ++i) {
    const ValueId n = p->Normalize(x, 1e-6f);
    const ValueId q = linear(n);
    const ValueId keys = linear(n);
    x = p->Add(x, linear(p->Attend(q, keys, linear(n), shape.heads)));
    x = AddSruLayer(p, shape, x, shape.bidirectional ? 2 : 1, "");
  }
  x = p->Normalize(x, 1e-6f);
  p->Output(x, "encoded");

  const kernels::InputId target_ids =
      p->program.AddIds("target_ids", target, 0, shape.target_vocabulary);
  const ValueId embedded =
      p->Embed(target_ids, shape.target_vocabulary, width, true, kernels::kNone, scale);
  ValueId y = embedded;
  ValueId attended = kernels::kNone;
  for (int i = 0; i < shape.decoder_layers; ++i) {
    const std::string layer = std::to_string(i);
    const auto add_field = [&](const std::string& name) {
      return p->program.AddField(name + layer, width, true);
    };
    const kernels::FieldId context_keys = add_field("context_keys");
    const kernels::FieldId context_values = add_field("context_values");
    p->Append(linear(x), context_keys);
    p->Append(linear(x), context_values);

    const ValueId n = p->Normalize(y, 1e-6f);
    const ValueId q = linear(n);
    const kernels::FieldId keys = add_field("self_keys");
    const kernels::FieldId values = add_field("self_values");
    if (i == 0) p->op<kernels::ops::Embed>(embedded).position_field = keys;
    p->Append(linear(n), keys);
    p->Append(linear(n), values);
    y = p->Add(y, linear(p->AttendFields(q, keys, values, shape.heads, /*causal=*/true)));

    attended =
        p->AttendFields(linear(p->Normalize(y, 1e-6f)), context_keys, context_values, shape.heads);
    y = p->Add(y, linear(attended));
    y = AddSruLayer(p, shape, y, 1, "c" + layer);
  }
  p->Predict("next", p->Normalize(y, 1e-6f), target, shape.target_vocabulary, shape.max_candidates);
  p->program.AddOutput("alignment", attended, kernels::OutputType::kAttention);
}

// A Transformer's encoder and a decoder with SSRU, as Marian's students are.
struct StudentShape {
  int vocabulary = 45;
  int width = 16;
  int heads = 4;
  int feed_forward = 32;
  int encoder_layers = 1;
  int decoder_layers = 1;
  bool int8 = false;
  bool choices = true;
  int max_candidates = 6;
};

// The source, the target and with choices those are axes 0, 1 and 2; slots as of a translator.
// Outputs: encoded, token_log_prob, token_candidates, alignment.
inline void AddStudentSystem(RandomProgram* p, const StudentShape& shape) {
  using kernels::ValueId;
  const kernels::AxisId source = p->program.AddAxis("source");
  const kernels::AxisId target = p->program.AddAxis("target");
  const int width = shape.width;
  const auto linear = [&](ValueId x, int size, bool bias = true, bool relu = false) {
    return shape.int8 ? p->Int8Linear(x, size, 30.0f, bias, relu) : p->Linear(x, size, bias, relu);
  };
  const auto add = [&](ValueId x, ValueId y) { return p->Normalize(p->Add(y, x), 1e-9f); };
  const auto feed_forward = [&](ValueId x) {
    return add(x, linear(linear(x, shape.feed_forward, true, true), width));
  };
  kernels::ops::Embed embed;
  embed.vocabulary_size = shape.vocabulary;
  embed.width = width;
  embed.scale = std::sqrt(static_cast<float>(width));
  embed.positions = kernels::ops::Positions::kHalves;
  if (shape.int8) {
    embed.int8_table = p->Int8Values(shape.vocabulary, width);
  } else {
    embed.table = p->Values(static_cast<size_t>(shape.vocabulary) * width, 1.0f / embed.scale);
  }
  embed.ids = p->program.AddIds("source_ids", source, 0, shape.vocabulary);
  ValueId x = p->Apply(embed, width);
  for (int i = 0; i < shape.encoder_layers; ++i) {
    const ValueId q = linear(x, width);
    const ValueId keys = linear(x, width);
    const ValueId values = linear(x, width);
    x = feed_forward(add(x, linear(p->Attend(q, keys, values, shape.heads), width)));
  }
  p->Output(x, "encoded");

  embed.ids = p->program.AddIds("target_ids", target, -1, shape.vocabulary);
  embed.zero_row = true;
  embed.position_ids = p->program.AddIds("target_positions", target, 0, kernels::kMaxPosition);
  ValueId y = p->Apply(embed, width);
  for (int i = 0; i < shape.decoder_layers; ++i) {
    const std::string layer = std::to_string(i);
    const kernels::FieldId keys = p->program.AddField("context_keys" + layer, width, true);
    const kernels::FieldId values = p->program.AddField("context_values" + layer, width, true);
    p->Append(linear(x, width), keys);
    p->Append(linear(x, width), values);
    const ValueId forget = linear(y, width);
    y = add(y, p->Ssru(linear(y, width, false), forget, "c" + layer));
    const ValueId attended = p->AttendFields(linear(y, width), keys, values, shape.heads);
    y = feed_forward(add(y, linear(attended, width)));
    if (i + 1 < shape.decoder_layers) continue;
    if (shape.choices) {
      const kernels::AxisId choices = p->program.AddAxis("choices");
      p->Choose("token", y, target, choices, shape.vocabulary, shape.max_candidates, {1});
    } else {
      p->Predict("token", y, target, shape.vocabulary, shape.max_candidates);
    }
    auto& op = std::get<kernels::ops::Predict>(p->program.operations.back());
    op.weight = embed.table;
    op.int8_weight = embed.int8_table;
    p->program.AddOutput("alignment", attended, kernels::OutputType::kAttention);
  }
}

}  // namespace sru::testing

#endif  // SRU_KERNELS_TESTING_SYSTEM_PROGRAMS_H_
