#include "server/tasks/answer/answer_parser.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/tokenizers.h"
#include "tests/testing/checked.h"

namespace sru::server::tasks {
namespace {

using ::sru::testing::Checked;
using ::testing::ElementsAre;
using ::testing::StartsWith;

class AnswerParserTest : public ::testing::Test {
 protected:
  AnswerParserTest() {
    auto vocabulary = Checked(models::Vocabulary::Parse(
        "<PAD>\n<UNK>\nwho\nwrote\nhamlet\nshakespeare\n?\n.\n", 8, "test"));
    tokenizer_ = models::MakeUnicodeWordTokenizer(*std::move(vocabulary), /*oov_id=*/1,
                                                  /*lowercase=*/true);
    limits_.max_sequences = 8;
    limits_.max_sequence_tokens = 10;
    limits_.max_request_tokens = 100;
    limits_.max_batch_tokens = 20;
    Add("Who wrote Hamlet?", {"Shakespeare wrote it.", "Nobody knows"});
  }

  v1::Query* Add(const std::string& question, const std::vector<std::string>& passages) {
    v1::Query* const query = request_.add_queries();
    query->set_question(question);
    for (const std::string& passage : passages) query->add_passages(passage);
    return query;
  }
  v1::Query* query() { return request_.mutable_queries(0); }

  // With ids of parts of speech below 5 and of entities below 3, and lemmas.
  void TakeTags() {
    config_.pos_size = 5;
    config_.ner_size = 3;
    config_.features = {models::ReaderFeature::kLemma};
    Tag(0, 4);
    Tag(1, 2);
    for (const char* lemma : {"who", "write", "hamlet", "?"}) query()->add_question_lemmas(lemma);
  }
  void Tag(int passage, int count) {
    while (query()->passage_tags_size() <= passage) query()->add_passage_tags();
    v1::PassageTags* const tags = query()->mutable_passage_tags(passage);
    tags->Clear();
    for (int i = 0; i < count; ++i) {
      tags->add_pos_ids(i % 5);
      tags->add_ner_ids(i % 3);
      tags->add_lemmas(i == 1 ? "write" : "other");
    }
  }

  absl::StatusOr<std::vector<ParsedQuery>> Parse() {
    absl::StatusOr<QueryLengths> lengths = MeasureQueries(request_.queries(), limits_);
    if (!lengths.ok()) return lengths.status();
    return ParseQueries(request_.queries(), config_, *tokenizer_);
  }

  void ExpectError(const std::string& start) {
    const absl::Status status = Parse().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << start;
    EXPECT_THAT(std::string(status.message()), StartsWith(start));
  }

  std::unique_ptr<models::Tokenizer> tokenizer_;
  models::ReaderConfig config_;
  calls::RequestLimits limits_;
  v1::AnswerRequest request_;
};

TEST_F(AnswerParserTest, KeepsIdsPlacesAndFeatures) {
  config_.features = {models::ReaderFeature::kExact, models::ReaderFeature::kTf};
  query()->set_passages(0, "\u00c9t\u00e9 Shakespeare wrote");
  const auto parsed = Checked(Parse());
  ASSERT_EQ(parsed->size(), 1u);
  const ParsedQuery& first = (*parsed)[0];
  EXPECT_THAT(first.question, ElementsAre(2, 3, 4, 6));
  ASSERT_EQ(first.passages.size(), 2u);
  EXPECT_THAT(first.passages[0].ids, ElementsAre(1, 5, 3));
  EXPECT_EQ(first.num_tokens, 4 + 3 + 2);
  EXPECT_EQ(first.unknown, 3);
  ASSERT_EQ(first.passages[0].places.size(), 3u);
  const TokenPlace& second = first.passages[0].places[1];
  EXPECT_EQ(second.begin_byte, 6u);
  EXPECT_EQ(second.end_byte, 17u);
  EXPECT_EQ(second.begin_char, 4u);
  EXPECT_EQ(second.end_char, 15u);
  constexpr float kThird = 1.0f / 3;
  EXPECT_THAT(first.passages[0].features, ElementsAre(0, kThird, 0, kThird, 1, kThird));
}

TEST_F(AnswerParserTest, TheRequestOfTheseTestsIsGoodWithTagsToo) {
  TakeTags();
  const auto parsed = Checked(Parse());
  EXPECT_THAT((*parsed)[0].passages[0].features, ElementsAre(0, 1, 0, 0));
  const std::vector<QueryPart> parts = CutQueries(request_.queries(), *parsed, 20);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].passages[1].pos, request_.queries(0).passage_tags(1).pos_ids().data());
  EXPECT_EQ(parts[0].passages[1].ner, request_.queries(0).passage_tags(1).ner_ids().data());
}

TEST_F(AnswerParserTest, TextsWithoutTokens) {
  query()->set_question("");
  ExpectError("queries[0].question: empty, expected at least one token");
  query()->set_question(" \n\u3000");
  ExpectError("queries[0].question: only white space, expected at least one token");
  query()->set_question("Who?");
  query()->set_passages(1, "");
  ExpectError("queries[0].passages[1]: empty, expected at least one token");
  query()->set_passages(1, "\t ");
  ExpectError("queries[0].passages[1]: only white space, expected at least one token");
  query()->clear_passages();
  ExpectError("queries[0].passages: empty, expected at least one");
  request_.clear_queries();
  ExpectError("queries: empty, expected at least one");
}

TEST_F(AnswerParserTest, TextsThatAreNoUtf8) {
  query()->set_passages(1, "Nobody\xff knows");
  ExpectError("queries[0].passages[1]: ");
  EXPECT_THAT(std::string(Parse().status().message()), ::testing::HasSubstr("6"));
  query()->set_question("\xc3");
  ExpectError("queries[0].question: ");
}

TEST_F(AnswerParserTest, TextsOverTheLimitOfTokens) {
  query()->set_passages(1, "a b c d e f g h i j k l m");
  ExpectError(
      "queries[0].passages[1]: at least 11 tokens are too many, expected at most 10 "
      "(--max_sequence_tokens)");
  query()->set_question("a b c d e f g h i j k l m");
  ExpectError(
      "queries[0].question: at least 11 tokens are too many, expected at most 10 "
      "(--max_sequence_tokens)");
  query()->set_question("Who wrote Hamlet?");
  query()->set_passages(1, "a b c d e f g h i j");
  limits_.max_batch_tokens = 13;
  ExpectError(
      "queries[0].passages[1]: 10 tokens and the 4 of the question are too many, expected at most "
      "13 together (--max_batch_tokens)");
  limits_.max_batch_tokens = 14;
  EXPECT_TRUE(Parse().ok());
}

TEST_F(AnswerParserTest, TooManyQueriesPassagesAndTokens) {
  for (int i = 0; i < 7; ++i) query()->add_passages("a");
  ExpectError(
      "queries: 9 passages are too many, expected at most 8 (--max_sequences_per_request); send "
      "several calls");
  request_.clear_queries();
  for (int i = 0; i < 9; ++i) Add("a", {});
  ExpectError("queries: 9 are too many, expected at most 8 (--max_sequences_per_request)");
  request_.clear_queries();
  // Each passage is a part of its own, and each part has the question.
  Add("a b c d e f g", {"a b c d e f g", "a b c d e f g", "a b c d e f g", "a b c d e f g"});
  EXPECT_TRUE(Parse().ok());
  limits_.max_request_tokens = 56;
  EXPECT_TRUE(Parse().ok());
  limits_.max_request_tokens = 55;
  ExpectError("queries: more than 55 tokens in all, expected at most that (--max_queue_tokens)");
}

TEST_F(AnswerParserTest, TagsOfTheWrongNumberOrKind) {
  Tag(0, 4);
  ExpectError("queries[0].passage_tags: expected none, found 1; the model takes no tags");
  query()->clear_passage_tags();
  query()->add_question_lemmas("who");
  ExpectError("queries[0].question_lemmas: ");
  query()->clear_question_lemmas();
  EXPECT_TRUE(Parse().ok());

  TakeTags();
  ASSERT_TRUE(Parse().ok());
  query()->mutable_passage_tags()->RemoveLast();
  ExpectError("queries[0].passage_tags: expected 2, one per passage, found 1");
  query()->clear_passage_tags();
  ExpectError("queries[0].passage_tags: expected 2, one per passage, found 0");
  Tag(0, 4);
  Tag(1, 3);
  ExpectError(
      "queries[0].passage_tags[1].pos_ids: expected 2, one per token of the passage, found 3");
  Tag(1, 2);
  query()->mutable_passage_tags(1)->set_pos_ids(1, 5);
  ExpectError("queries[0].passage_tags[1].pos_ids[1]: expected an id from 0 to 4, found 5");
  query()->mutable_passage_tags(1)->set_pos_ids(1, -1);
  ExpectError("queries[0].passage_tags[1].pos_ids[1]: ");
  Tag(1, 2);
  query()->mutable_passage_tags(1)->set_ner_ids(0, 3);
  ExpectError("queries[0].passage_tags[1].ner_ids[0]: expected an id from 0 to 2, found 3");
  Tag(1, 2);
  query()->mutable_passage_tags(0)->clear_lemmas();
  ExpectError(
      "queries[0].passage_tags[0].lemmas: expected 4, one per token of the passage, found 0");
  Tag(0, 4);
  query()->clear_question_lemmas();
  ExpectError("queries[0].question_lemmas: expected 4, one per token of the question, found 0");
}

TEST_F(AnswerParserTest, NumbersOutOfRange) {
  const auto error = [this] {
    const absl::Status status = ParseAnswerOptions(request_, 15).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  for (const int top_n : {-1, 101, 1 << 30}) {
    request_.set_top_n(top_n);
    EXPECT_EQ(error(),
              absl::StrCat("top_n: ", top_n, " is out of range, expected 1 to 100, or 0 for 1"));
  }
  request_.set_top_n(100);
  for (const int tokens : {-1, 1001, 1 << 30}) {
    request_.set_max_answer_tokens(tokens);
    EXPECT_EQ(error(), absl::StrCat("max_answer_tokens: ", tokens,
                                    " is out of range, expected 1 to 1000, or 0 for the model's "
                                    "own, which is 15"));
  }
}

TEST_F(AnswerParserTest, OptionsAndTheirDefaults) {
  auto options = Checked(ParseAnswerOptions(request_, 15));
  EXPECT_EQ(options->top_n, 1);
  EXPECT_EQ(options->spans.top_n, 1);
  EXPECT_EQ(options->spans.max_length, 15);
  EXPECT_FALSE(options->one_per_passage);
  EXPECT_FALSE(options->spans.no_overlap);
  request_.set_top_n(100);
  request_.set_max_answer_tokens(1000);
  request_.set_no_overlap(true);
  options = Checked(ParseAnswerOptions(request_, 15));
  EXPECT_EQ(options->top_n, 100);
  EXPECT_EQ(options->spans.top_n, 100);
  EXPECT_EQ(options->spans.max_length, 1000);
  EXPECT_TRUE(options->spans.no_overlap);
  request_.set_one_per_passage(true);
  options = Checked(ParseAnswerOptions(request_, 15));
  EXPECT_TRUE(options->one_per_passage);
  EXPECT_EQ(options->top_n, 100);
  EXPECT_EQ(options->spans.top_n, 1);
}

TEST_F(AnswerParserTest, QueriesAreCutBetweenPassages) {
  limits_.max_sequence_tokens = 16;
  limits_.max_batch_tokens = 20;
  request_.clear_queries();
  Add("a b c d", {"a b c", "a b c d e f g h i j k l m", "a b c", "a", "a b"});
  Add("a", {"b"});
  const auto parsed = Checked(Parse());
  const std::vector<QueryPart> parts =
      CutQueries(request_.queries(), *parsed, limits_.max_batch_tokens);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].query, 0);
  EXPECT_EQ(parts[0].first_passage, 0);
  EXPECT_EQ(parts[0].passages.size(), 2u);
  EXPECT_EQ(parts[0].num_tokens, 20);
  EXPECT_FALSE(parts[0].is_last);
  EXPECT_EQ(parts[1].query, 0);
  EXPECT_EQ(parts[1].first_passage, 2);
  EXPECT_EQ(parts[1].passages.size(), 3u);
  EXPECT_EQ(parts[1].num_tokens, 10);
  EXPECT_TRUE(parts[1].is_last);
  EXPECT_EQ(parts[2].query, 1);
  EXPECT_EQ(parts[2].first_passage, 0);
  EXPECT_EQ(parts[2].num_tokens, 2);
  EXPECT_TRUE(parts[2].is_last);
  int64_t total = 0;
  for (const QueryPart& part : parts) {
    EXPECT_EQ(part.question, (*parsed)[part.query].question.data());
    int tokens = part.question_length;
    for (size_t i = 0; i < part.passages.size(); ++i) {
      const ParsedPassage& from = (*parsed)[part.query].passages[part.first_passage + i];
      EXPECT_EQ(part.passages[i].ids, from.ids.data());
      EXPECT_EQ(part.passages[i].features, nullptr);
      tokens += part.passages[i].length;
    }
    EXPECT_EQ(part.num_tokens, tokens);
    total += tokens;
  }
  EXPECT_EQ(MeasureQueries(request_.queries(), limits_)->total, total);
}

TEST_F(AnswerParserTest, LengthsAreThoseOfAllTexts) {
  const auto lengths = Checked(MeasureQueries(request_.queries(), limits_));
  EXPECT_THAT(lengths->lengths, ElementsAre(4, 4, 2));
  EXPECT_EQ(lengths->longest, 4);
  EXPECT_EQ(lengths->total, 10);
  const QueryBytes plain = EstimateQueryBytes(*lengths, config_);
  config_.features = {models::ReaderFeature::kExact};
  const QueryBytes with_feature = EstimateQueryBytes(*lengths, config_);
  EXPECT_EQ(with_feature.kept, plain.kept + 40);
  EXPECT_GT(plain.peak, plain.kept);
}

TEST_F(AnswerParserTest, TheLongestSpanIsThatOfItsBytes) {
  const std::vector<TokenPlace> places = {{0, 1}, {2, 3}, {4, 100}, {101, 102}, {103, 104}};
  EXPECT_EQ(LongestSpanBytes(places, 1), 96);
  EXPECT_EQ(LongestSpanBytes(places, 2), 98);
  EXPECT_EQ(LongestSpanBytes(places, 3), 100);
  EXPECT_EQ(LongestSpanBytes(places, 1000), 104);
  EXPECT_EQ(LongestSpanBytes({}, 5), 0);
}

}  // namespace
}  // namespace sru::server::tasks
