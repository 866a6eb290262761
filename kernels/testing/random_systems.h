// A reader, a translator and a language model with random weights: the parts of the paper's
// systems, in any size, for tests and benchmarks of backends.
#ifndef SRU_KERNELS_TESTING_RANDOM_SYSTEMS_H_
#define SRU_KERNELS_TESTING_RANDOM_SYSTEMS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/program.h"
#include "kernels/testing/random_program.h"

namespace sru::testing {

struct ReaderSizes {
  int vocabulary_size = 50;
  int width = 8;  // of embeddings
  int hidden_size = 8;
  int layers = 1;
};

// Passages and questions meet by a map: an aligned question for each passage token, a stack on either
// side, and the product of each token with its question's vector.
class RandomReader : public RandomProgram {
 public:
  explicit RandomReader(const ReaderSizes& sizes = {}, unsigned seed = 1) : RandomProgram(seed) {
    passage = program.AddAxis("passage");
    question = program.AddAxis("question");
    questions = program.AddSequenceAxis("questions", question);
    const int words = sizes.vocabulary_size;
    const kernels::ValueId x =
        Embed(program.AddIds("passage_ids", passage, 0, words), words, sizes.width);
    const kernels::ValueId q =
        Embed(program.AddIds("question_ids", question, 0, words), words, sizes.width);
    const kernels::InputId map = program.AddMap("question_of", passage, question);
    kernels::ops::Attend align;
    align.q = Linear(x, sizes.width, /*bias=*/true, /*relu=*/true);
    align.keys = Linear(q, sizes.width, true, true);
    align.values = q;
    align.map = map;
    StackOptions options;
    options.vocabulary_size = 0;
    options.num_layers = sizes.layers;
    options.hidden_size = sizes.hidden_size;
    options.input_size = 2 * sizes.width;
    const kernels::ValueId d = Stack(Concat({x, Attend(align, sizes.width)}), options);
    options.input_size = sizes.width;
    const kernels::ValueId h = Stack(q, options);
    const kernels::ValueId v = WeightedPool(h, questions, Linear(h, 1));
    Output(RowDot(d, Linear(v, width(d)), map), "start");
    Output(RowDot(d, Linear(v, width(d)), map), "end");
  }
  enum Inputs { kPassageIds, kQuestionIds, kQuestionOf };
  enum Outputs { kStart, kEnd };

  kernels::AxisId passage, question, questions;
};

struct TranslatorSizes {
  int vocabulary_size = 30;
  int width = 8;
  int heads = 2;
  int hidden_size = 8;  // of each SRU
  int layers = 1;       // of encoder and decoder
  int max_candidates = 12;
};

// Sentences are encoded on one axis, which adds keys and values of attention to their slots; hypotheses
// go on on the other one, in slots that are copies. The operations of the two axes come in turn, as those
// of no model need to.
class RandomTranslator : public RandomProgram {
 public:
  explicit RandomTranslator(const TranslatorSizes& sizes = {}, unsigned seed = 1)
      : RandomProgram(seed), sizes_(sizes) {
    source = program.AddAxis("source");
    target = program.AddAxis("target");
    const int words = sizes.vocabulary_size;
    const kernels::InputId source_ids = program.AddIds("source_ids", source, 0, words);
    const kernels::InputId target_ids = program.AddIds("target_ids", target, 0, words);
    for (int i = 0; i < sizes.layers; ++i) {
      const std::string layer = std::to_string(i);
      for (std::vector<kernels::FieldId>* fields :
           {&context_keys_, &context_values_, &keys_, &values_}) {
        const int number = static_cast<int>(program.fields.size());
        fields->push_back(
            program.AddField("field_" + std::to_string(number), sizes.width, /*grows=*/true));
      }
    }
    kernels::ValueId x = Embed(source_ids, words, sizes.width, /*positions=*/true);
    kernels::ValueId y = Embed(target_ids, words, sizes.width, /*positions=*/true, keys_[0]);
    for (int i = 0; i < sizes.layers; ++i) {
      x = EncoderLayer(x);
      y = DecoderLayer(y, i);
    }
    const kernels::ValueId encoded = Normalize(x);
    for (int i = 0; i < sizes.layers; ++i) {
      Append(Linear(encoded, sizes.width), context_keys_[i]);
      Append(Linear(encoded, sizes.width), context_values_[i]);
    }
    program.AddOutput("alignment", last_context_, kernels::OutputType::kAttention);
    Output(encoded, "encoded");
    Predict("next", Normalize(y), target, words, std::min(sizes.max_candidates, words));
  }
  enum Inputs { kSourceIds, kTargetIds, kTargets, kCounts };
  enum Outputs { kAlignment, kEncoded, kLogProb, kCandidates };

  kernels::AxisId source, target;

 private:
  kernels::ops::Attend Heads() const {
    kernels::ops::Attend op;
    op.heads = sizes_.heads;
    return op;
  }
  kernels::ValueId AddSublayer(kernels::ValueId x, kernels::ValueId y) {
    return Add(x, Linear(y, sizes_.width));
  }
  kernels::ValueId AddRecurrence(kernels::ValueId x, int directions, const std::string& state) {
    StackOptions options;
    options.input_size = sizes_.width;
    options.hidden_size = sizes_.hidden_size;
    options.directions = directions;
    options.num_layers = 1;
    options.vocabulary_size = 0;
    return AddSublayer(x, Stack(Normalize(x), options, state));
  }

  kernels::ValueId EncoderLayer(kernels::ValueId x) {
    const kernels::ValueId n = Normalize(x);
    kernels::ops::Attend op = Heads();
    op.q = Linear(n, sizes_.width);
    op.keys = Linear(n, sizes_.width);
    op.values = Linear(n, sizes_.width);
    return AddRecurrence(AddSublayer(x, Attend(op, sizes_.width)), 2, "");
  }

  kernels::ValueId DecoderLayer(kernels::ValueId y, int layer) {
    const kernels::ValueId n = Normalize(y);
    Append(Linear(n, sizes_.width), keys_[layer]);
    Append(Linear(n, sizes_.width), values_[layer]);
    kernels::ops::Attend self = Heads();
    self.q = Linear(n, sizes_.width);
    self.key_field = keys_[layer];
    self.value_field = values_[layer];
    self.causal = true;
    y = AddSublayer(y, Attend(self, sizes_.width));
    kernels::ops::Attend context = Heads();
    context.q = Linear(Normalize(y), sizes_.width);
    context.key_field = context_keys_[layer];
    context.value_field = context_values_[layer];
    last_context_ = Attend(context, sizes_.width);
    return AddRecurrence(AddSublayer(y, last_context_), 1, "c_" + std::to_string(layer));
  }

  const TranslatorSizes sizes_;
  std::vector<kernels::FieldId> context_keys_, context_values_, keys_, values_;  // [layer]
  kernels::ValueId last_context_ = kernels::kNone;
};

// The defaults are the paper's model of 12 layers over bytes.
struct LanguageModelSizes {
  int vocabulary_size = 256;
  int input_size = 256;
  int hidden_size = 2048;
  int layers = 12;
  int projection_size = 512;
};

// Takes tokens of each sequence and picks the next one.
class RandomLanguageModel : public RandomProgram {
 public:
  explicit RandomLanguageModel(const LanguageModelSizes& sizes = {}, unsigned seed = 1)
      : RandomProgram(seed) {
    tokens = program.AddAxis("tokens");
    const kernels::AxisId sequences = program.AddSequenceAxis("sequences", tokens);
    StackOptions options;
    options.vocabulary_size = sizes.vocabulary_size;
    options.input_size = sizes.input_size;
    options.hidden_size = sizes.hidden_size;
    options.num_layers = sizes.layers;
    options.directions = 1;
    options.projection_size = sizes.projection_size;
    options.alpha = 1.0f;
    const kernels::InputId ids = program.AddIds("ids", tokens, 0, sizes.vocabulary_size);
    Pick("next", Last(StackOfIds(ids, options, "c"), sequences), sequences, sizes.vocabulary_size,
         /*max_candidates=*/1);
  }
  enum Inputs { kIds, kTargets, kCounts, kSampling, kAdjustments };
  enum Outputs { kLogProb, kCandidates, kPicked };

  kernels::AxisId tokens;
};

}  // namespace sru::testing

#endif  // SRU_KERNELS_TESTING_RANDOM_SYSTEMS_H_
