#include "models/reader_config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/config.h"
#include "nlohmann/json.hpp"

namespace sru::models {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json GoodConfig() {
  return {{"format_version", 1},
          {"task", "reader"},
          {"encoder",
           {{"input_size", 11},
            {"hidden_size", 3},
            {"num_layers", 2},
            {"bidirectional", true},
            {"rescale", true}}},
          {"embedding", {{"vocabulary_size", 12}, {"oov_id", 1}}},
          {"preprocessing", {{"type", "unicode_words"}, {"lowercase", true}}},
          {"reader",
           {{"embedding_dim", 4},
            {"question_layers", 1},
            {"features", {"exact", "tf"}},
            {"use_qemb", true},
            {"pos_size", 9},
            {"pos_dim", 1},
            {"question_merge", "self_attn"},
            {"max_len", 15}}}};
}

absl::StatusOr<ModelConfig> Parse(const json& config) {
  return ParseModelConfig(config.dump(), "c.json");
}

std::string ErrorOf(const json& config) {
  const auto parsed = Parse(config);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << config;
  return std::string(parsed.status().message());
}

TEST(ReaderConfigTest, ReadsAllKeys) {
  json root = GoodConfig();
  root["reader"]["ner_size"] = 5;
  root["reader"]["ner_dim"] = 2;
  root["encoder"]["input_size"] = 13;
  root["reader"]["concat_rnn_layers"] = true;
  root["reader"]["question_merge"] = "avg";
  const auto config = Parse(root);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kReader);
  EXPECT_TRUE(config->has_embedding);
  EXPECT_TRUE(config->has_tokenizer);
  EXPECT_EQ(config->embedding.oov_id, 1);
  EXPECT_TRUE(config->tokenizer.lowercase);
  EXPECT_EQ(config->encoder.num_layers, 2);
  const ReaderConfig& reader = config->reader;
  EXPECT_EQ(reader.embedding_dim, 4);
  EXPECT_EQ(reader.question_layers, 1);
  EXPECT_THAT(reader.features, ElementsAre(ReaderFeature::kExact, ReaderFeature::kTf));
  EXPECT_TRUE(reader.has(ReaderFeature::kTf));
  EXPECT_FALSE(reader.has(ReaderFeature::kLemma));
  EXPECT_TRUE(reader.use_qemb);
  EXPECT_EQ(reader.pos_size, 9);
  EXPECT_EQ(reader.pos_dim, 1);
  EXPECT_EQ(reader.ner_size, 5);
  EXPECT_EQ(reader.ner_dim, 2);
  EXPECT_TRUE(reader.concat_rnn_layers);
  EXPECT_EQ(reader.question_merge, QuestionMerge::kAverage);
  EXPECT_EQ(reader.max_len, 15);
}

TEST(ReaderConfigTest, WithoutWhatMayBeLeftOut) {
  json root = GoodConfig();
  root["encoder"]["input_size"] = 4;
  root["reader"]["use_qemb"] = false;
  root["reader"]["features"] = json::array();
  root["reader"].erase("pos_size");
  root["reader"].erase("pos_dim");
  root["embedding"].erase("oov_id");
  root.erase("preprocessing");  // a model that takes ids
  const auto config = Parse(root);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->has_tokenizer);
  EXPECT_THAT(config->reader.features, IsEmpty());
  EXPECT_EQ(config->reader.passage_input_size(), 4);
  EXPECT_FALSE(config->reader.concat_rnn_layers);
}

TEST(ReaderConfigTest, ErrorsNameTheKey) {
  const struct {
    std::string pointer;
    json value;  // null: the key is missing
    std::string message;
  } kCases[] = {
      {"/reader", nullptr, "key 'reader' is missing; expected an object beside task \"reader\""},
      {"/reader", 3, "key 'reader': expected an object, found 3"},
      {"/reader/embedding_dim", nullptr, "key 'reader.embedding_dim' is missing"},
      {"/reader/embedding_dim", 0, "'reader.embedding_dim': expected an integer from 1 to 16384"},
      {"/reader/question_layers", 257,
       "'reader.question_layers': expected an integer from 1 to 256"},
      {"/reader/features", "tf", "'reader.features': expected an array of \"exact\", \"lower\""},
      {"/reader/features", {"tf", "exact"}, "'reader.features[1]': expected an array"},
      {"/reader/features", {"tf", "tf"}, "'reader.features[1]': expected an array"},
      {"/reader/features", {"exact", "idf"}, "found \"idf\""},
      {"/reader/use_qemb", 1, "'reader.use_qemb': expected true or false, found 1"},
      {"/reader/pos_size", nullptr, "key 'reader.pos_size' is missing"},
      {"/reader/pos_dim", nullptr, "key 'reader.pos_dim' is missing"},
      {"/reader/pos_size", 65537, "'reader.pos_size': expected an integer from 1 to 65536"},
      {"/reader/ner_size", 3, "key 'reader.ner_dim' is missing"},
      {"/reader/concat_rnn_layers", "no", "'reader.concat_rnn_layers': expected true or false"},
      {"/reader/question_merge", "max", "expected one of \"self_attn\", \"avg\", found \"max\""},
      {"/reader/max_len", 0, "'reader.max_len': expected an integer from 1 to 1048576, found 0"},
      {"/reader/dropout", 0.3, "unknown key 'reader.dropout'"},
      {"/encoder/bidirectional", false, "'encoder.bidirectional': expected true beside task"},
      {"/encoder/proj_input_to_hidden_first", true, "'encoder.proj_input_to_hidden_first'"},
      {"/encoder/input_size", 10, "'encoder.input_size': expected 11 (embedding_dim twice, the"},
      {"/embedding", nullptr, "key 'embedding' is missing"},
      {"/preprocessing/type", "whitespace", "unknown key 'preprocessing.lowercase'"},
      {"/preprocessing/type", "sentence_classification", "expected \"unicode_words\" beside task"},
      {"/pooling", "max", "unknown key 'pooling'"},
      {"/labels", {"a", "b"}, "'labels': expected no such key beside task \"reader\""},
      {"/tied", true, "unknown key 'tied'"},
  };
  for (const auto& c : kCases) {
    json root = GoodConfig();
    const json::json_pointer pointer(c.pointer);
    if (c.value.is_null()) {
      root[pointer.parent_pointer()].erase(pointer.back());
    } else {
      root[pointer] = c.value;
    }
    EXPECT_THAT(ErrorOf(root), AllOf(HasSubstr("c.json: "), HasSubstr(c.message))) << c.pointer;
  }
  // Without a tokenizer there are no unknown words.
  json root = GoodConfig();
  root.erase("preprocessing");
  EXPECT_THAT(ErrorOf(root), HasSubstr("unknown key 'embedding.oov_id'"));
}

TEST(ReaderConfigTest, OnlyAReaderHasItsKeys) {
  json root = GoodConfig();
  root["task"] = "encoder";
  root["pooling"] = "none";
  EXPECT_THAT(ErrorOf(root), HasSubstr("unknown key 'reader'"));
}

}  // namespace
}  // namespace sru::models
