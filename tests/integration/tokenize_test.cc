// Tokenize and Detokenize over the wire, and what becomes of text that a vocabulary lacks in every
// call.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/small_reader.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new RunningServer(TestOptions(kBundledRepository)); }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static v1::TokenizeResponse Tokenize(const std::string& model,
                                       const std::vector<std::string>& texts,
                                       v1::Unknown unknown = v1::UNKNOWN_DEFAULT) {
    v1::TokenizeRequest request;
    request.set_model(model);
    request.set_unknown(unknown);
    for (const std::string& text : texts) request.add_sequences()->set_text(text);
    return server_->Must(request);
  }
  static std::string Detokenize(const std::string& model, const std::vector<int32_t>& ids) {
    v1::DetokenizeRequest request;
    request.set_model(model);
    request.add_sequences()->mutable_values()->Add(ids.begin(), ids.end());
    const v1::DetokenizeResponse response = server_->Must(request);
    EXPECT_EQ(response.model(), model);
    EXPECT_EQ(response.texts_size(), 1);
    return response.texts(0);
  }
  static std::vector<int32_t> Ids(const v1::Tokenization& tokenization) {
    std::vector<int32_t> ids;
    for (const v1::Token& token : tokenization.tokens()) ids.push_back(token.id());
    return ids;
  }
  static std::vector<std::string> Texts(const v1::Tokenization& tokenization) {
    std::vector<std::string> texts;
    for (const v1::Token& token : tokenization.tokens()) texts.push_back(token.text());
    return texts;
  }
  // The text and the last message of a greedy Generate.
  static std::string Generate(const std::string& prompt, v1::Unknown unknown,
                              v1::GenerateResponse* last) {
    v1::GenerateRequest request;
    request.mutable_prompt()->set_text(prompt);
    request.set_unknown(unknown);
    request.set_max_new_tokens(20);
    grpc::ClientContext context;
    const auto reader = server_->stub().Generate(&context, request);
    std::string text;
    while (reader->Read(last)) text += last->text();
    const grpc::Status status = reader->Finish();
    return status.ok() ? text : "error: " + status.error_message();
  }

  static inline RunningServer* server_ = nullptr;
};

TEST_F(TokenizeTest, TokensHaveIdsTextsAndPlaces) {
  const v1::TokenizeResponse response =
      Tokenize("trec", {"Caf\u00e9s: who's  qqqzz?", "", "Who wrote it ?"});
  EXPECT_EQ(response.model(), "trec");
  EXPECT_EQ(response.version(), 1);
  EXPECT_EQ(response.max_sequence_tokens(), 2048);
  ASSERT_EQ(response.tokenizations_size(), 3);
  const v1::Tokenization& words = response.tokenizations(0);
  EXPECT_EQ(words.tokens_size(), 6);
  EXPECT_EQ(words.tokens(2).text(), "who");
  const v1::Token& last = words.tokens(5);
  EXPECT_EQ(last.text(), "?");
  EXPECT_EQ(last.start_byte(), 20);
  EXPECT_EQ(last.end_byte(), 21);
  EXPECT_EQ(last.start_char(), 19);
  EXPECT_EQ(last.end_char(), 20);
  const v1::Token& unknown = words.tokens(4);
  EXPECT_EQ(unknown.id(), 1);
  EXPECT_EQ(unknown.start_char(), 14);
  EXPECT_EQ(unknown.end_char(), 19);
  EXPECT_GE(words.unknown_tokens(), 1);
  EXPECT_EQ(response.tokenizations(1).tokens_size(), 0);
  EXPECT_EQ(response.tokenizations(2).unknown_tokens(), 0);
  EXPECT_EQ(Detokenize("trec", Ids(response.tokenizations(2))), "Who wrote it ?");

  // These are the tokens that Classify computes.
  v1::ClassifyRequest text;
  text.add_sequences()->set_text("Who wrote it ?");
  v1::ClassifyRequest ids;
  v1::TokenIds* const values = ids.add_sequences()->mutable_token_ids();
  for (const int32_t id : Ids(response.tokenizations(2))) values->add_values(id);
  EXPECT_EQ(server_->Must(text).classifications(0).labels(0).probability(),
            server_->Must(ids).classifications(0).labels(0).probability());
}

TEST_F(TokenizeTest, WordsOfTheCallerHaveNoPlaces) {
  v1::TokenizeRequest request;
  request.set_model("trec");
  v1::Tokens* const tokens = request.add_sequences()->mutable_tokens();
  for (const char* word : {"Who", "qqqzz", "?"}) tokens->add_values(word);
  v1::TokenizeResponse response = server_->Must(request);
  ASSERT_EQ(response.tokenizations(0).tokens_size(), 3);
  EXPECT_EQ(response.tokenizations(0).tokens(2).end_byte(), 0);
  EXPECT_EQ(response.tokenizations(0).unknown_tokens(), 1);
  request.set_unknown(v1::UNKNOWN_SKIP);
  response = server_->Must(request);
  EXPECT_THAT(Texts(response.tokenizations(0)), ElementsAre("Who", "?"));
  EXPECT_EQ(response.tokenizations(0).unknown_tokens(), 1);
  request.set_unknown(v1::UNKNOWN_REFUSE);
  EXPECT_THAT(server_->Call(request),
              Fails(StatusCode::INVALID_ARGUMENT,
                    "sequences[0].tokens.values[1]: not in the model's vocabulary; set unknown to "
                    "skip or replace it"));
}

// The bundled language model knows typographic quotes only.
TEST_F(TokenizeTest, BytesComeBackAsText) {
  const std::string text = "\u201cWell, Prince\u2026\u201d\n";
  const v1::Tokenization known = Tokenize("war_and_peace", {text}).tokenizations(0);
  EXPECT_EQ(known.unknown_tokens(), 0);
  EXPECT_EQ(known.tokens(0).text(), "<0xE2>");
  EXPECT_EQ(known.tokens(1).start_char(), 0);
  EXPECT_EQ(known.tokens(1).end_char(), 1);
  EXPECT_EQ(Detokenize("war_and_peace", Ids(known)), text);
  std::vector<int32_t> broken = Ids(known);
  broken.resize(2);
  EXPECT_EQ(Detokenize("war_and_peace", broken), "\ufffd");
}

TEST_F(TokenizeTest, AStraightQuoteDoesNotEndACall) {
  const std::string quoted = "\"Well,\" said the prince";
  const std::string bare = "Well, said the prince";
  v1::GenerateResponse last;
  const std::string expected = Generate(bare, v1::UNKNOWN_REFUSE, &last);
  EXPECT_EQ(last.unknown_tokens(), 0);
  EXPECT_EQ(Generate(quoted, v1::UNKNOWN_DEFAULT, &last), expected);
  EXPECT_EQ(last.unknown_tokens(), 2);
  EXPECT_EQ(last.prompt_tokens(), static_cast<int>(bare.size()));
  EXPECT_EQ(Generate(quoted, v1::UNKNOWN_REFUSE, &last),
            "error: prompt.text: byte 0 of the text is 34 (<0x22>), which is not in the model's "
            "vocabulary; set unknown to skip or replace it");
  EXPECT_EQ(Generate(quoted, v1::UNKNOWN_REPLACE, &last),
            Generate("?Well,? said the prince", v1::UNKNOWN_REFUSE, &last));
  EXPECT_THAT(Generate("\"\"", v1::UNKNOWN_SKIP, &last), HasSubstr("no tokens are left"));

  v1::ScoreRequest score;
  score.set_token_log_probs(true);
  score.add_sequences()->set_text(quoted);
  score.add_sequences()->set_text(bare);
  const v1::ScoreResponse scores = server_->Must(score);
  EXPECT_EQ(scores.scores(0).log_prob(), scores.scores(1).log_prob());
  EXPECT_EQ(scores.scores(0).unknown_tokens(), 2);
  EXPECT_EQ(scores.scores(1).unknown_tokens(), 0);
}

TEST_F(TokenizeTest, CallsSayWhatBecomesOfUnknownWords) {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("Who qqqzz wrote qqqyy it ?");
  request.add_sequences()->set_text("Who wrote it ?");
  const auto best = [](const v1::ClassifyResponse& response, int i) {
    return response.classifications(i).labels(0).probability();
  };
  const v1::ClassifyResponse as_ever = server_->Must(request);
  request.set_unknown(v1::UNKNOWN_REPLACE);
  EXPECT_EQ(best(server_->Must(request), 0), best(as_ever, 0));
  request.set_unknown(v1::UNKNOWN_SKIP);
  const v1::ClassifyResponse skipped = server_->Must(request);
  EXPECT_EQ(best(skipped, 0), best(as_ever, 1));
  EXPECT_EQ(skipped.classifications(0).token_count(), 4);
  EXPECT_EQ(skipped.classifications(0).unknown_tokens(), 2);
  request.set_unknown(v1::UNKNOWN_REFUSE);
  EXPECT_THAT(server_->Call(request),
              Fails(StatusCode::INVALID_ARGUMENT,
                    HasSubstr("sequences[0].text: the word of 5 bytes at byte 4")));
  request.set_unknown(static_cast<v1::Unknown>(9));
  EXPECT_THAT(server_->Call(request),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("unknown: 9 is unknown, expected 1 ")));
  // Nothing is left of a text: it is empty, but what it had is counted.
  request.Clear();
  request.set_unknown(v1::UNKNOWN_SKIP);
  request.add_sequences()->set_text("qqqzz qqqyy");
  EXPECT_THAT(server_->Call(request),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("no tokens are left")));
  request.set_skip_empty(true);
  EXPECT_EQ(server_->Must(request).classifications(0).unknown_tokens(), 2);
}

TEST_F(TokenizeTest, LongTextsAreWhole) {
  std::string text;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&text, "it ");
  const v1::TokenizeResponse response = Tokenize("trec", {text});
  EXPECT_EQ(response.tokenizations(0).tokens_size(), 20000);
  EXPECT_EQ(response.tokenizations(0).tokens(19999).start_byte(), 59997);
  v1::TokenizeRequest request;
  request.set_model("trec");
  for (int i = 0; i < 4; ++i) request.add_sequences()->set_text(text);
  EXPECT_THAT(server_->Call(request),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("(--max_queue_tokens)")));
  request.clear_sequences();
  request.add_sequences()->set_text(text + text + text + text);
  EXPECT_THAT(server_->Call(request),
              Fails(StatusCode::INVALID_ARGUMENT,
                    HasSubstr("sequences[0].text: at least 65537 tokens are too many, expected at "
                              "most 65536 (--max_queue_tokens); divide it")));
}

TEST_F(TokenizeTest, NamesWhatIsWrong) {
  v1::TokenizeRequest tokenize;
  tokenize.set_model("trec");
  EXPECT_THAT(server_->Call(tokenize),
              Fails(StatusCode::INVALID_ARGUMENT, "sequences: empty, expected at least one"));
  tokenize.add_sequences()->set_text("a");
  tokenize.add_sequences()->mutable_token_ids()->add_values(1);
  EXPECT_THAT(server_->Call(tokenize),
              Fails(StatusCode::INVALID_ARGUMENT,
                    HasSubstr("sequences[1].token_ids: expected text or tokens")));
  tokenize.mutable_sequences(1)->Clear();
  EXPECT_THAT(server_->Call(tokenize),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("sequences[1]: empty sequence")));

  v1::DetokenizeRequest detokenize;
  detokenize.set_model("trec");
  EXPECT_THAT(server_->Call(detokenize),
              Fails(StatusCode::INVALID_ARGUMENT, "sequences: empty, expected at least one"));
  detokenize.add_sequences();
  for (const int32_t id : {0, 8759}) detokenize.add_sequences()->add_values(id);
  EXPECT_THAT(server_->Call(detokenize),
              Fails(StatusCode::INVALID_ARGUMENT,
                    "sequences[2].values[0]: 8759 is out of range, expected 0 to 8758"));
  detokenize.mutable_sequences(2)->set_values(0, -1);
  EXPECT_THAT(server_->Call(detokenize),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("-1 is out of range")));
  for (int i = 0; i < 1025; ++i) detokenize.add_sequences();
  EXPECT_THAT(server_->Call(detokenize),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("(--max_sequences_per_request)")));
  detokenize.clear_sequences();
  v1::TokenIds* const many = detokenize.add_sequences();
  for (int i = 0; i < 65537; ++i) many->add_values(0);
  EXPECT_THAT(server_->Call(detokenize),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("(--max_queue_tokens)")));
  // Two models have a vocabulary.
  detokenize.clear_model();
  EXPECT_THAT(server_->Call(detokenize),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("model: empty, expected a name")));
}

TEST_F(TokenizeTest, NothingCountsAsComputed) {
  const char* const kCalls =
      "sru_requests_total{code=\"OK\",method=\"Tokenize\",model=\"trec\",version=\"1\"}";
  const char* const kText = "sru_text_tokens_total{model=\"trec\",version=\"1\"}";
  const double calls = std::max(0.0, server_->Metric(kCalls));
  const double text = server_->Metric(kText);
  Tokenize("trec", {"Who wrote it ?"});
  EXPECT_TRUE(server_->Becomes(kCalls, calls + 1));
  EXPECT_EQ(server_->Metric(kText), text);
  server_->ExpectIdle();
}

TEST(TokenizeModelsTest, EveryModelWithAVocabularyAnswers) {
  models::TempDirectory repository;
  models::WriteSmallModel(repository, "small/1");
  nlohmann::json frames = models::SmallConfig();
  models::TestTensors tensors = models::SmallTensors();
  frames.erase("embedding");
  frames.erase("preprocessing");
  tensors.erase("embedding.weight");
  models::WriteModel(repository, "frames/1", frames, tensors);
  RunningServer server(TestOptions(repository.path()));
  v1::TokenizeRequest request;
  request.add_sequences()->set_text("a c");
  EXPECT_EQ(server.Must(request).model(), "small");  // the only one
  request.set_model("frames");
  EXPECT_THAT(server.Call(request),
              Fails(StatusCode::FAILED_PRECONDITION,
                    "model: 'frames' has no vocabulary, Tokenize needs a model with a vocabulary"));
}

TEST(TokenizeModelsTest, ReadersTranslatorsAndTaggersAnswer) {
  models::TempDirectory repository;
  models::WriteSmallReader(repository, "reader/1");
  models::WriteSmallTranslator(repository, "translator/1");
  models::WriteSmallTagger(repository, "tagger/1");
  models::WriteSmallLanguageModel(repository, "lm/1");
  RunningServer server(TestOptions(repository.path()));
  for (const char* model : {"reader", "translator", "tagger", "lm"}) {
    v1::TokenizeRequest request;
    request.set_model(model);
    request.add_sequences()->set_text("a b");
    const v1::TokenizeResponse response = server.Must(request);
    ASSERT_EQ(response.tokenizations_size(), 1) << model;
    v1::DetokenizeRequest back;
    back.set_model(model);
    v1::TokenIds* const ids = back.add_sequences();
    for (const v1::Token& token : response.tokenizations(0).tokens()) ids->add_values(token.id());
    EXPECT_EQ(server.Must(back).texts(0), "a b") << model;
  }
  // An answer's places are those of the words that are left.
  v1::AnswerRequest answer;
  v1::Query* const query = answer.add_queries();
  query->set_question("a b ?");
  query->add_passages("zz a zz b");
  answer.set_unknown(v1::UNKNOWN_SKIP);
  const v1::AnswerResponse answered = server.Must(answer);
  ASSERT_GT(answered.results(0).answers_size(), 0);
  const v1::SpanAnswer& span = answered.results(0).answers(0);
  EXPECT_TRUE(span.start_byte() == 3 || span.start_byte() == 8) << span.start_byte();
  query->set_passages(0, "zz zzz");
  EXPECT_THAT(server.Call(answer),
              Fails(StatusCode::INVALID_ARGUMENT,
                    HasSubstr("queries[0].passages[0]: only words that the vocabulary does not")));

  v1::TagRequest tag;
  tag.set_model("tagger");
  tag.add_sequences()->set_text(" a  \u00e9\r\n b");
  const v1::TagResponse tagged = server.Must(tag);
  ASSERT_EQ(tagged.taggings(0).tokens_size(), 3);
  const v1::TokenTags& token = tagged.taggings(0).tokens(2);
  EXPECT_EQ(token.start_byte(), 9);
  EXPECT_EQ(token.end_byte(), 10);
  EXPECT_EQ(token.start_char(), 8);
  EXPECT_EQ(token.end_char(), 9);
}

}  // namespace
}  // namespace sru::testing
