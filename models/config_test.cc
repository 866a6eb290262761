#include "models/config.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checked.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using nlohmann::json;
using ::sru::testing::Checked;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ConfigTest, ReadsEveryKey) {
  json root = SmallConfig();
  root["encoder"] = {{"input_size", 10},
                     {"hidden_size", 20},
                     {"num_layers", 3},
                     {"bidirectional", true},
                     {"projection_size", 6},
                     {"use_tanh", true},
                     {"layer_norm", true},
                     {"normalize_after", true},
                     {"has_skip_term", false},
                     {"rescale", true},
                     {"v1", true},
                     {"proj_input_to_hidden_first", true},
                     {"highway_bias", -3}};
  root["preprocessing"] = {{"type", "sentence_classification"}, {"lowercase", true}};
  auto config = Checked(ParseModelConfig(root.dump(), "config.json"));
  EXPECT_EQ(config->description, "a test");
  const EncoderConfig& encoder = config->encoder;
  EXPECT_EQ(encoder.input_size, 10);
  EXPECT_EQ(encoder.hidden_size, 20);
  EXPECT_EQ(encoder.num_layers, 3);
  EXPECT_TRUE(encoder.bidirectional);
  EXPECT_EQ(encoder.projection_size, 6);
  EXPECT_TRUE(encoder.use_tanh);
  EXPECT_TRUE(encoder.layer_norm);
  EXPECT_TRUE(encoder.normalize_after);
  EXPECT_FALSE(encoder.has_skip_term);
  EXPECT_TRUE(encoder.rescale);
  EXPECT_TRUE(encoder.v1);
  EXPECT_TRUE(encoder.proj_input_to_hidden_first);
  EXPECT_TRUE(config->has_embedding);
  EXPECT_TRUE(config->has_tokenizer);
  EXPECT_EQ(config->embedding.vocabulary_size, 5);
  EXPECT_EQ(config->embedding.oov_id, 1);
  EXPECT_EQ(config->tokenizer.type, TokenizerType::kSentenceClassification);
  EXPECT_TRUE(config->tokenizer.lowercase);
  EXPECT_EQ(config->pooling, kernels::Pooling::kMax);
  EXPECT_EQ(config->task, Task::kClassifier);
  EXPECT_THAT(config->labels, ElementsAre("no", "yes"));
  EXPECT_FALSE(config->tied);
}

TEST(ConfigTest, HasThePackagesDefaults) {
  json root = SmallConfig();
  root["encoder"] = {{"input_size", 4}, {"hidden_size", 3}, {"num_layers", 1}};
  const auto config = Checked(ParseModelConfig(root.dump(), "config.json"));
  const EncoderConfig& encoder = config->encoder;
  EXPECT_FALSE(encoder.bidirectional);
  EXPECT_EQ(encoder.projection_size, 0);
  EXPECT_FALSE(encoder.use_tanh);
  EXPECT_FALSE(encoder.layer_norm);
  EXPECT_FALSE(encoder.normalize_after);
  EXPECT_TRUE(encoder.has_skip_term);
  EXPECT_FALSE(encoder.rescale);
  EXPECT_FALSE(encoder.v1);
  EXPECT_FALSE(encoder.proj_input_to_hidden_first);
}

TEST(ConfigTest, EmbeddingAndLabelsAreOptional) {
  json root = SmallConfig();
  root.erase("embedding");
  root.erase("preprocessing");
  root.erase("labels");
  root.erase("description");
  root["pooling"] = "none";
  auto config = Checked(ParseModelConfig(root.dump(), "config.json"));
  EXPECT_FALSE(config->has_embedding);
  EXPECT_FALSE(config->has_tokenizer);
  EXPECT_EQ(config->task, Task::kEncoder);
  EXPECT_TRUE(config->labels.empty());
  EXPECT_EQ(config->pooling, kernels::Pooling::kNone);
}

TEST(ConfigTest, ReadsEveryTask) {
  json root = SmallConfig();
  root["task"] = "classifier";
  EXPECT_EQ(ParseModelConfig(root.dump(), "config.json")->task, Task::kClassifier);
  root.erase("labels");
  root["task"] = "encoder";
  EXPECT_EQ(ParseModelConfig(root.dump(), "config.json")->task, Task::kEncoder);

  root = SmallLanguageModelConfig();
  auto config = Checked(ParseModelConfig(root.dump(), "config.json"));
  EXPECT_EQ(config->task, Task::kLanguageModel);
  EXPECT_EQ(config->pooling, kernels::Pooling::kNone);
  EXPECT_TRUE(config->has_embedding);
  EXPECT_TRUE(config->labels.empty());
  EXPECT_FALSE(config->tied);

  root["pooling"] = "none";
  root["encoder"]["bidirectional"] = false;
  root["encoder"]["hidden_size"] = root["encoder"]["input_size"];
  root["tied"] = true;
  config = ParseModelConfig(root.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->tied);
}

TEST(ConfigTest, RefusesWhatALanguageModelCannotHave) {
  const struct {
    std::function<void(json&)> change;
    std::string message;
  } kCases[] = {
      {[](json& j) {
         j["labels"] = {"a", "b"};
       },
       "key 'labels': expected no such key beside task \"language_model\", found an array of 2"},
      {[](json& j) { j["pooling"] = "max"; },
       "key 'pooling': expected \"none\", or no such key, beside task \"language_model\", found "
       "\"max\""},
      {[](json& j) { j["pooling"] = "avg"; }, "key 'pooling': expected one of \"none\""},
      {[](json& j) { j.erase("embedding"), j.erase("preprocessing"); },
       "key 'embedding' is missing; expected an object beside task \"language_model\""},
      {[](json& j) { j["encoder"]["bidirectional"] = true; },
       "key 'encoder.bidirectional': expected false beside task \"language_model\", found true"},
      {[](json& j) { j["tied"] = true; },
       "key 'tied': expected false, since encoder.input_size 4 is not encoder.hidden_size 3, found "
       "true"},
      {[](json& j) { j["tied"] = 1; }, "key 'tied': expected true or false, found 1"},
  };
  for (const auto& c : kCases) {
    json root = SmallLanguageModelConfig();
    c.change(root);
    const absl::Status status = ParseModelConfig(root.dump(), "dir/config.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("dir/config.json: "), HasSubstr(c.message)));
  }
}

// Makes the small model one of bytes.
void SetBytes(json& root, const json& vocabulary) {
  root["embedding"].erase("oov_id");
  root["preprocessing"] = {{"type", "bytes"}, {"vocabulary", vocabulary}};
}

TEST(ConfigTest, ReadsEveryTokenizer) {
  for (const TokenizerType type : kernels::AllNamed<TokenizerTypeName>()) {
    json root = SmallConfig();
    root["preprocessing"] = {{"type", TokenizerTypeName(type)}};
    switch (type) {
      case TokenizerType::kWhitespace:
      case TokenizerType::kLowercase:
        break;
      case TokenizerType::kSentenceClassification:
      case TokenizerType::kUnicodeWords:
        root["preprocessing"]["lowercase"] = true;
        break;
      case TokenizerType::kBytes:
        SetBytes(root, {0, 10, 32, 128, 255});
        break;
      case TokenizerType::kCharacters:
      case TokenizerType::kLineWords:
      case TokenizerType::kSentencePiece:
        root["embedding"].erase("oov_id");
        break;
    }
    auto config = Checked(ParseModelConfig(root.dump(), "config.json"));
    EXPECT_EQ(config->tokenizer.type, type);
    EXPECT_EQ(config->tokenizer.lowercase, root["preprocessing"].contains("lowercase"));
    EXPECT_EQ(config->embedding.oov_id,
              root["embedding"].value("oov_id", int{Tokenizer::kNotFound}));
    if (type == TokenizerType::kBytes) {
      EXPECT_THAT(config->tokenizer.byte_vocabulary, ElementsAre(0, 10, 32, 128, 255));
    }
  }
  json root = SmallConfig();
  root["preprocessing"] = {{"type", "characters"}};
  EXPECT_EQ(ParseModelConfig(root.dump(), "config.json")->embedding.oov_id, 1);
}

TEST(ConfigTest, SaysWhatBecomesOfUnknownTokens) {
  json root = SmallConfig();
  EXPECT_EQ(ParseModelConfig(root.dump(), "")->tokenizer.unknown, UnknownUse::kDefault);
  for (const UnknownUse use : kernels::AllNamed<UnknownUseName>()) {
    root["preprocessing"]["unknown"] = UnknownUseName(use);
    EXPECT_EQ(ParseModelConfig(root.dump(), "")->tokenizer.unknown, use);
  }
}

TEST(ConfigTest, RefusesWhatItDoesNotKnow) {
  const struct {
    std::function<void(json&)> change;
    std::string message;
  } kCases[] = {
      {[](json& j) { j["sizes"] = 1; }, "unknown key 'sizes'; expected one of description, "},
      {[](json& j) { j["encoder"]["dropout"] = 0.1; }, "unknown key 'encoder.dropout'"},
      {[](json& j) { j["embedding"]["pad_id"] = 0; }, "unknown key 'embedding.pad_id'"},
      {[](json& j) { j["preprocessing"]["lowercase"] = true; },
       "unknown key 'preprocessing.lowercase'"},
      {[](json& j) { j.erase("format_version"); },
       "key 'format_version' is missing; expected an integer from 1 to 1"},
      {[](json& j) { j["format_version"] = 2; },
       "key 'format_version': expected an integer from 1 to 1, found 2"},
      {[](json& j) { j["description"] = 3; }, "key 'description': expected a string, found 3"},
      {[](json& j) { j.erase("encoder"); }, "key 'encoder' is missing; expected an object"},
      {[](json& j) { j["encoder"] = json::array(); },
       "key 'encoder': expected an object, found an array of 0"},
      {[](json& j) { j["encoder"].erase("hidden_size"); }, "key 'encoder.hidden_size' is missing"},
      {[](json& j) { j["encoder"].erase("input_size"); }, "key 'encoder.input_size' is missing"},
      {[](json& j) { j["encoder"].erase("num_layers"); }, "key 'encoder.num_layers' is missing"},
      {[](json& j) { j["encoder"]["input_size"] = 0; },
       "key 'encoder.input_size': expected an integer from 1 to 16384, found 0"},
      {[](json& j) { j["encoder"]["input_size"] = -1; }, "found -1"},
      {[](json& j) { j["encoder"]["input_size"] = 16385; }, "found 16385"},
      {[](json& j) { j["encoder"]["input_size"] = 18446744073709551615u; },
       "found 18446744073709551615"},
      {[](json& j) { j["encoder"]["input_size"] = 4294967297u; }, "found 4294967297"},
      {[](json& j) { j["encoder"]["input_size"] = -9223372036854775807; }, "found -9223"},
      {[](json& j) { j["encoder"]["input_size"] = 4.0; }, "found 4.0"},
      {[](json& j) { j["encoder"]["input_size"] = "4"; }, "found \"4\""},
      {[](json& j) { j["encoder"]["input_size"] = nullptr; }, "found null"},
      {[](json& j) { j["encoder"]["num_layers"] = 257; }, "an integer from 1 to 256, found 257"},
      {[](json& j) { j["encoder"]["projection_size"] = -1; },
       "key 'encoder.projection_size': expected an integer from 0 to 16384, found -1"},
      {[](json& j) { j["encoder"]["bidirectional"] = 1; },
       "key 'encoder.bidirectional': expected true or false, found 1"},
      {[](json& j) { j["encoder"]["highway_bias"] = "0"; },
       "key 'encoder.highway_bias': expected a number"},
      {[](json& j) { j["encoder"]["highway_bias"] = 1e300; }, "encoder.highway_bias"},
      {[](json& j) { j.erase("embedding"); }, "key 'embedding' is missing"},
      {[](json& j) { j.erase("preprocessing"); }, "key 'preprocessing' is missing"},
      {[](json& j) { j["embedding"] = 5; }, "key 'embedding': expected an object, found 5"},
      {[](json& j) { j["embedding"]["vocabulary_size"] = 0; }, "embedding.vocabulary_size"},
      {[](json& j) { j["embedding"]["vocabulary_size"] = 16777217; }, "from 1 to 16777216"},
      {[](json& j) { j["embedding"]["oov_id"] = 5; },
       "key 'embedding.oov_id': expected an integer from 0 to 4, found 5"},
      {[](json& j) { j["embedding"]["oov_id"] = -1; }, "embedding.oov_id"},
      {[](json& j) { j["preprocessing"]["type"] = "bert"; },
       "key 'preprocessing.type': expected one of \"whitespace\", \"lowercase\", "
       "\"sentence_classification\", \"bytes\", \"characters\", \"line_words\", "
       "\"unicode_words\", \"sentencepiece\", found \"bert\""},
      {[](json& j) { j["preprocessing"]["unknown"] = "default"; },
       "key 'preprocessing.unknown': expected one of \"refuse\", \"skip\", \"replace\", found "
       "\"default\""},
      {[](json& j) { j["embedding"].erase("oov_id"); },
       "key 'embedding.oov_id' is missing; expected an integer from 0 to 4"},
      {[](json& j) {
         j["preprocessing"] = {{"type", "unicode_words"}};
       },
       "key 'preprocessing.lowercase' is missing"},
      {[](json& j) {
         j["preprocessing"]["vocabulary"] = {1, 2};
       },
       "unknown key 'preprocessing.vocabulary'"},
      {[](json& j) {
         j["preprocessing"] = {{"type", "sentencepiece"}};
       },
       "key 'embedding.oov_id': expected no such key beside preprocessing.type \"sentencepiece\", "
       "found 1"},
      {[](json& j) {
         j["preprocessing"] = {{"type", "line_words"}};
       },
       "key 'embedding.oov_id': expected no such key"},
      {[](json& j) {
         j["preprocessing"] = {{"type", "characters"}};
         j["embedding"]["oov_id"] = -1;
       },
       "key 'embedding.oov_id': expected an integer from 0 to 4, found -1"},
      {[](json& j) { SetBytes(j, nullptr), j["preprocessing"].erase("vocabulary"); },
       "key 'preprocessing.vocabulary' is missing; expected an array of 1 to 256 integers"},
      {[](json& j) { SetBytes(j, "abcde"); }, "key 'preprocessing.vocabulary': expected an array"},
      {[](json& j) { SetBytes(j, json::array()); }, "ascending, found an array of 0"},
      {[](json& j) {
         SetBytes(j, {1, 2, 3, 4, 4});
       },
       "'preprocessing.vocabulary[4]'"},
      {[](json& j) {
         SetBytes(j, {1, 2, 3, 4, 256});
       },
       "from 0 to 255, ascending, found 256"},
      {[](json& j) {
         SetBytes(j, {-1, 2, 3, 4, 5});
       },
       "found -1"},
      {[](json& j) {
         SetBytes(j, {1, 2, 3.5, 4, 5});
       },
       "'preprocessing.vocabulary[2]'"},
      {[](json& j) {
         SetBytes(j, {1, 2, 3, 4});
       },
       "key 'preprocessing.vocabulary': expected 5 bytes (embedding.vocabulary_size), found 4"},
      {[](json& j) { j["preprocessing"]["type"] = "sentence_classification"; },
       "key 'preprocessing.lowercase' is missing"},
      {[](json& j) { j.erase("pooling"); }, "key 'pooling' is missing"},
      {[](json& j) { j["pooling"] = "avg"; },
       "key 'pooling': expected one of \"none\", \"first\", \"last\", \"max\", \"mean\", found "
       "\"avg\""},
      {[](json& j) { j["pooling"] = "none"; },
       "key 'pooling': expected \"first\", \"last\", \"max\" or \"mean\" for a model with labels"},
      {[](json& j) { j["task"] = "parser"; },
       "key 'task': expected one of \"classifier\", \"encoder\", \"language_model\", \"reader\", "
       "\"translator\", \"tagger\", found \"parser\""},
      {[](json& j) { j["task"] = 1; }, "key 'task': expected one of \"classifier\""},
      {[](json& j) { j["task"] = "encoder"; },
       "key 'labels': expected no such key beside task \"encoder\", found an array of 2"},
      {[](json& j) { j["task"] = "classifier", j.erase("labels"); },
       "key 'labels' is missing; expected an array of 1 to 65536 different strings"},
      {[](json& j) { j["tied"] = false; },
       "key 'tied': expected no such key beside task \"classifier\", found false"},
      {[](json& j) { j["labels"] = json::array(); }, "key 'labels': expected an array of 1 to"},
      {[](json& j) { j["labels"] = "yes"; }, "key 'labels'"},
      {[](json& j) { j["labels"][1] = ""; }, "key 'labels[1]'"},
      {[](json& j) { j["labels"][1] = 1; }, "key 'labels[1]'"},
      {[](json& j) { j["labels"][1] = "no"; }, "key 'labels[1]'"},
      {[](json& j) { j["labels"] = std::vector<std::string>(65537, "x"); }, "an array of 65537"},
  };
  for (const auto& c : kCases) {
    json root = SmallConfig();
    c.change(root);
    const absl::Status status = ParseModelConfig(root.dump(), "dir/config.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("dir/config.json: "), HasSubstr(c.message)));
  }
}

TEST(ConfigTest, RefusesWhatIsNotStrictJson) {
  const std::string good = SmallConfig().dump();
  std::string deep(1000, '[');
  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {"", "not valid JSON at byte 0"},
      {good + "x", "not valid JSON at byte " + std::to_string(good.size())},
      {good.substr(0, good.size() - 1), "not valid JSON"},
      {"[]", "expected a JSON object"},
      {"{\"format_version\":1,\"format_version\":1}", "key 'format_version' appears twice"},
      {"{\"encoder\":{\"v1\":true,\"v1\":true}}", "key 'v1' appears twice"},
      {"{\"description\":\"\xff\"}", "not valid JSON"},
      {"{\"format_version\":1e999}", "not valid JSON"},
      {deep, "nested deeper than 8 levels"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = ParseModelConfig(c.text, "config.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("config.json: "), HasSubstr(c.message)));
  }
}

TEST(ConfigTest, ReadsFiles) {
  TempDirectory directory;
  EXPECT_TRUE(ReadModelConfig(directory.Write("config.json", SmallConfig().dump())).ok());
  EXPECT_EQ(ReadModelConfig(directory.path("absent.json")).status().code(),
            absl::StatusCode::kNotFound);
  const absl::Status large =
      ReadModelConfig(directory.Write("large.json", std::string(kMaxConfigBytes + 1, ' ')))
          .status();
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(large.message()), HasSubstr("expected at most 16777216 bytes"));
}

TEST(ConfigTest, SizesOfLayersFollowThePackage) {
  EncoderConfig config;
  config.input_size = 10;
  config.hidden_size = 8;
  config.num_layers = 2;
  config.bidirectional = true;
  EXPECT_EQ(config.output_size(), 16);
  EXPECT_EQ(config.layer_input_size(0), 10);
  EXPECT_EQ(config.layer_input_size(1), 16);
  config.projection_size = 10;  // as large as the first layer's input: does not apply there
  EXPECT_EQ(config.layer_projection_size(0), 0);
  EXPECT_EQ(config.layer_projection_size(1), 10);
  config.projection_size = 16;
  EXPECT_EQ(config.layer_projection_size(1), 0);
  config.proj_input_to_hidden_first = true;
  EXPECT_TRUE(config.has_input_to_hidden());
  EXPECT_EQ(config.layer_input_size(0), 16);
  config.input_size = 16;
  EXPECT_FALSE(config.has_input_to_hidden());
}

TEST(ConfigTest, NamesWhatItReads) {
  EXPECT_STREQ(PoolingName(kernels::Pooling::kNone), "none");
  EXPECT_STREQ(PoolingName(kernels::Pooling::kFirst), "first");
  EXPECT_STREQ(PoolingName(kernels::Pooling::kLast), "last");
  EXPECT_STREQ(PoolingName(kernels::Pooling::kMax), "max");
  EXPECT_STREQ(PoolingName(kernels::Pooling::kMean), "mean");
  EXPECT_STREQ(TaskName(Task::kClassifier), "classifier");
  EXPECT_STREQ(TaskName(Task::kEncoder), "encoder");
  EXPECT_STREQ(TaskName(Task::kLanguageModel), "language_model");
  EXPECT_STREQ(TaskName(Task::kReader), "reader");
  EXPECT_STREQ(TaskName(Task::kTranslator), "translator");
  EXPECT_STREQ(TokenizerTypeName(TokenizerType::kWhitespace), "whitespace");
  EXPECT_STREQ(TokenizerTypeName(TokenizerType::kLowercase), "lowercase");
  EXPECT_STREQ(TokenizerTypeName(TokenizerType::kSentenceClassification),
               "sentence_classification");
}

}  // namespace
}  // namespace sru::models
