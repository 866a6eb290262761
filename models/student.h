// A student of Marian ("From Research to Production and Back: Ludicrously Fast Neural Machine
// Translation", Kim et al., WNGT 2019), as Firefox Translations and Bergamot publish it
// (models/marian), as a program with the parts of models/translator.h: a Transformer encoder with a
// decoder of SSRUs. With LN for layer norm and MHA(q, k, v) for multi-head attention between four
// linear maps:
//
//   encoder   x = sqrt(d) E[source_t] + P[t];  each layer:
//             x = LN(x + MHA(x, x, x));  x = LN(x + W2 relu(W1 x + b1) + b2)
//   decoder   x = sqrt(d) E'[target_t] + P[t], E'[-1] = 0;  each layer:
//             f = sigmoid(Wf x + bf);  c = f c' + (1 - f) W x;  x = LN(x + relu(c));
//             x = LN(x + MHA(x, m, m)), m being the encoder's x;
//             x = LN(x + W2 relu(W1 x + b1) + b2)
//   output    log p_t = log softmax(E' x + b) over the sentence's shortlist, or the vocabulary
//
// A hypothesis begins with id -1, without BOS, and keeps c of each decoder layer. </s> ends a
// source.
#ifndef SRU_MODELS_STUDENT_H_
#define SRU_MODELS_STUDENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "models/config.h"
#include "models/files/file.h"
#include "models/marian/options.h"
#include "models/marian/published_files.h"
#include "models/text/sentencepiece_tokenizer.h"
#include "models/translator.h"

namespace sru::models {

// What a folder's files say, before the weights are read.
struct Student {
  FilePath directory = FilePath("");
  PublishedFiles files;
  MarianOptions options;
  MarianSearch search;
  ModelConfig config;       // of a translator, with TranslatorConfig::student
  int64_t num_weights = 0;  // in the file of weights

  FilePath weights() const { return directory / files.weights; }
};

// The files of a student in a folder. Nothing if there is none: with a model.safetensors it is
// another model.
absl::StatusOr<std::optional<PublishedFiles>> FindStudent(const FilePath& directory);

// Reads the options and configurations in a folder. Returns nothing if there is no student. An
// optional config.json sets languages and the search. Errors name the file, the key or tensor, what
// was expected and what was found.
absl::StatusOr<std::optional<Student>> OpenStudent(const FilePath& directory);

// The files of a student in memory, as a backend takes them.
struct LoadedStudent {
  std::unique_ptr<const SentencePieceTokenizer> source;
  std::unique_ptr<const SentencePieceTokenizer> target;  // null: as the source's
  Translator translator;
};

// Reads the files. A tensor that the model does not use is an error.
absl::StatusOr<LoadedStudent> LoadStudent(const Student& student);

kernels::ModelSizes StudentSizes(const TranslatorConfig& config);

}  // namespace sru::models

#endif  // SRU_MODELS_STUDENT_H_
