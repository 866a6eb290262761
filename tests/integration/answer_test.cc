// Answer over the wire: spans that a plain run of the model gives, every option, and every way to
// ask wrongly.
#include <algorithm>
#include <future>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "server/base/log.h"
#include "tests/integration/plain_reader.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/unread_call.h"
#include "tests/testing/protos.h"
#include "tests/testing/small_reader.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kMethod[] = "/sru.v1.InferenceService/Answer";

// Words of the small reader's vocabulary and some that it does not have, of 1 to 4 bytes a
// character.
std::string Text(std::mt19937* random, int words) {
  static const char* const kWords[] = {"a", "B",  "c",       "d",          "\u00e9t\u00e9", "e",
                                       "f", "g?", "\u4e2d.", "\U0001F600", "x-y",           "a a"};
  std::string text;
  for (int i = 0; i < words; ++i)
    absl::StrAppend(&text, i > 0 ? " " : "", kWords[(*random)() % 12]);
  return text;
}

// A repository with a reader ("reader"), one that takes tags ("tagged"), one without a vocabulary
// ("wordless"), a classifier, a language model and an encoder.
class ReaderRepository {
 public:
  ReaderRepository() {
    models::WriteSmallReader(directory_, "reader/1");
    models::WriteSmallReader(directory_, "tagged/1", /*tags=*/true);
    nlohmann::json wordless = models::SmallReaderConfig();
    wordless.erase("preprocessing");
    wordless["embedding"].erase("oov_id");
    directory_.Write("wordless/1/config.json", wordless.dump());
    directory_.Write("wordless/1/model.safetensors",
                     models::Safetensors(models::SmallReaderTensors()));
    models::WriteSmallModel(directory_, "classifier/1");
    models::WriteSmallLanguageModel(directory_, "lm/1");
  }
  std::string path(const std::string& name = "") const { return directory_.path(name); }

 private:
  models::TempDirectory directory_;
};

class AnswerTest : public ::testing::Test {
 protected:
  static server::Options Options() {
    server::Options options = TestOptions(repository_->path());
    options.batching.backend = "cpu";
    return options;
  }

  static void SetUpTestSuite() {
    google::protobuf::SetLogHandler(nullptr);
    repository_ = new ReaderRepository;
    reader_ = new PlainReader(repository_->path("reader/1"));
    tagged_ = new PlainReader(repository_->path("tagged/1"));
    server_ = new RunningServer(Options());
    server::Options small = Options();
    small.batching.engine.batcher.max_batch_tokens = 64;
    small.batching.engine.batcher.max_batch_sequences = 3;
    small.rpc.limits.max_sequence_tokens = 48;
    small.rpc.limits.max_sequences = 16;
    small_ = new RunningServer(small);
  }
  static void TearDownTestSuite() {
    delete std::exchange(small_, nullptr);
    delete std::exchange(server_, nullptr);
    delete std::exchange(tagged_, nullptr);
    delete std::exchange(reader_, nullptr);
    delete std::exchange(repository_, nullptr);
  }

  void SetUp() override {
    ASSERT_TRUE(reader_->loaded() && tagged_->loaded());
    request_.set_model("reader");
    AddQuery("a b?", {"c d a b .", "e f"});
  }

  v1::Query* AddQuery(const std::string& question, const std::vector<std::string>& passages) {
    v1::Query* const query = request_.add_queries();
    query->set_question(question);
    for (const std::string& passage : passages) query->add_passages(passage);
    return query;
  }
  v1::Query* query() { return request_.mutable_queries(0); }

  void AddRandomQueries(int count, int max_passages, int max_words) {
    for (int q = 0; q < count; ++q) {
      v1::Query* const added = AddQuery(Text(&random_, 1 + static_cast<int>(random_() % 8)), {});
      const int passages = 1 + static_cast<int>(random_() % max_passages);
      for (int i = 0; i < passages; ++i) {
        added->add_passages(Text(&random_, 1 + static_cast<int>(random_() % max_words)));
      }
    }
  }

  // The server gives what a plain run of the model gives.
  void ExpectPlainAnswers(RunningServer& server, const PlainReader& plain) {
    const v1::AnswerResponse response = server.Must(request_);
    const std::vector<v1::QueryAnswers> expected = plain.Answer(request_);
    ASSERT_EQ(response.results_size(), static_cast<int>(expected.size()));
    for (int i = 0; i < response.results_size(); ++i) {
      SCOPED_TRACE(absl::StrCat("query ", i));
      ExpectSameAnswers(response.results(i), expected[i]);
    }
  }

  // The call fails so, and a good one is answered as before.
  void ExpectError(const std::string& start, StatusCode code = StatusCode::INVALID_ARGUMENT,
                   RunningServer* server = server_) {
    EXPECT_THAT(server->Call(request_), Fails(code, StartsWith(start)));
    const auto good = Message<v1::AnswerRequest>(
        "model: 'reader' queries { question: 'a b?' passages: 'c d a b .' }");
    const v1::AnswerResponse answered = server->Must(good);
    ASSERT_EQ(answered.results_size(), 1);
    ExpectSameAnswers(answered.results(0), reader_->Answer(good)[0]);
  }

  static inline ReaderRepository* repository_ = nullptr;
  static inline PlainReader* reader_ = nullptr;
  static inline PlainReader* tagged_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  static inline RunningServer* small_ = nullptr;  // batches of 64 tokens and 3 passages
  v1::AnswerRequest request_;
  std::mt19937 random_{5};
};

TEST_F(AnswerTest, CountsWhatTheVocabularyDoesNotHave) {
  const char* const kTextTokens = "sru_text_tokens_total{model=\"reader\",version=\"1\"}";
  const char* const kUnknown = "sru_unknown_tokens_total{model=\"reader\",version=\"1\"}";
  const double text_tokens = server_->Metric(kTextTokens);
  const double unknown = server_->Metric(kUnknown);
  query()->set_question("a zz?");
  query()->set_passages(0, "zz yy a .");
  const v1::AnswerResponse response = server_->Must(request_);
  EXPECT_EQ(response.results(0).token_count(), 3 + 4 + 2);
  EXPECT_EQ(response.results(0).unknown_tokens(), 3);
  EXPECT_EQ(server_->Metric(kTextTokens), text_tokens + 9);
  EXPECT_EQ(server_->Metric(kUnknown), unknown + 3);
}

TEST_F(AnswerTest, AnswersEveryField) {
  const v1::AnswerResponse response = server_->Must(request_);
  EXPECT_EQ(response.model(), "reader");
  EXPECT_EQ(response.version(), 1);
  ASSERT_EQ(response.results_size(), 1);
  EXPECT_EQ(response.results(0).token_count(), 3 + 5 + 2);
  EXPECT_EQ(response.results(0).unknown_tokens(), 0);
  ASSERT_EQ(response.results(0).answers_size(), 1);
  const v1::SpanAnswer& answer = response.results(0).answers(0);
  EXPECT_EQ(answer.text(),
            query()
                ->passages(answer.passage())
                .substr(answer.start_byte(), answer.end_byte() - answer.start_byte()));
  EXPECT_GT(answer.probability(), 0);
  EXPECT_LT(answer.probability(), 1);
  EXPECT_GT(response.times().compute_us(), 0);
  EXPECT_GE(response.times().total_us(),
            response.times().tokenize_us() + response.times().compute_us());
  ExpectPlainAnswers(*server_, *reader_);
}

TEST_F(AnswerTest, QueriesOfAnySizeInOneCall) {
  AddRandomQueries(12, 8, 60);
  for (const int top_n : {0, 1, 7, 100}) {
    request_.set_top_n(top_n);
    ExpectPlainAnswers(*server_, *reader_);
  }
}

TEST_F(AnswerTest, EveryOption) {
  AddRandomQueries(6, 5, 40);
  for (const int top_n : {1, 3, 100}) {
    for (const int max_answer_tokens : {0, 1, 2, 30, 1000}) {
      for (const bool one_per_passage : {false, true}) {
        for (const bool no_overlap : {false, true}) {
          SCOPED_TRACE(
              absl::StrCat(top_n, " ", max_answer_tokens, " ", one_per_passage, " ", no_overlap));
          request_.set_top_n(top_n);
          request_.set_max_answer_tokens(max_answer_tokens);
          request_.set_one_per_passage(one_per_passage);
          request_.set_no_overlap(no_overlap);
          ExpectPlainAnswers(*server_, *reader_);
        }
      }
    }
  }
  request_.set_one_per_passage(true);
  const v1::AnswerResponse response = server_->Must(request_);
  for (int q = 0; q < response.results_size(); ++q) {
    EXPECT_EQ(response.results(q).answers_size(), request_.queries(q).passages_size());
  }
}

TEST_F(AnswerTest, OffsetsAreThoseOfBytesAndOfCharacters) {
  query()->clear_passages();
  query()->add_passages("\u00e9t\u00e9 \U0001F600 a");
  request_.set_top_n(100);
  request_.set_max_answer_tokens(1);
  const v1::AnswerResponse response = server_->Must(request_);
  ASSERT_EQ(response.results(0).answers_size(), 3);
  std::vector<std::vector<int>> places;
  for (const v1::SpanAnswer& answer : response.results(0).answers()) {
    places.push_back(
        {answer.start_byte(), answer.end_byte(), answer.start_char(), answer.end_char()});
  }
  std::sort(places.begin(), places.end());
  EXPECT_THAT(places, ElementsAre(ElementsAre(0, 5, 0, 3), ElementsAre(6, 10, 4, 5),
                                  ElementsAre(11, 12, 6, 7)));
  ExpectPlainAnswers(*server_, *reader_);
}

// Passages that are equal have equal scores.
TEST_F(AnswerTest, OfEqualsTheEarlierPassageComesFirst) {
  query()->clear_passages();
  for (int i = 0; i < 4; ++i) query()->add_passages("a b c d");
  request_.set_top_n(4);
  const v1::AnswerResponse response = server_->Must(request_);
  ASSERT_EQ(response.results(0).answers_size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(response.results(0).answers(i).passage(), i);
    EXPECT_EQ(response.results(0).answers(i).log_score(),
              response.results(0).answers(0).log_score());
  }
}

// A query that does not fit into a batch is computed in parts, which changes nothing.
TEST_F(AnswerTest, LargeQueriesAreCutBetweenPassages) {
  const std::string tokens = "sru_batch_tokens_sum{model=\"reader\",version=\"1\"}";
  query()->set_question("a b c d e f");  // 6 tokens
  query()->clear_passages();
  for (int i = 0; i < 5; ++i) query()->add_passages(Text(&random_, 12) + " a a a a a a a a a a");
  AddQuery("a", {"b"});
  request_.set_top_n(20);
  const double before = small_->Metric(tokens);
  ExpectPlainAnswers(*small_, *reader_);
  const v1::AnswerResponse response = small_->Must(request_);
  int whole = 0;
  for (const v1::QueryAnswers& result : response.results()) whole += result.token_count();
  // Each part has the question once more.
  const double computed = (small_->Metric(tokens) - before) / 2;
  EXPECT_GT(computed, whole);
  EXPECT_LE(computed, whole + 4 * 6);
  ExpectPlainAnswers(*server_, *reader_);
}

TEST_F(AnswerTest, MorePassagesThanABatchHasSequences) {
  query()->clear_passages();
  for (int i = 0; i < 14; ++i) query()->add_passages(Text(&random_, 1 + i % 3));
  request_.set_top_n(100);
  ExpectPlainAnswers(*small_, *reader_);
}

TEST_F(AnswerTest, CallsThatRunTogetherDoNotMix) {
  constexpr int kCalls = 40;
  std::vector<v1::AnswerRequest> requests(kCalls);
  std::vector<std::vector<v1::QueryAnswers>> expected;
  for (v1::AnswerRequest& request : requests) {
    request_.clear_queries();
    AddRandomQueries(3, 3, 12);
    request = request_;
    request.set_top_n(5);
    expected.push_back(reader_->Answer(request));
  }
  for (RunningServer* server : {server_, small_}) {
    std::vector<std::future<v1::AnswerResponse>> answers;
    for (const v1::AnswerRequest& request : requests) {
      answers.push_back(
          std::async(std::launch::async, [server, &request] { return server->Must(request); }));
    }
    for (int i = 0; i < kCalls; ++i) {
      const v1::AnswerResponse response = answers[i].get();
      ASSERT_EQ(response.results_size(), 3);
      for (int q = 0; q < 3; ++q) ExpectSameAnswers(response.results(q), expected[i][q]);
    }
  }
}

class TaggedAnswerTest : public AnswerTest {
 protected:
  void SetUp() override {
    AnswerTest::SetUp();
    request_.set_model("tagged");
    Tag(query());
  }

  // The tokens of the request's first query: 3, then 5 and 2.
  void Tag(v1::Query* query) {
    query->clear_passage_tags();
    query->clear_question_lemmas();
    for (const char* lemma : {"l0", "l1", "l2"}) query->add_question_lemmas(lemma);
    for (const int length : {5, 2}) {
      v1::PassageTags* const tags = query->add_passage_tags();
      for (int i = 0; i < length; ++i) {
        tags->add_pos_ids(static_cast<int>(random_() % models::kSmallReaderPos));
        tags->add_ner_ids(static_cast<int>(random_() % models::kSmallReaderNer));
        tags->add_lemmas(absl::StrCat("l", random_() % 6));
      }
    }
  }
  v1::PassageTags* tags(int passage) { return query()->mutable_passage_tags(passage); }
};

TEST_F(TaggedAnswerTest, TagsAreWhatTheModelGets) {
  request_.set_top_n(100);
  std::set<std::string> different;
  for (int i = 0; i < 10; ++i) {
    Tag(query());
    ExpectPlainAnswers(*server_, *tagged_);
    different.insert(server_->Must(request_).results(0).SerializeAsString());
  }
  EXPECT_GT(different.size(), 5u);
}

// All that can be wrong is named by the parser's own test; the bounds here are those of the flags
// and the model.
TEST_F(TaggedAnswerTest, TagsOfTheWrongNumberOrKind) {
  tags(1)->add_pos_ids(0);
  ExpectError(
      "queries[0].passage_tags[1].pos_ids: expected 2, one per token of the passage, found 3");
  Tag(query());
  tags(1)->set_ner_ids(0, -1);
  ExpectError("queries[0].passage_tags[1].ner_ids[0]: expected an id from 0 to 2, found -1");
  // A model that takes none.
  Tag(query());
  request_.set_model("reader");
  ExpectError("queries[0].passage_tags: expected none, found 2; the model takes no tags");
}

TEST_F(AnswerTest, TextsThatAreNoUtf8AndBytesThatAreNoMessage) {
  const auto replaced = [this](const std::string& from, const std::string& to) {
    std::string bytes = request_.SerializeAsString();
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  query()->set_question("QUESTION");
  query()->set_passages(1, "PASSAGE");
  const auto fails = [](const std::string& message) {
    return Fails(StatusCode::INVALID_ARGUMENT, StartsWith(message));
  };
  EXPECT_THAT(server_->CallRaw(kMethod, replaced("PASSAGE", "PAS\xffSAGE")), fails(""));
  EXPECT_THAT(server_->CallRaw(kMethod, replaced("PASSAGE",
                                                 "PAS\xff"
                                                 "AGE")),
              fails("queries[0].passages[1]: expected UTF-8, found byte 0xff at offset 3"));
  EXPECT_THAT(server_->CallRaw(kMethod, replaced("QUESTION", "QUESTIO\xc3")),
              fails("queries[0].question: expected UTF-8, found byte 0xc3 at offset 7"));
  EXPECT_THAT(server_->CallRaw(kMethod, "\x1a\x05\x0a"), fails("message: malformed protobuf"));
}

TEST_F(AnswerTest, WhatIsWrongIsNamed) {
  query()->set_passages(1, "\u2003\n");
  ExpectError("queries[0].passages[1]: only white space, expected at least one token");
  std::string long_text;
  for (int i = 0; i < 2048; ++i) long_text += "a ";
  query()->set_passages(1, long_text.substr(0, 98));
  ExpectError(
      "queries[0].passages[1]: at least 49 tokens are too many, expected at most 48 "
      "(--max_sequence_tokens)",
      StatusCode::INVALID_ARGUMENT, small_);
  query()->set_question(long_text.substr(0, 40));
  query()->set_passages(1, long_text.substr(0, 90));
  ExpectError(
      "queries[0].passages[1]: 45 tokens and the 20 of the question are too many, expected "
      "at most 64 together (--max_batch_tokens)",
      StatusCode::INVALID_ARGUMENT, small_);
  query()->set_passages(1, long_text.substr(0, 88));
  ExpectPlainAnswers(*small_, *reader_);
  for (int i = 0; i < 9998; ++i) query()->add_passages("a");
  ExpectError(
      "queries: 10000 passages are too many, expected at most 1024 "
      "(--max_sequences_per_request); send several calls");
  request_.clear_queries();
  AddQuery("a", std::vector<std::string>(40, long_text));
  ExpectError(
      "queries: more than 65536 tokens in all, expected at most that "
      "(--max_queue_tokens); send several calls");
  request_.clear_queries();
  ExpectError("queries: empty, expected at least one");
  AddQuery("a", {"a"});
  request_.set_top_n(101);
  ExpectError("top_n: 101 is out of range, expected 1 to 100");
  request_.set_top_n(1);
  request_.set_max_answer_tokens(1001);
  ExpectError(
      "max_answer_tokens: 1001 is out of range, expected 1 to 1000, or 0 for the model's own, "
      "which is 4");
  request_.set_max_answer_tokens(0);
  request_.set_priority(static_cast<v1::Priority>(9));
  ExpectError("priority: 9 is unknown");
}

TEST_F(AnswerTest, ModelsThatDoNotAnswer) {
  request_.set_model("classifier");
  ExpectError("model: 'classifier' has the task classifier, Answer needs a reader",
              StatusCode::FAILED_PRECONDITION);
  request_.set_model("lm");
  ExpectError("model: 'lm' has the task language_model, Answer needs a reader",
              StatusCode::FAILED_PRECONDITION);
  request_.set_model("wordless");
  ExpectError("model: 'wordless' has no vocabulary, Answer needs a reader with one",
              StatusCode::FAILED_PRECONDITION);
  request_.set_model("nobody");
  ExpectError("model: 'nobody' is not loaded", StatusCode::NOT_FOUND);
  request_.set_model("reader");
  request_.set_version(2);
  ExpectError("version: model 'reader' has no version 2", StatusCode::NOT_FOUND);
  request_.clear_version();
  request_.clear_model();
  ExpectError("model: ");  // there are three readers
}

TEST_F(AnswerTest, OtherCallsOfAReader) {
  const auto expect = [](const grpc::Status& status, const std::string& needed) {
    EXPECT_THAT(status, Fails(StatusCode::FAILED_PRECONDITION,
                              StartsWith("model: 'reader' has the task reader, " + needed)));
  };
  const std::string asked = "model: 'reader' sequences { text: 'a' }";
  expect(server_->Call(Message<v1::ClassifyRequest>(asked)), "Classify needs a classifier");
  expect(server_->Call(Message<v1::EncodeRequest>(asked)), "Encode needs an encoder");
  expect(server_->Call(Message<v1::ScoreRequest>(asked)), "Score needs a language_model");
  grpc::ClientContext generate_context;
  const auto texts = server_->stub().Generate(
      &generate_context, Message<v1::GenerateRequest>("model: 'reader' prompt { text: 'a' }"));
  v1::GenerateResponse text;
  EXPECT_FALSE(texts->Read(&text));
  expect(texts->Finish(), "Generate needs a language_model");
  grpc::ClientContext stream_context;
  const auto stream = server_->stub().EncodeStream(&stream_context);
  stream->Write(Message<v1::EncodeStreamRequest>("start { model: 'reader' }"));
  stream->WritesDone();
  v1::EncodeStreamResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  expect(stream->Finish(), "EncodeStream needs");
}

TEST_F(AnswerTest, TheOnlyReaderNeedsNoName) {
  models::TempDirectory repository;
  models::WriteSmallReader(repository, "reader/1");
  models::WriteSmallModel(repository, "classifier/1");
  server::Options options = Options();
  options.models.repository = repository.path();
  RunningServer server(options);
  request_.clear_model();
  ExpectPlainAnswers(server, *reader_);
}

TEST_F(AnswerTest, IsDescribed) {
  const auto get = [](const char* name) {
    v1::GetModelRequest request;
    request.set_model(name);
    return server_->Must(request).model();
  };
  EXPECT_THAT(get("reader"), HasFieldsOf(absl::StrCat(
                                 "task: 'reader' preprocessing: 'unicode_words' input_size: 4 "
                                 "output_size: 6 hidden_size: 3 num_layers: 3 bidirectional: true ",
                                 "vocabulary_size: ", models::kSmallReaderWords)));
  EXPECT_GT(get("reader").parameter_count(), 0);
  EXPECT_THAT(get("reader").reader(), Sends("features: ['exact', 'tf'] max_answer_tokens: 4"));
  EXPECT_FALSE(get("reader").has_translator());
  EXPECT_THAT(get("tagged").reader(),
              HasFieldsOf(absl::StrCat(
                  "features: ['exact', 'lemma', 'tf'] pos_size: ", models::kSmallReaderPos,
                  " ner_size: ", models::kSmallReaderNer)));
  EXPECT_EQ(get("wordless").preprocessing(), "");
  EXPECT_TRUE(get("wordless").has_reader());
  EXPECT_FALSE(get("classifier").has_reader());
}

TEST_F(AnswerTest, IsCounted) {
  const std::string ok =
      "sru_requests_total{code=\"OK\",method=\"Answer\",model=\"reader\",version=\"1\"}";
  const std::string duration =
      "sru_request_duration_seconds_count{method=\"Answer\",model=\"reader\",version=\"1\"}";
  const double before = std::max(0.0, server_->Metric(ok));
  const double timed = server_->Metric(duration);
  EXPECT_GE(timed, 0);  // there from the start
  for (int i = 0; i < 3; ++i) server_->Must(request_);
  EXPECT_EQ(server_->Metric(ok), before + 3);
  EXPECT_EQ(server_->Metric(duration), timed + 3);
  EXPECT_EQ(server_->Metric("sru_request_duration_seconds_count{method=\"Classify\",model="
                            "\"reader\",version=\"1\"}"),
            -1);
  EXPECT_EQ(server_->Metric("sru_model_info{model=\"reader\",version=\"1\",task=\"reader\"}"), 1);
  server_->ExpectIdle();
}

TEST_F(AnswerTest, IsLogged) {
  server::Options options = Options();
  options.logging.access.requests = server::telemetry::LogRequests::kAll;
  RunningServer server(options);
  ::testing::internal::CaptureStderr();
  server.Must(request_);
  request_.mutable_queries(0)->set_passages(0, "");
  EXPECT_FALSE(server.Call(request_).ok());
  server::FlushLog(absl::Seconds(10));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("method=Answer code=OK"));
  EXPECT_THAT(log, HasSubstr("model=reader version=1 sequences=2 tokens=10"));
  // Nothing of what was asked.
  EXPECT_THAT(log, HasSubstr("error=queries[0].passages[0]"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("c d a b")));
}

// With the limits raised, a passage of 100,000 words is read whole.
TEST_F(AnswerTest, APassageOfAHundredThousandWords) {
  server::Options options = Options();
  options.batching.engine.instances = 1;
  options.batching.engine.batcher.max_batch_tokens = 110000;
  options.batching.engine.batcher.max_queue_tokens = 250000;
  options.rpc.limits.max_sequence_tokens = 100000;
  options.models.control = server::lifecycle::ModelControl::kExplicit;
  options.models.load_models = {"reader"};
  RunningServer server(options);
  std::string passage;
  for (int i = 0; i < 100000; ++i) {
    absl::StrAppend(&passage, i > 0 ? " " : "",
                    std::string(1, static_cast<char>('a' + random_() % 9)));
  }
  query()->set_passages(0, passage);
  query()->clear_passages();
  query()->add_passages(passage);
  query()->add_passages("e f");
  query()->add_passages(passage.substr(0, 199999));
  request_.set_top_n(3);
  ExpectPlainAnswers(server, *reader_);
  query()->add_passages(passage + " a");
  EXPECT_THAT(server.Call(request_).error_message(),
              StartsWith("queries[0].passages[3]: at least 100001 tokens are too many"));
}

// While a client does not take its answer, nothing but the answer is held of a large call.
TEST_F(AnswerTest, AnAnswerThatNobodyTakesHoldsNoPassages) {
  server::Options options = Options();
  options.memory.send_timeout = absl::InfiniteDuration();
  RunningServer server(options);
  std::string passage;
  for (int i = 0; i < 600; ++i) passage += "a-word ";
  request_.mutable_queries(0)->clear_passages();
  for (int i = 0; i < 10; ++i) query()->add_passages(passage.substr(0, 4000));
  UnreadCall unread(server.port(), kMethod, request_.SerializeAsString());
  ASSERT_TRUE(server.Becomes("sru_unsent_answers", 1));
  EXPECT_GT(server.Metric("sru_inflight_bytes"), 0);
  EXPECT_LT(server.Metric("sru_inflight_bytes"), static_cast<double>(request_.ByteSizeLong()));
  unread.Close();
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
}

// What an answer takes is reserved before it is made: a hundred answers of a word of a megabyte
// each.
TEST_F(AnswerTest, AnswersThatWouldTakeTooMuchMemoryAreRefused) {
  server::Options options = Options();
  options.memory.max_inflight_mb = 16;
  RunningServer server(options);
  query()->clear_passages();
  query()->add_passages("a b c d e f " + std::string(1000000, 'x') + " a b c d e f");
  server.Must(request_);
  request_.set_top_n(100);
  request_.set_max_answer_tokens(1000);
  EXPECT_THAT(server.Call(request_),
              Fails(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("--max_inflight_mb")));
  EXPECT_EQ(server.Metric("sru_rejections_total{model=\"reader\",version=\"1\",reason=\"memory\"}"),
            1);
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
  request_.set_top_n(1);
  server.Must(request_);
}

}  // namespace
}  // namespace sru::testing
