#include "server/calls/messages/request_parser.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/text/tokenizers.h"
#include "models/text/vocabulary.h"
#include "server/base/interruption.h"
#include "server/calls/message_cord.h"
#include "server/calls/messages/wire_pooling.h"
#include "tests/testing/checked.h"
#include "tests/testing/test_files.h"

namespace sru::server::calls {
namespace {

using ::sru::testing::Checked;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr int kInputSize = 2;

class RequestParserTest : public ::testing::Test {
 protected:
  RequestParserTest() {
    auto vocabulary =
        Checked(models::Vocabulary::Parse("<oov>\nhow\nmany\ncats\n", 4, "vocab.txt"));
    tokenizer_ = models::MakeWordTokenizer(models::PreprocessingConfig(), *std::move(vocabulary),
                                           /*oov_id=*/0);
    words_.tokenizer = tokenizer_.get();
    words_.vocabulary_size = 4;
    words_.input_size = kInputSize;
    frames_.input_size = kInputSize;
    limits_.max_sequences = 3;
    limits_.max_sequence_tokens = 4;
    limits_.max_request_tokens = 10;
  }

  absl::StatusOr<ParsedSequences> Parse(const ModelInput& input) {
    tasks_.clear();
    return ParseSequences(request_.sequences(), request_.truncate(), input, limits_, &tasks_);
  }

  std::string Error(const ModelInput& input) {
    const absl::Status status = Parse(input).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  void AddFeatures(const std::vector<float>& values, int feature_size = kInputSize) {
    v1::Features* features = request_.add_sequences()->mutable_features();
    features->set_data(values.data(), values.size() * sizeof(float));
    features->set_feature_size(feature_size);
  }

  static std::vector<bool> Truncated(const ParsedSequences& parsed) {
    std::vector<bool> truncated;
    for (const TokenCounts& counts : parsed.counts) truncated.push_back(counts.truncated);
    return truncated;
  }
  static std::vector<int> Unknown(const ParsedSequences& parsed) {
    std::vector<int> unknown;
    for (const TokenCounts& counts : parsed.counts) unknown.push_back(counts.unknown);
    return unknown;
  }

  std::unique_ptr<models::Tokenizer> tokenizer_;
  ModelInput words_;   // a model with a vocabulary
  ModelInput frames_;  // a model that takes features only
  RequestLimits limits_;
  std::vector<TokenTask> tasks_;
  v1::ClassifyRequest request_;
};

TEST_F(RequestParserTest, EndsWhenItsThreadIsInterrupted) {
  for (int i = 0; i < 3; ++i) request_.add_sequences()->set_text("cats");
  int asked = 0;
  const Interruption interruption([&asked] { return ++asked == 2; });
  EXPECT_TRUE(absl::IsCancelled(Parse(words_).status()));
  EXPECT_EQ(asked, 2);
}

TEST_F(RequestParserTest, ALargeMessageIsNotParsedOnWhenItsThreadIsInterrupted) {
  for (int i = 0; i < 3; ++i) request_.add_sequences()->set_text(std::string(1 << 20, 'a'));
  const absl::Cord bytes = ToCord(request_);
  v1::ClassifyRequest parsed;
  int asked = 0;
  {
    const Interruption counts([&asked] { return ++asked < 0; });
    ASSERT_TRUE(ParseMessage(bytes, &parsed).ok());
    EXPECT_EQ(parsed.SerializeAsString(), request_.SerializeAsString());
    EXPECT_GT(asked, 10);
  }
  const absl::Cord no_message(std::string(1 << 20, 'a'));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseMessage(no_message, &parsed)));
  asked = 0;
  const Interruption interruption([&asked] { return ++asked >= 5; });
  EXPECT_TRUE(absl::IsCancelled(ParseMessage(bytes, &parsed)));
  EXPECT_LT(asked, 10);
}

// Without an id for unknown tokens, one that the vocabulary lacks is an error.
TEST_F(RequestParserTest, TokensThatTheVocabularyLacks) {
  const auto bytes = models::MakeByteTokenizer({'a', 'b'});
  const ModelInput input{bytes.get(), /*vocabulary_size=*/2, kInputSize};
  v1::Tokens* tokens = request_.add_sequences()->mutable_tokens();
  tokens->add_values("b");
  tokens->add_values("a");
  auto parsed = Checked(Parse(input));
  EXPECT_THAT(tasks_[0].token_ids, ElementsAre(1, 0));
  tokens->add_values("c");
  EXPECT_THAT(Error(input), StartsWith("sequences[0].tokens.values[2]: not in the model's "));
  request_.mutable_sequences(0)->set_text("abc");
  EXPECT_THAT(Error(input), StartsWith("sequences[0].text: byte 2 of the text is 99 (<0x63>)"));
}

TEST_F(RequestParserTest, EveryFormOfInput) {
  request_.add_sequences()->set_text("how many dogs");
  v1::Tokens* tokens = request_.add_sequences()->mutable_tokens();
  tokens->add_values("many");
  tokens->add_values("How");
  v1::TokenIds* ids = request_.add_sequences()->mutable_token_ids();
  ids->add_values(3);
  auto parsed = Checked(Parse(words_));
  ASSERT_EQ(tasks_.size(), 3u);
  EXPECT_THAT(tasks_[0].token_ids, ElementsAre(1, 2, 0));
  EXPECT_EQ(tasks_[0].num_tokens, 3);
  EXPECT_THAT(tasks_[1].token_ids, ElementsAre(2, 0));
  EXPECT_EQ(tasks_[1].num_tokens, 2);
  EXPECT_THAT(tasks_[2].token_ids, ElementsAre(3));
  EXPECT_THAT(Truncated(*parsed), ElementsAre(false, false, false));
  EXPECT_TRUE(tasks_[0].features.empty());
}

TEST_F(RequestParserTest, CountsWhatTheVocabularyDoesNotHave) {
  limits_.max_sequences = 5;
  limits_.max_request_tokens = 20;
  request_.set_truncate(true);
  request_.add_sequences()->set_text("how many dogs dogs");
  // What is cut off is not counted.
  request_.add_sequences()->set_text("how many cats how dogs dogs");
  v1::Tokens* tokens = request_.add_sequences()->mutable_tokens();
  tokens->add_values("How");
  tokens->add_values("many");
  // The id of unknown words, but nobody looked for a word.
  request_.add_sequences()->mutable_token_ids()->add_values(0);
  AddFeatures({0, 0});
  const auto parsed = Checked(Parse(words_));
  EXPECT_THAT(Unknown(*parsed), ElementsAre(2, 0, 1, 0, 0));
  EXPECT_EQ(parsed->counts[1].computed, 4);
  EXPECT_EQ(parsed->words.words, 4 + 4 + 2);
  EXPECT_EQ(parsed->words.unknown, 3);
}

TEST_F(RequestParserTest, NothingIsUnknownWithoutAnIdForIt) {
  const auto bytes = models::MakeByteTokenizer({'a', 'b'});
  const ModelInput input{bytes.get(), /*vocabulary_size=*/2, kInputSize};
  request_.add_sequences()->set_text("abba");
  const auto parsed = Checked(Parse(input));
  EXPECT_THAT(Unknown(*parsed), ElementsAre(0));
  EXPECT_EQ(parsed->words.words, 4);
  EXPECT_EQ(parsed->words.unknown, 0);
}

TEST_F(RequestParserTest, SequencesMayBeEmptyIfTheCallerSaysSo) {
  limits_.max_sequences = 6;
  request_.add_sequences()->set_text("");
  request_.add_sequences()->set_text(" \n\t");
  request_.add_sequences()->mutable_tokens();
  request_.add_sequences()->mutable_token_ids();
  AddFeatures({});
  request_.add_sequences()->set_text("how");
  EXPECT_THAT(Error(words_), StartsWith("sequences[0].text: no tokens are left"));
  words_.may_be_empty = true;
  const auto parsed = Checked(Parse(words_));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(tasks_[i].num_tokens, 0) << i;
    EXPECT_EQ(parsed->counts[i].computed, 0) << i;
  }
  EXPECT_EQ(parsed->counts[5].computed, 1);
  // A form that the model does not take is wrong whatever it holds, and so is none at all.
  request_.mutable_sequences(4)->mutable_features()->set_feature_size(kInputSize + 1);
  EXPECT_THAT(Error(words_), StartsWith("sequences[4].features.feature_size: expected 2"));
  request_.mutable_sequences(3)->Clear();
  EXPECT_THAT(Error(words_), StartsWith("sequences[3]: empty sequence, expected one of"));
}

TEST_F(RequestParserTest, FeaturesWithAndWithoutVocabulary) {
  AddFeatures({1, 2, 3, 4});
  for (const ModelInput& input : {words_, frames_}) {
    auto parsed = Checked(Parse(input));
    EXPECT_THAT(tasks_[0].features, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(tasks_[0].num_tokens, 2);
    EXPECT_TRUE(tasks_[0].token_ids.empty());
  }
}

TEST_F(RequestParserTest, NoSequences) {
  EXPECT_EQ(Error(words_), "sequences: empty, expected at least one");
}

TEST_F(RequestParserTest, TooManySequences) {
  for (int i = 0; i < 4; ++i) request_.add_sequences()->set_text("how");
  EXPECT_THAT(Error(words_), StartsWith("sequences: 4 are too many, expected at most 3"));
}

TEST_F(RequestParserTest, TooManyTokensInAll) {
  limits_.max_request_tokens = 5;
  request_.add_sequences()->set_text("how many cats");
  request_.add_sequences()->set_text("how many cats");
  EXPECT_THAT(Error(words_), StartsWith("sequences: more than 5 tokens in all"));
}

TEST_F(RequestParserTest, EmptySequences) {
  request_.add_sequences()->set_text("how");
  request_.add_sequences();
  EXPECT_EQ(Error(words_),
            "sequences[1]: empty sequence, expected one of text, tokens, token_ids, features");

  request_.mutable_sequences(1)->set_text(" \t ");
  EXPECT_THAT(Error(words_), StartsWith("sequences[1].text: no tokens are left"));
  request_.mutable_sequences(1)->mutable_tokens();
  EXPECT_EQ(Error(words_), "sequences[1].tokens.values: empty, expected at least one");
  request_.mutable_sequences(1)->mutable_token_ids();
  EXPECT_EQ(Error(words_), "sequences[1].token_ids.values: empty, expected at least one");
  request_.mutable_sequences(1)->mutable_features()->set_feature_size(kInputSize);
  EXPECT_EQ(Error(words_), "sequences[1].features.data: empty, expected at least one frame");
  // The call may have a way to send such a sequence.
  words_.empty_advice = "skip it";
  EXPECT_EQ(Error(words_),
            "sequences[1].features.data: empty, expected at least one frame; skip it");
  request_.mutable_sequences(1)->set_text(" \t ");
  EXPECT_THAT(Error(words_), EndsWith("expected at least one word; skip it"));
  request_.mutable_sequences(1)->mutable_tokens();
  EXPECT_THAT(Error(words_), EndsWith("expected at least one; skip it"));
  request_.mutable_sequences(1)->mutable_token_ids();
  EXPECT_THAT(Error(words_), EndsWith("expected at least one; skip it"));
}

TEST_F(RequestParserTest, TokenIdsOutOfRange) {
  for (const int32_t id :
       {4, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    request_.clear_sequences();
    request_.add_sequences()->set_text("how");
    v1::TokenIds* ids = request_.add_sequences()->mutable_token_ids();
    ids->add_values(1);
    ids->add_values(id);
    EXPECT_EQ(Error(words_), "sequences[1].token_ids.values[1]: " + std::to_string(id) +
                                 " is out of range, expected 0 to 3");
  }
}

TEST_F(RequestParserTest, FeaturesOfTheWrongSize) {
  AddFeatures({1, 2, 3}, 3);
  EXPECT_EQ(Error(frames_),
            "sequences[0].features.feature_size: expected 2 (the model's input_size), found 3");
  request_.clear_sequences();
  AddFeatures({1, 2, 3});
  EXPECT_EQ(Error(frames_),
            "sequences[0].features.data: 12 bytes, expected a multiple of 8 (feature_size 2 x 4 "
            "bytes)");
  request_.clear_sequences();
  AddFeatures({1, 2}, -2);
  EXPECT_THAT(Error(frames_), StartsWith("sequences[0].features.feature_size"));
}

TEST_F(RequestParserTest, FeaturesThatAreNotFinite) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    request_.clear_sequences();
    AddFeatures({1, 2, 3, bad});
    EXPECT_THAT(Error(frames_), StartsWith("sequences[0].features.data: value 1 of frame 1 is "));
  }
}

TEST_F(RequestParserTest, WordsForAModelWithoutVocabulary) {
  request_.add_sequences()->set_text("how");
  EXPECT_THAT(Error(frames_), StartsWith("sequences[0].text: the model has no tokenizer"));
  request_.mutable_sequences(0)->mutable_tokens()->add_values("how");
  EXPECT_THAT(Error(frames_), StartsWith("sequences[0].tokens: the model has no tokenizer"));
  request_.mutable_sequences(0)->mutable_token_ids()->add_values(0);
  EXPECT_THAT(Error(frames_), StartsWith("sequences[0].token_ids: the model has no vocabulary"));
}

TEST_F(RequestParserTest, TooLongIsRefused) {
  request_.add_sequences()->set_text("how how how how");
  EXPECT_TRUE(Parse(words_).ok());
  request_.mutable_sequences(0)->set_text("how how how how how how");
  EXPECT_THAT(Error(words_), StartsWith("sequences[0].text: at least 5 tokens are too many, "
                                        "expected at most 4 (--max_sequence_tokens)"));
  for (int i = 0; i < 6; ++i) request_.mutable_sequences(0)->mutable_tokens()->add_values("how");
  EXPECT_THAT(Error(words_), StartsWith("sequences[0].tokens.values: 6 tokens are too many"));
  for (int i = 0; i < 6; ++i) request_.mutable_sequences(0)->mutable_token_ids()->add_values(1);
  EXPECT_THAT(Error(words_), StartsWith("sequences[0].token_ids.values: 6 tokens are too many"));
  request_.clear_sequences();
  AddFeatures(std::vector<float>(6 * kInputSize));
  EXPECT_THAT(Error(words_), StartsWith("sequences[0].features.data: 6 tokens are too many"));
}

// Score, which language models answer, has no field `truncate`.
TEST_F(RequestParserTest, TheErrorOfATooLongSequenceAdvisesWhatTheCallHas) {
  models::TempDirectory directory;
  models::WriteSmallLanguageModel(directory, "lm");
  models::WriteSmallModel(directory, "trec");
  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(kernels::CreateBackend("reference", {}, &backend).ok());
  request_.add_sequences()->set_text("a b c a b c");
  const auto error_of = [&](const std::string& name) {
    auto model = Checked(models::Model::Load(directory.path(name), name, 1, *backend, {}));
    return model.ok() ? Error(InputOf(**model)) : "";
  };
  EXPECT_THAT(error_of("lm"), EndsWith("; divide it and continue with the states of Score"));
  EXPECT_THAT(error_of("trec"), EndsWith("; shorten the sequence or set truncate"));
}

TEST_F(RequestParserTest, TooLongIsCutWhenAsked) {
  request_.set_truncate(true);
  limits_.max_sequences = 4;
  limits_.max_request_tokens = 100;
  request_.add_sequences()->set_text("cats many how cats how how");
  v1::Sequence* tokens = request_.add_sequences();
  v1::Sequence* ids = request_.add_sequences();
  for (int i = 0; i < 6; ++i) {
    tokens->mutable_tokens()->add_values("many");
    ids->mutable_token_ids()->add_values(i % 4);
  }
  AddFeatures({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  auto parsed = Checked(Parse(words_));
  EXPECT_THAT(tasks_[0].token_ids, ElementsAre(3, 2, 1, 3));
  EXPECT_THAT(tasks_[1].token_ids, ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(tasks_[2].token_ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(tasks_[3].features, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  for (const TokenTask& task : tasks_) EXPECT_EQ(task.num_tokens, 4);
  EXPECT_THAT(Truncated(*parsed), ElementsAre(true, true, true, true));
}

TEST_F(RequestParserTest, TextThatIsNotUtf8) {
  // Cannot come from the wire, where ParseMessage() finds it first, but must never crash.
  request_.add_sequences()->set_text("how \xff");
  EXPECT_THAT(Error(words_), StartsWith("sequences[0].text: "));
}

TEST(ParseMessageTest, NamesTheFieldThatIsNotUtf8) {
  v1::EncodeRequest request;
  request.add_sequences()->set_text("ok");
  request.add_sequences()->mutable_tokens()->add_values("XX");
  std::string bytes = request.SerializeAsString();
  const auto parse = [](const std::string& bytes, v1::EncodeRequest* message) {
    // In two slices, as messages from a network may be.
    const std::string end = bytes.substr(std::min<size_t>(3, bytes.size()));
    absl::Cord pieces(bytes.substr(0, 3));
    pieces.Append(absl::MakeCordFromExternal(end, [] {}));
    return ParseMessage(pieces, message);
  };
  v1::EncodeRequest parsed;
  ASSERT_TRUE(parse(bytes, &parsed).ok());
  EXPECT_EQ(parsed.sequences(1).tokens().values(0), "XX");

  bytes.replace(bytes.find("XX"), 2, "\xc0\x80");
  const absl::Status status = parse(bytes, &parsed);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "sequences[1].tokens.values[0]: expected UTF-8, found byte 0xc0 at offset 0");
}

TEST(ParseMessageTest, AnEmptyMessageIsAMessage) {
  v1::ListModelsRequest request;
  EXPECT_TRUE(ParseMessage(absl::Cord(), &request).ok());
}

TEST(ParseParametersTest, Priority) {
  EXPECT_EQ(*ParsePriority(v1::PRIORITY_UNSPECIFIED), batching::Priority::kNormal);
  EXPECT_EQ(*ParsePriority(v1::PRIORITY_LOW), batching::Priority::kLow);
  EXPECT_EQ(*ParsePriority(v1::PRIORITY_NORMAL), batching::Priority::kNormal);
  EXPECT_EQ(*ParsePriority(v1::PRIORITY_HIGH), batching::Priority::kHigh);
  for (const int unknown : {4, -1}) {
    const absl::Status status = ParsePriority(static_cast<v1::Priority>(unknown)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), StartsWith("priority: " + std::to_string(unknown)));
  }
}

}  // namespace
}  // namespace sru::server::calls
