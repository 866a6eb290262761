// A reader, a translator and a language model with random weights: the parts of the paper's
// systems, in any size, for tests and benchmarks of backends.
#ifndef SRU_KERNELS_TESTING_RANDOM_SYSTEMS_H_
#define SRU_KERNELS_TESTING_RANDOM_SYSTEMS_H_

#include <algorithm>

#include "kernels/program.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/system_programs.h"

namespace sru::testing {

struct ReaderSizes {
  int vocabulary_size = 50;
  int width = 8;  // of embeddings
  int hidden_size = 8;
  int layers = 1;
};

// Each passage looks at the question that a map names (AddReaderSystem()).
class RandomReader : public RandomProgram {
 public:
  explicit RandomReader(const ReaderSizes& sizes = {}, unsigned seed = 1) : RandomProgram(seed) {
    ReaderShape shape;
    shape.vocabulary = sizes.vocabulary_size;
    shape.embedding = sizes.width;
    shape.features = 0;
    shape.hidden = sizes.hidden_size;
    shape.layers = sizes.layers;
    AddReaderSystem(this, shape);
  }
  enum Inputs { kQuestionOf, kPassageIds, kQuestionIds };
  enum Outputs { kStart, kEnd };
};

struct TranslatorSizes {
  int vocabulary_size = 30;
  int width = 8;
  int heads = 2;
  int hidden_size = 8;  // of each SRU
  int layers = 1;       // of encoder and decoder
  int max_candidates = 12;
};

// Sentences are encoded on one axis, and hypotheses continue on the other one, in slots that are
// copies of the sentences' (AddTranslatorSystem()).
class RandomTranslator : public RandomProgram {
 public:
  explicit RandomTranslator(const TranslatorSizes& sizes = {}, unsigned seed = 1)
      : RandomProgram(seed) {
    TranslatorShape shape;
    shape.source_vocabulary = shape.target_vocabulary = sizes.vocabulary_size;
    shape.width = sizes.width;
    shape.heads = sizes.heads;
    shape.hidden = sizes.hidden_size;
    shape.encoder_layers = shape.decoder_layers = sizes.layers;
    shape.has_skip_term = true;
    shape.max_candidates = std::min(sizes.max_candidates, sizes.vocabulary_size);
    AddTranslatorSystem(this, shape);
  }
  enum Inputs { kSourceIds, kTargetIds, kTargets, kCounts };
  enum Outputs { kEncoded, kLogProb, kCandidates, kAlignment };

  kernels::AxisId source = 0, target = 1;
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
