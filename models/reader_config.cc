#include "models/reader_config.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/enum_names.h"
#include "models/config.h"
#include "models/object_reader.h"
#include "nlohmann/json.hpp"

namespace sru::models {
namespace {

using nlohmann::json;

void ReadFeatures(ObjectReader& reader, std::vector<ReaderFeature>* features) {
  if (reader.Required("features", "an array") == nullptr) return;
  const std::string expected =
      absl::StrCat("an array of ", kernels::ListNames<ReaderFeatureName>(0, "\""),
                   ", in this order and each at most once");
  reader.Array("features", expected, 0, std::numeric_limits<size_t>::max(), [&](const json& name) {
    ReaderFeature feature;
    if (!name.is_string() ||
        !kernels::ParseNamed<ReaderFeatureName>(name.get_ref<const std::string&>(), &feature) ||
        (!features->empty() && feature <= features->back())) {
      return false;
    }
    features->push_back(feature);
    return true;
  });
}

// An embedding of tags, of which both keys are there or none.
void ReadTags(const std::string& name, ObjectReader& reader, int* size, int* dim) {
  const std::string size_key = name + "_size";
  const std::string dim_key = name + "_dim";
  if (!reader.Has(size_key) && !reader.Has(dim_key)) return;
  reader.Integer(size_key, 1, ReaderConfig::kMaxTags, size);
  reader.Integer(dim_key, 1, kMaxWidth, dim);
}

// What the stack's keys must be.
absl::Status CheckEncoder(const EncoderConfig& encoder, const ReaderConfig& reader,
                          const std::string& source) {
  const auto error = [&](const char* key, const std::string& expected, const auto& found) {
    return InvalidArgument(source, ": key 'encoder.", key, "': expected ", expected,
                           " beside task \"reader\", found ", found);
  };
  if (!encoder.bidirectional) return error("bidirectional", "true", "false");
  if (encoder.proj_input_to_hidden_first) {
    return error("proj_input_to_hidden_first", "false", "true");
  }
  if (const int size = reader.passage_input_size(); encoder.input_size != size) {
    return error("input_size",
                 absl::StrCat(size, " (embedding_dim", reader.use_qemb ? " twice" : "",
                              ", the number of features, pos_dim and ner_dim)"),
                 encoder.input_size);
  }
  return absl::OkStatus();
}

// The value of the key "reader", which is checked with the encoder.
absl::Status ReadReader(const json& object, const std::string& source, ModelConfig* config) {
  ReaderConfig& read = config->reader;
  ObjectReader reader(object, source, "reader");
  reader.Integer("embedding_dim", 1, kMaxWidth, &read.embedding_dim);
  reader.Integer("question_layers", 1, kMaxLayers, &read.question_layers);
  ReadFeatures(reader, &read.features);
  reader.Boolean("use_qemb", &read.use_qemb);
  ReadTags("pos", reader, &read.pos_size, &read.pos_dim);
  ReadTags("ner", reader, &read.ner_size, &read.ner_dim);
  reader.OptionalBoolean("concat_rnn_layers", &read.concat_rnn_layers);
  reader.Choice<QuestionMergeName>("question_merge", &read.question_merge);
  reader.Integer("max_len", 1, ReaderConfig::kMaxAnswerTokens, &read.max_len);
  SRU_RETURN_UNLESS_OK(reader.Finish());
  return CheckEncoder(config->encoder, read, source);
}

}  // namespace

absl::Status ReadReaderKeys(ObjectReader& root, ModelConfig* config) {
  RefuseLabels(root, config->task);
  SRU_RETURN_UNLESS_OK(ReadEncoderKey(root, config));
  SRU_RETURN_UNLESS_OK(ReadTokens(/*takes_text=*/false, root, config));
  if (config->has_tokenizer && config->tokenizer.type != TokenizerType::kUnicodeWords) {
    root.Fail("preprocessing.type", "\"unicode_words\" beside task \"reader\"",
              TokenizerTypeName(config->tokenizer.type));
  }
  const json* object = root.Required("reader", "an object beside task \"reader\"");
  return object == nullptr ? absl::OkStatus() : ReadReader(*object, root.source(), config);
}

}  // namespace sru::models
