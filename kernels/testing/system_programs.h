// Programs in the shapes of the paper's reader (section 4.2) and translator (section 4.3), with random
// weights, for tests and benchmarks of backends.
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
  const auto original = std::get<kernels::ops::Linear>(p->program.operations[like]);
  const kernels::ValueId y = p->Linear(x, original.width, !original.bias.empty(), original.relu);
  auto& op = std::get<kernels::ops::Linear>(p->program.operations[y]);
  op.weight = original.weight;
  op.bias = original.bias;
  return y;
}

// Another Embed with the table of the one that made `like`.
inline kernels::ValueId EmbedLike(RandomProgram* p, kernels::ValueId like, kernels::InputId ids) {
  const auto original = std::get<kernels::ops::Embed>(p->program.operations[like]);
  auto op = original;
  op.ids = ids;
  return p->Apply(op, original.width);
}

struct ReaderShape {
  int vocabulary = 50;
  int embedding = 16;
  int features = 3;  // 0: none
  int tags = 0;      // of a further embedding of width 4; 0: none
  int hidden = 16;   // of each direction
  int layers = 1;
  bool aligned = true;  // passages look at their question
  bool concat_layers =
      false;  // the output of every layer, side by side, in place of the last one's
  bool self_attention = true;  // the question's rows are weighted, else their mean is taken
};

struct ReaderIds {
  kernels::AxisId passage = kernels::kNone;
  kernels::AxisId question = kernels::kNone;
  kernels::InputId question_of = kernels::kNone;
};

// Stacks of bidirectional layers on x, each an operation of its own where all of their outputs are wanted.
inline kernels::ValueId ReaderStack(RandomProgram* p, const ReaderShape& shape,
                                    kernels::ValueId x) {
  StackOptions options;
  options.vocabulary_size = 0;
  options.hidden_size = shape.hidden;
  options.input_size = p->width(x);
  options.num_layers = shape.layers;
  if (!shape.concat_layers) return p->Stack(x, options);
  options.num_layers = 1;
  std::vector<kernels::ValueId> outputs;
  for (int i = 0; i < shape.layers; ++i) {
    x = p->Stack(x, options);
    options.input_size = p->width(x);
    outputs.push_back(x);
  }
  return p->Concat(outputs);
}

// Passages look at their question, both go through bidirectional layers, and the question becomes one
// vector, with which each row of the passage is multiplied. Outputs: start, end.
inline ReaderIds AddReaderSystem(RandomProgram* p, const ReaderShape& shape) {
  ReaderIds ids;
  ids.passage = p->program.AddAxis("passage");
  ids.question = p->program.AddAxis("question");
  const kernels::AxisId questions = p->program.AddSequenceAxis("questions", ids.question);
  ids.question_of = p->program.AddMap("question_of", ids.passage, ids.question);
  const kernels::ValueId x =
      p->Embed(p->program.AddIds("passage_ids", ids.passage, 0, shape.vocabulary), shape.vocabulary,
               shape.embedding);
  const kernels::ValueId q =
      EmbedLike(p, x, p->program.AddIds("question_ids", ids.question, 0, shape.vocabulary));
  std::vector<kernels::ValueId> parts = {x};
  if (shape.features > 0) parts.push_back(p->Features("features", ids.passage, shape.features));
  if (shape.aligned) {
    kernels::ops::Attend align;
    align.q = p->Linear(x, shape.embedding, true, true);
    align.keys = LinearLike(p, align.q, q);
    align.values = q;
    align.map = ids.question_of;
    parts.push_back(p->Attend(align, shape.embedding));
    std::get<kernels::ops::Attend>(p->program.operations.back()).scale = 1.0f;
  }
  if (shape.tags > 0) {
    parts.push_back(p->Embed(p->program.AddIds("tags", ids.passage, 0, shape.tags), shape.tags, 4));
  }
  const kernels::ValueId passage = ReaderStack(p, shape, p->Concat(parts));
  const kernels::ValueId question = ReaderStack(p, shape, q);
  const kernels::ValueId vector = shape.self_attention
                                      ? p->WeightedPool(question, questions, p->Linear(question, 1))
                                      : p->Pool(question, questions, kernels::Pooling::kMean);
  const int width = p->width(passage);
  p->Output(p->RowDot(passage, p->Linear(vector, width), ids.question_of), "start");
  p->Output(p->RowDot(passage, p->Linear(vector, width), ids.question_of), "end");
  return ids;
}

struct TranslatorShape {
  int source_vocabulary = 40;
  int target_vocabulary = 45;
  int width = 16;
  int heads = 4;
  int sru = 32;  // width of an SRU layer's output, of all directions together
  int encoder_layers = 1;
  int decoder_layers = 1;
  bool bidirectional = false;  // the encoder's SRU layers
  int max_candidates = 6;
};

// `source` and `target` are axes 0 and 1. Slots are on the source's axis in one run, which fills the
// context, and on the target's in later ones.
struct TranslatorIds {
  kernels::AxisId source = 0;
  kernels::AxisId target = 1;
  kernels::InputId source_ids = kernels::kNone;
  kernels::InputId target_ids = kernels::kNone;
  int encoded = 0;     // outputs
  int alignment = -1;  // -1: there is none
};

// n = Normalize(x); W SRU(n) + b is added to x.
inline kernels::ValueId AddSruLayer(RandomProgram* p, const TranslatorShape& shape,
                                    kernels::ValueId x, int directions, const std::string& state) {
  StackOptions options;
  options.vocabulary_size = 0;
  options.input_size = shape.width;
  options.hidden_size = shape.sru / directions;
  options.directions = directions;
  options.num_layers = 1;
  options.has_skip_term = false;
  return p->Add(x, p->Linear(p->Stack(p->Normalize(x, 1e-6f), options, state), shape.width));
}

// A Transformer with SRU in place of the feed-forward layers. Outputs: encoded, token_log_prob,
// token_candidates, and with `alignment` that of the last layer.
inline TranslatorIds AddTranslatorSystem(RandomProgram* p, const TranslatorShape& shape,
                                         bool alignment = true) {
  TranslatorIds ids;
  ids.source = p->program.AddAxis("source");
  ids.target = p->program.AddAxis("target");
  const int width = shape.width;
  const float scale = std::sqrt(static_cast<float>(width));
  const auto heads = [&](kernels::ValueId n) {
    kernels::ops::Attend op;
    op.heads = shape.heads;
    op.q = p->Linear(n, width);
    return op;
  };
  const auto add_attention = [&](kernels::ValueId x, const kernels::ops::Attend& op) {
    return p->Add(x, p->Linear(p->Attend(op, width), width));
  };

  ids.source_ids = p->program.AddIds("source_ids", ids.source, 0, shape.source_vocabulary);
  kernels::ValueId x =
      p->Embed(ids.source_ids, shape.source_vocabulary, width, true, kernels::kNone, scale);
  for (int i = 0; i < shape.encoder_layers; ++i) {
    const kernels::ValueId n = p->Normalize(x, 1e-6f);
    kernels::ops::Attend op = heads(n);
    op.keys = p->Linear(n, width);
    op.values = p->Linear(n, width);
    x = add_attention(x, op);
    x = AddSruLayer(p, shape, x, shape.bidirectional ? 2 : 1, "");
  }
  x = p->Normalize(x, 1e-6f);
  ids.encoded = p->Output(x, "encoded");

  ids.target_ids = p->program.AddIds("target_ids", ids.target, 0, shape.target_vocabulary);
  const kernels::ValueId embedded =
      p->Embed(ids.target_ids, shape.target_vocabulary, width, true, kernels::kNone, scale);
  kernels::ValueId y = embedded;
  kernels::ValueId attended = kernels::kNone;
  for (int i = 0; i < shape.decoder_layers; ++i) {
    const std::string layer = std::to_string(i);
    const auto add_field = [&](const std::string& name) {
      return p->program.AddField(name + layer, width, true);
    };
    kernels::ops::Attend context;
    context.key_field = add_field("context_keys");
    context.value_field = add_field("context_values");
    p->Append(p->Linear(x, width), context.key_field);
    p->Append(p->Linear(x, width), context.value_field);

    const kernels::ValueId n = p->Normalize(y, 1e-6f);
    kernels::ops::Attend own = heads(n);
    own.key_field = add_field("self_keys");
    own.value_field = add_field("self_values");
    own.causal = true;
    if (i == 0) {
      std::get<kernels::ops::Embed>(p->program.operations[embedded]).position_field = own.key_field;
    }
    p->Append(p->Linear(n, width), own.key_field);
    p->Append(p->Linear(n, width), own.value_field);
    y = add_attention(y, own);

    const kernels::ops::Attend to_source = heads(p->Normalize(y, 1e-6f));
    context.q = to_source.q;
    context.heads = to_source.heads;
    attended = p->Attend(context, width);
    y = p->Add(y, p->Linear(attended, width));
    y = AddSruLayer(p, shape, y, 1, "c" + layer);
  }
  p->Predict("token", p->Normalize(y, 1e-6f), ids.target, shape.target_vocabulary,
             shape.max_candidates);
  if (alignment && attended != kernels::kNone) {
    ids.alignment = p->program.AddOutput("alignment", attended, kernels::OutputType::kAttention);
  }
  return ids;
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

// `source`, `target` and with choices `choices` are axes 0, 1 and 2; slots as of a translator. Outputs:
// encoded, token_log_prob, token_candidates, alignment.
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
  kernels::ops::Attend attend;
  attend.heads = shape.heads;
  for (int i = 0; i < shape.encoder_layers; ++i) {
    attend.q = linear(x, width);
    attend.keys = linear(x, width);
    attend.values = linear(x, width);
    x = feed_forward(add(x, linear(p->Attend(attend, width), width)));
  }
  p->Output(x, "encoded");

  embed.ids = p->program.AddIds("target_ids", target, -1, shape.vocabulary);
  embed.zero_row = true;
  embed.position_ids = p->program.AddIds("target_positions", target, 0, kernels::kMaxPosition);
  ValueId y = p->Apply(embed, width);
  for (int i = 0; i < shape.decoder_layers; ++i) {
    const std::string layer = std::to_string(i);
    kernels::ops::Attend context;
    context.heads = shape.heads;
    context.key_field = p->program.AddField("context_keys" + layer, width, true);
    context.value_field = p->program.AddField("context_values" + layer, width, true);
    p->Append(linear(x, width), context.key_field);
    p->Append(linear(x, width), context.value_field);
    const ValueId forget = linear(y, width);
    y = add(y, p->Ssru(linear(y, width, false), forget, "c" + layer));
    context.q = linear(y, width);
    const ValueId attended = p->Attend(context, width);
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
