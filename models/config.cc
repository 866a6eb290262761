#include "models/config.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/files/file.h"
#include "models/files/json.h"
#include "models/object_reader.h"
#include "models/task_parts.h"
#include "nlohmann/json.hpp"

namespace sru::models {
namespace {

using nlohmann::json;

// {"encoder": {"key": ..}} has two levels; more leaves room to say what is wrong rather than that
// it is deep.
constexpr int kMaxConfigDepth = 8;
constexpr double kMaxHighwayBias = 1e6;

absl::StatusOr<EncoderConfig> ReadEncoder(const json& object, const std::string& source) {
  EncoderConfig encoder;
  ObjectReader reader(object, source, "encoder");
  reader.Integer("input_size", 1, kMaxWidth, &encoder.input_size);
  reader.Integer("hidden_size", 1, kMaxWidth, &encoder.hidden_size);
  reader.Integer("num_layers", 1, kMaxLayers, &encoder.num_layers);
  reader.OptionalBoolean("bidirectional", &encoder.bidirectional);
  if (reader.Has("projection_size")) {
    reader.Integer("projection_size", 0, kMaxWidth, &encoder.projection_size);
  }
  reader.OptionalBoolean("use_tanh", &encoder.use_tanh);
  reader.OptionalBoolean("layer_norm", &encoder.layer_norm);
  reader.OptionalBoolean("normalize_after", &encoder.normalize_after);
  reader.OptionalBoolean("has_skip_term", &encoder.has_skip_term);
  reader.OptionalBoolean("rescale", &encoder.rescale);
  reader.OptionalBoolean("v1", &encoder.v1);
  reader.OptionalBoolean("proj_input_to_hidden_first", &encoder.proj_input_to_hidden_first);
  if (reader.Has("highway_bias")) {
    double bias = 0;  // of training; inference needs only the tensors
    reader.Number("highway_bias", "a number from -1e6 to 1e6", -kMaxHighwayBias, kMaxHighwayBias,
                  &bias);
  }
  SRU_RETURN_UNLESS_OK(reader.Finish());
  return encoder;
}

// The tokens of a model without a tokenizer are ids.
absl::Status ReadEmbedding(const json& object, const std::string& source, ModelConfig* config) {
  ObjectReader reader(object, source, "embedding");
  EmbeddingConfig& embedding = config->embedding;
  reader.Integer("vocabulary_size", 1, kMaxVocabulary, &embedding.vocabulary_size);
  if (!config->has_tokenizer) return reader.Finish();
  const TokenizerInfo tokenizer = Describe(config->tokenizer.type);
  const bool has_oov = reader.Has("oov_id");
  if (tokenizer.oov == OovUse::kNone && has_oov) {
    reader.Fail("oov_id",
                absl::StrCat("no such key beside preprocessing.type \"", tokenizer.name, "\""),
                object["oov_id"]);
  } else if (tokenizer.oov == OovUse::kRequired || has_oov) {
    reader.Integer("oov_id", 0, std::max(embedding.vocabulary_size, 1) - 1, &embedding.oov_id);
  }
  return reader.Finish();
}

void ReadByteVocabulary(ObjectReader& reader, std::vector<uint8_t>* bytes) {
  reader.Array("vocabulary", "an array of 1 to 256 integers from 0 to 255, ascending", 1, 256,
               [bytes](const json& element) {
                 const std::optional<int64_t> byte = AsInt64(element);
                 const int64_t least = bytes->empty() ? 0 : bytes->back() + 1;
                 if (!byte.has_value() || *byte < least || *byte > 255) return false;
                 bytes->push_back(static_cast<uint8_t>(*byte));
                 return true;
               });
}

// What both keys say together.
absl::Status CheckVocabularySize(const ModelConfig& config, const std::string& source) {
  const size_t bytes = config.tokenizer.byte_vocabulary.size();
  const auto size = static_cast<size_t>(config.embedding.vocabulary_size);
  if (config.tokenizer.type != TokenizerType::kBytes || bytes == size) return absl::OkStatus();
  return InvalidArgument(source, ": key 'preprocessing.vocabulary': expected ", size,
                         " bytes (embedding.vocabulary_size), found ", bytes);
}

void ReadLabels(ObjectReader& reader, std::vector<std::string>* labels) {
  static_assert(kMaxLabels == 65536);
  std::set<std::string_view> seen;
  reader.Array("labels", "an array of 1 to 65536 different strings that are not empty", 1,
               kMaxLabels, [&](const json& label) {
                 if (!label.is_string()) return false;
                 const auto& text = label.get_ref<const std::string&>();
                 labels->push_back(text);
                 return !text.empty() && seen.insert(text).second;
               });
}

std::string BesideTask(Task task, const char* expected) {
  return absl::StrCat(expected, " beside task \"", TaskName(task), "\"");
}

// Reads the root's keys `pooling`, `labels` and `tied`, which depend on each other and on the task.
void ReadHead(ObjectReader& reader, ModelConfig* config) {
  const json& root = reader.object();
  const Task task = config->task;
  const TaskInfo info = Describe(task);
  if (reader.Has("pooling") || info.pools) {
    reader.Choice<kernels::PoolingName>("pooling", &config->pooling);
  }
  if (info.labels) {
    ReadLabels(reader, &config->labels);
    if (info.pools && config->pooling == kernels::Pooling::kNone) {
      reader.Fail("pooling",
                  absl::StrCat(kernels::ListNames<kernels::PoolingName>(1, "\""),
                               " for a model with labels"),
                  "none");
    }
  } else {
    RefuseLabels(reader, task);
  }
  if (reader.Has("tied")) {
    if (info.predicts) {
      reader.Boolean("tied", &config->tied);
    } else {
      reader.Fail("tied", BesideTask(task, "no such key"), root["tied"]);
    }
  }
  if (!info.pools && config->pooling != kernels::Pooling::kNone) {
    reader.Fail("pooling", BesideTask(task, "\"none\", or no such key,"), root["pooling"]);
  }
  if (!info.predicts) return;

  reader.Required("embedding", "an object beside task \"language_model\"");
  const EncoderConfig& encoder = config->encoder;
  // Backward, a token's vector would know the tokens that it is to predict.
  if (encoder.bidirectional) reader.Fail("encoder.bidirectional", BesideTask(task, "false"), true);
  if (config->tied && encoder.input_size != encoder.output_size()) {
    reader.Fail("tied",
                absl::StrCat("false, since encoder.input_size ", encoder.input_size,
                             " is not encoder.hidden_size ", encoder.output_size()),
                true);
  }
}

}  // namespace

absl::Status ReadEncoderKey(ObjectReader& root, ModelConfig* config) {
  const json* encoder = root.Required("encoder", "an object");
  if (encoder == nullptr) return absl::OkStatus();
  SRU_ASSIGN_OR_RETURN(config->encoder, ReadEncoder(*encoder, root.source()));
  return absl::OkStatus();
}

absl::Status ReadTokenizer(const json& object, const std::string& source, TokenizerConfig* config) {
  ObjectReader reader(object, source, "preprocessing");
  reader.Choice<TokenizerTypeName>("type", &config->type);
  if (Describe(config->type).has_lowercase) reader.Boolean("lowercase", &config->lowercase);
  if (config->type == TokenizerType::kBytes) ReadByteVocabulary(reader, &config->byte_vocabulary);
  if (reader.Has("unknown")) reader.Choice<UnknownUseName>("unknown", &config->unknown);
  return reader.Finish();
}

absl::Status ReadTokens(bool takes_text, ObjectReader& root, ModelConfig* config) {
  const std::string& source = root.source();
  config->has_tokenizer = takes_text || root.Has("preprocessing");
  config->has_embedding = true;
  const json* embedding = root.Required(
      "embedding", config->has_tokenizer ? "an object beside 'preprocessing'" : "an object");
  absl::Status tokenizer;
  if (config->has_tokenizer) {
    const json* preprocessing = root.Required("preprocessing", "an object beside 'embedding'");
    if (embedding == nullptr || preprocessing == nullptr) return absl::OkStatus();
    tokenizer = ReadTokenizer(*preprocessing, source, &config->tokenizer);
  }
  if (embedding == nullptr) return absl::OkStatus();
  absl::Status status = ReadEmbedding(*embedding, source, config);
  status.Update(tokenizer);
  if (status.ok()) status = CheckVocabularySize(*config, source);
  return status;
}

void RefuseLabels(ObjectReader& root, Task task) {
  if (!root.Has("labels")) return;
  root.Fail("labels", BesideTask(task, "no such key"), root.object()["labels"]);
}

absl::Status ReadStackKeys(ObjectReader& root, ModelConfig* config) {
  SRU_RETURN_UNLESS_OK(ReadEncoderKey(root, config));
  if (root.Has("embedding") || root.Has("preprocessing")) {
    SRU_RETURN_UNLESS_OK(ReadTokens(/*takes_text=*/true, root, config));
  }
  ReadHead(root, config);
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& source) {
  SRU_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, {kMaxConfigDepth}, source));
  ModelConfig config;
  ObjectReader reader(root, source, "");

  int format_version = 0;
  reader.Integer("format_version", kFormatVersion, kFormatVersion, &format_version);
  reader.OptionalString("description", &config.description);
  config.task = reader.Has("labels") ? Task::kClassifier : Task::kEncoder;
  if (reader.Has("task")) reader.Choice<TaskName>("task", &config.task);
  SRU_RETURN_UNLESS_OK(PartsOf(config.task).read(reader, &config));
  SRU_RETURN_UNLESS_OK(reader.Finish());
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const FilePath& path) {
  SRU_ASSIGN_OR_RETURN(FileContents file, FileContents::Read(path, kMaxConfigBytes));
  return ParseModelConfig(file.bytes(), path.path());
}

}  // namespace sru::models
