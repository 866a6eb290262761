#include "models/translator_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/config.h"
#include "models/object_reader.h"
#include "nlohmann/json.hpp"

namespace sru::models {
namespace {

using nlohmann::json;

constexpr char kKey[] = "translator";

// The ids and sizes of both vocabularies.
void ReadVocabularies(ObjectReader& reader, TranslatorConfig* config) {
  reader.Boolean("shared_embeddings", &config->shared_embeddings);
  reader.Integer("source_vocabulary", 1, kMaxVocabulary, &config->source_vocabulary);
  reader.Integer("target_vocabulary", 1, kMaxVocabulary, &config->target_vocabulary);
  if (config->shared_embeddings && config->target_vocabulary != config->source_vocabulary) {
    reader.Fail("target_vocabulary",
                absl::StrCat(config->source_vocabulary,
                             " as source_vocabulary, since shared_embeddings is true"),
                config->target_vocabulary);
  }
  const int last = std::max(config->target_vocabulary, 1) - 1;
  reader.Integer("pad_id", 0, last, &config->pad_id);
  reader.Integer("unk_id", 0, last, &config->unk_id);
  reader.Integer("bos_id", 0, last, &config->bos_id);
  reader.Integer("eos_id", 0, last, &config->eos_id);
}

void ReadSearch(ObjectReader& reader, TranslatorConfig* config) {
  SearchOptions& search = config->search;
  reader.Integer("max_length", 1, std::max(config->max_positions, 1), &search.max_length);
  reader.Integer("beam_size", 1, kMaxBeam, &search.beam_size);
  reader.Choice<LengthPenaltyName>("length_penalty", &search.length_penalty);
  reader.Number("alpha", absl::StrCat("a number from 0 to ", kMaxLengthPenaltyAlpha), 0,
                kMaxLengthPenaltyAlpha, &search.alpha);
}

// The value of the key.
absl::StatusOr<TranslatorConfig> ReadTranslatorConfig(const json& object,
                                                      const std::string& source) {
  TranslatorConfig config;
  ObjectReader reader(object, source, kKey);
  reader.Integer("d_model", 1, kMaxWidth, &config.d_model);
  reader.Integer("heads", 1, std::max(config.d_model, 1), &config.heads);
  if (config.heads > 0 && config.d_model % config.heads != 0) {
    reader.Fail("heads", absl::StrCat("a divisor of d_model ", config.d_model), config.heads);
  }
  reader.Integer("d_sru", 1, kMaxWidth, &config.d_sru);
  reader.Integer("encoder_layers", 1, kMaxLayers, &config.encoder_layers);
  reader.Integer("decoder_layers", 1, kMaxLayers, &config.decoder_layers);
  reader.Boolean("bidirectional_encoder", &config.bidirectional_encoder);
  if (config.bidirectional_encoder && config.d_sru % 2 != 0) {
    reader.Fail("d_sru", "an even number beside bidirectional_encoder", config.d_sru);
  }
  reader.Integer("max_positions", 1, kMaxPositions, &config.max_positions);
  ReadVocabularies(reader, &config);
  ReadSearch(reader, &config);
  reader.OptionalString("source_language", &config.source_language);
  reader.OptionalString("target_language", &config.target_language);
  SRU_RETURN_UNLESS_OK(reader.Finish());
  return config;
}

}  // namespace

absl::Status ReadTranslatorKeys(ObjectReader& root, ModelConfig* config) {
  RefuseLabels(root, config->task);
  const json* translator = root.Required(kKey, "an object beside task \"translator\"");
  if (translator == nullptr) return absl::OkStatus();
  SRU_ASSIGN_OR_RETURN(config->translator, ReadTranslatorConfig(*translator, root.source()));
  config->has_embedding = true;
  config->embedding.vocabulary_size = config->translator.source_vocabulary;
  config->has_tokenizer = root.Has("preprocessing");
  if (!config->has_tokenizer) return absl::OkStatus();
  const json& preprocessing = root.object()["preprocessing"];
  SRU_RETURN_UNLESS_OK(ReadTokenizer(preprocessing, root.source(), &config->tokenizer));
  if (config->tokenizer.type != TokenizerType::kSentencePiece) {
    root.Fail("preprocessing.type", "\"sentencepiece\" beside task \"translator\"",
              preprocessing["type"]);
  }
  // One file has the pieces of both sides.
  if (config->translator.target_vocabulary != config->translator.source_vocabulary) {
    root.Fail("translator.target_vocabulary",
              absl::StrCat(config->translator.source_vocabulary,
                           " as translator.source_vocabulary beside 'preprocessing'"),
              config->translator.target_vocabulary);
  }
  return absl::OkStatus();
}

}  // namespace sru::models
