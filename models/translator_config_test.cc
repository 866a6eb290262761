#include "models/translator_config.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/config.h"
#include "nlohmann/json.hpp"
#include "tests/testing/translator_files.h"

namespace sru::models {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TranslatorConfigTest, ReadsEveryKey) {
  const auto config = ParseModelConfig(SmallTranslatorConfig().dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kTranslator);
  EXPECT_TRUE(config->has_embedding);
  EXPECT_EQ(config->embedding.vocabulary_size, 11);
  EXPECT_TRUE(config->has_tokenizer);
  EXPECT_EQ(config->tokenizer.type, TokenizerType::kSentencePiece);
  const TranslatorConfig& translator = config->translator;
  EXPECT_EQ(translator.d_model, 8);
  EXPECT_EQ(translator.heads, 2);
  EXPECT_EQ(translator.d_sru, 12);
  EXPECT_EQ(translator.encoder_layers, 2);
  EXPECT_EQ(translator.decoder_layers, 1);
  EXPECT_FALSE(translator.bidirectional_encoder);
  EXPECT_TRUE(translator.shared_embeddings);
  EXPECT_EQ(translator.source_vocabulary, 11);
  EXPECT_EQ(translator.target_vocabulary, 11);
  EXPECT_EQ(translator.pad_id, 0);
  EXPECT_EQ(translator.unk_id, 1);
  EXPECT_EQ(translator.bos_id, 2);
  EXPECT_EQ(translator.eos_id, 3);
  EXPECT_EQ(translator.max_positions, 100);
  EXPECT_EQ(translator.search.max_length, 20);
  EXPECT_EQ(translator.search.beam_size, 3);
  EXPECT_EQ(translator.search.num_hypotheses, 1);
  EXPECT_EQ(translator.search.length_penalty, LengthPenalty::kGnmt);
  EXPECT_EQ(translator.search.alpha, 0.6);
  EXPECT_EQ(translator.source_language, "en");
  EXPECT_EQ(translator.target_language, "de");
}

TEST(TranslatorConfigTest, WithoutPreprocessingItReadsIdsOnly) {
  json root = SmallTranslatorConfig();
  root.erase("preprocessing");
  root["translator"].erase("source_language");
  root["translator"].erase("target_language");
  root["translator"]["shared_embeddings"] = false;
  root["translator"]["target_vocabulary"] = 9;
  root["translator"]["bidirectional_encoder"] = true;
  const auto config = ParseModelConfig(root.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->has_embedding);
  EXPECT_FALSE(config->has_tokenizer);
  EXPECT_EQ(config->embedding.vocabulary_size, 11);
  EXPECT_EQ(config->translator.target_vocabulary, 9);
  EXPECT_TRUE(config->translator.bidirectional_encoder);
}

TEST(TranslatorConfigTest, NamesTheKeyThatIsWrong) {
  const struct {
    std::function<void(json&)> change;  // of the root
    const char* message;
  } kCases[] = {
      {[](json& j) { j.erase("translator"); },
       "key 'translator' is missing; expected an object beside task \"translator\""},
      {[](json& j) { j["translator"] = 1; }, "key 'translator': expected an object, found 1"},
      {[](json& j) { j["encoder"] = json::object(); }, "unknown key 'encoder'"},
      {[](json& j) { j["pooling"] = "none"; }, "unknown key 'pooling'"},
      {[](json& j) { j["translator"]["layers"] = 1; }, "unknown key 'translator.layers'"},
      {[](json& j) { j["translator"].erase("d_model"); }, "key 'translator.d_model' is missing"},
      {[](json& j) { j["translator"]["heads"] = 3; },
       "key 'translator.heads': expected a divisor of d_model 8, found 3"},
      {[](json& j) { j["translator"]["heads"] = 0; },
       "key 'translator.heads': expected an integer from 1 to 8, found 0"},
      {[](json& j) {
         j["translator"]["bidirectional_encoder"] = true;
         j["translator"]["d_sru"] = 13;
       },
       "key 'translator.d_sru': expected an even number beside bidirectional_encoder, found 13"},
      {[](json& j) { j["translator"]["encoder_layers"] = 257; },
       "key 'translator.encoder_layers': expected an integer from 1 to 256"},
      {[](json& j) { j["translator"]["decoder_layers"] = 0; }, "'translator.decoder_layers'"},
      {[](json& j) { j["translator"]["target_vocabulary"] = 12; },
       "key 'translator.target_vocabulary': expected 11 as source_vocabulary, since "
       "shared_embeddings is true, found 12"},
      {[](json& j) {
         j["translator"]["target_vocabulary"] = 12;
         j["translator"]["shared_embeddings"] = false;
       },
       "key 'translator.target_vocabulary': expected 11 as translator.source_vocabulary beside "
       "'preprocessing', found 12"},
      {[](json& j) { j["translator"]["eos_id"] = 11; },
       "key 'translator.eos_id': expected an integer from 0 to 10, found 11"},
      {[](json& j) { j["translator"]["pad_id"] = -1; }, "'translator.pad_id'"},
      {[](json& j) { j["translator"].erase("unk_id"); }, "key 'translator.unk_id' is missing"},
      {[](json& j) { j["translator"]["bos_id"] = "2"; }, "'translator.bos_id'"},
      {[](json& j) { j["translator"]["max_positions"] = 0; }, "'translator.max_positions'"},
      {[](json& j) { j["translator"]["max_length"] = 101; },
       "key 'translator.max_length': expected an integer from 1 to 100, found 101"},
      {[](json& j) { j["translator"]["beam_size"] = 65; },
       "key 'translator.beam_size': expected an integer from 1 to 64, found 65"},
      {[](json& j) { j["translator"]["length_penalty"] = "wu"; },
       "key 'translator.length_penalty': expected one of \"gnmt\", \"power\", \"none\", found "
       "\"wu\""},
      {[](json& j) { j["translator"].erase("alpha"); },
       "key 'translator.alpha' is missing; expected a number from 0 to 10"},
      {[](json& j) { j["translator"]["alpha"] = -0.1; },
       "key 'translator.alpha': expected a number from 0 to 10, found -0.1"},
      {[](json& j) { j["translator"]["alpha"] = "1"; }, "'translator.alpha'"},
      {[](json& j) { j["translator"]["source_language"] = 1; },
       "key 'translator.source_language': expected a string, found 1"},
      {[](json& j) {
         j["preprocessing"] = {{"type", "bytes"}, {"vocabulary", {1}}};
       },
       "key 'preprocessing.type': expected \"sentencepiece\" beside task \"translator\", found "
       "\"bytes\""},
      {[](json& j) { j["preprocessing"] = json::object(); }, "key 'preprocessing.type' is missing"},
  };
  for (const auto& c : kCases) {
    json root = SmallTranslatorConfig();
    c.change(root);
    const absl::Status status = ParseModelConfig(root.dump(), "m/config.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("m/config.json: "), HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace sru::models
