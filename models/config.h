// The description of a model, config.json (FORMAT.md). Reading is strict: an unknown key, a missing
// key, a wrong type, a value out of range and a duplicate key are errors that name the file, the
// key, what was expected and what was found.
#ifndef SRU_MODELS_CONFIG_H_
#define SRU_MODELS_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/enum_names.h"
#include "kernels/stack_spec.h"
#include "models/files/file.h"
#include "models/reader_config.h"
#include "models/text/tokenizer.h"
#include "models/translator_config.h"
#include "nlohmann/json_fwd.hpp"

namespace sru::models {

// The format that this code reads: config.json's "format_version".
inline constexpr int kFormatVersion = 1;

// Upper limits, far above any known model, so that products of sizes cannot overflow 64 bits.
inline constexpr int kMaxWidth = 16384;           // input_size, hidden_size, projection_size
inline constexpr int kMaxLayers = 256;            // num_layers
inline constexpr int kMaxVocabulary = 1 << 24;    // vocabulary_size
inline constexpr int kMaxLabels = 65536;          // labels
inline constexpr int kMaxConfigBytes = 16 << 20;  // config.json

// The constructor's arguments of the published package's SRU that matter for inference, under its
// names and with its defaults (input_size, hidden_size and num_layers must be given).
struct EncoderConfig {
  int input_size = 0;   // features per token
  int hidden_size = 0;  // per direction
  int num_layers = 0;
  bool bidirectional = false;
  // Inner size of the low-rank factorisation; 0 = none. A layer that it would not make smaller
  // stays unfactorised, see layer_projection_size().
  int projection_size = 0;
  bool use_tanh = false;
  bool layer_norm = false;
  bool normalize_after = false;  // layer norm after the recurrence; read only with layer_norm
  bool has_skip_term = true;
  bool rescale = false;  // the highway term is scaled by the tensor scale_x
  bool v1 = false;
  bool proj_input_to_hidden_first = false;

  int directions() const { return bidirectional ? 2 : 1; }
  int output_size() const { return hidden_size * directions(); }
  // Whether there is a projection before the first layer.
  bool has_input_to_hidden() const {
    return proj_input_to_hidden_first && input_size != output_size();
  }
  int layer_input_size(int layer) const {
    return layer == 0 && !has_input_to_hidden() ? input_size : output_size();
  }
  // As the package decides: only a projection smaller than both sides of the product applies.
  int layer_projection_size(int layer) const {
    return projection_size < layer_input_size(layer) && projection_size < output_size()
               ? projection_size
               : 0;
  }
};

struct EmbeddingConfig {
  int vocabulary_size = 0;  // rows of the embedding, number of token ids
  // Of a word or character that the vocabulary does not have; may be kNotFound.
  int oov_id = Tokenizer::kNotFound;
};

// The key "preprocessing".
struct TokenizerConfig {
  TokenizerType type = TokenizerType::kWhitespace;
  bool lowercase = false;                // look up in lower case, with TokenizerInfo::has_lowercase
  std::vector<uint8_t> byte_vocabulary;  // kBytes: the bytes that have an id, ascending
  UnknownUse unknown = UnknownUse::kDefault;  // unless a call says otherwise
};

// What a model is for, which decides what its parts are and which calls it answers.
enum class Task { kClassifier, kEncoder, kLanguageModel, kReader, kTranslator, kTagger };

struct TaskInfo {
  const char* name = "";  // in config.json
  bool pools = false;     // whether it has token vectors made one: with the key `pooling`
  bool labels = false;    // whether its outputs have names: with the key `labels`
  // Whether it predicts each token from those before it: forward only, with an embedding, which may
  // be the output layer's weight, too (the key `tied`).
  bool predicts = false;
};

constexpr TaskInfo Describe(Task task) {
  switch (task) {
    case Task::kClassifier:
      return {"classifier", /*pools=*/true, /*labels=*/true};
    case Task::kEncoder:
      return {"encoder", /*pools=*/true};
    case Task::kLanguageModel:
      return {"language_model", /*pools=*/false, /*labels=*/false, /*predicts=*/true};
    case Task::kReader:
      return {"reader"};
    case Task::kTranslator:
      return {"translator"};
    case Task::kTagger:
      return {"tagger", /*pools=*/false, /*labels=*/true};
  }
  return {};
}
constexpr const char* TaskName(Task task) { return Describe(task).name; }
inline constexpr auto kAllTasks = kernels::AllNamed<TaskName>();

struct ModelConfig {
  std::string description;
  Task task = Task::kEncoder;
  // A reader's is the stack over passages. Unused by a translator.
  EncoderConfig encoder;
  // False for a model that takes features only: `embedding` is unused then. The other tasks have
  // one; a translator's is that of the source.
  bool has_embedding = false;
  EmbeddingConfig embedding;
  // False for a model that takes no text: `tokenizer` is unused then. A classifier, an encoder and
  // a language model with an embedding have one.
  bool has_tokenizer = false;
  TokenizerConfig tokenizer;
  kernels::Pooling pooling = kernels::Pooling::kNone;
  // Names of the outputs, unique; empty where the task has none.
  std::vector<std::string> labels;
  // kLanguageModel: the output layer's weight is the embedding.
  bool tied = false;
  ReaderConfig reader;          // kReader
  TranslatorConfig translator;  // kTranslator
};

// Parses the contents of a config.json. `source` names it in errors. kInvalidArgument.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json, const std::string& source);

// Reads and parses a file. kNotFound when there is none, else as ParseModelConfig().
absl::StatusOr<ModelConfig> ReadModelConfig(const FilePath& path);

// Read keys of a config.json for the tasks (task_parts.h). Errors name the key, what was expected
// and what was found; those that `root` remembers are not returned. All keys of a model whose
// layers are one stack:
absl::Status ReadStackKeys(ObjectReader& root, ModelConfig* config);
// "encoder";
absl::Status ReadEncoderKey(ObjectReader& root, ModelConfig* config);
// "embedding" and "preprocessing", or an embedding alone where a model need not take text;
absl::Status ReadTokens(bool takes_text, ObjectReader& root, ModelConfig* config);
// the value of "preprocessing".
absl::Status ReadTokenizer(const nlohmann::json& object, const std::string& source,
                           TokenizerConfig* config);
// Refuses "labels" beside the task.
void RefuseLabels(ObjectReader& root, Task task);

}  // namespace sru::models

#endif  // SRU_MODELS_CONFIG_H_
