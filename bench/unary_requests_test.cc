// The calls of `sru_bench answer` and `sru_bench translate`, and the check of their answers.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/answer_requests.h"
#include "bench/answers_alone.h"
#include "bench/load_generator.h"
#include "bench/report.h"
#include "bench/translate_requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_server.h"

namespace sru::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

v1::ModelInfo Model(int vocabulary_size) {
  v1::ModelInfo model;
  model.set_name("fake");
  model.set_vocabulary_size(vocabulary_size);
  return model;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/unary_requests_test." + name;
  std::ofstream(path) << text;
  return path;
}

std::string Message(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

int Words(const std::string& text) {
  return 1 + static_cast<int>(std::count(text.begin(), text.end(), ' '));
}

TEST(MakeAnswerRequestsTest, DrawsTextsOfTheLengthsThatAreAskedFor) {
  AnswerRequestOptions options;
  options.passage = "uniform:30:40";
  options.question = "fixed:7";
  options.passages = "uniform:1:3";
  options.queries = 2;
  options.distinct = 20;
  options.top_n = 3;
  options.priority = "low";
  auto requests = MakeAnswerRequests(options, Model(10));
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_THAT(*requests, SizeIs(20));
  std::set<int> numbers;
  std::set<std::string> passages;
  for (const v1::AnswerRequest& request : *requests) {
    EXPECT_EQ(request.model(), "fake");
    EXPECT_EQ(request.top_n(), 3);
    EXPECT_EQ(request.priority(), v1::PRIORITY_LOW);
    ASSERT_EQ(request.queries_size(), 2);
    for (const v1::Query& query : request.queries()) {
      EXPECT_EQ(Words(query.question()), 7);
      numbers.insert(query.passages_size());
      for (const std::string& passage : query.passages()) {
        EXPECT_GE(Words(passage), 30);
        EXPECT_LE(Words(passage), 40);
        passages.insert(passage);
      }
    }
  }
  EXPECT_EQ(numbers, (std::set<int>{1, 2, 3}));
  EXPECT_GT(passages.size(), 40u);
}

TEST(MakeAnswerRequestsTest, ReadsQuestionsFromAFile) {
  AnswerRequestOptions options;
  options.input = WriteFile("queries", "Who?\tAnn did.\tNobody.\r\n\nWhere?\tHere.\n");
  options.queries = 3;
  auto requests = MakeAnswerRequests(options, Model(10));
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_THAT(*requests, SizeIs(1));
  ASSERT_EQ((*requests)[0].queries_size(), 3);
  EXPECT_EQ((*requests)[0].queries(0).question(), "Who?");
  ASSERT_EQ((*requests)[0].queries(0).passages_size(), 2);
  EXPECT_EQ((*requests)[0].queries(0).passages(1), "Nobody.");
  EXPECT_EQ((*requests)[0].queries(1).passages(0), "Here.");
  EXPECT_EQ((*requests)[0].queries(2).question(), "Who?");
}

TEST(MakeAnswerRequestsTest, HasQuestionsOfItsOwn) {
  auto requests = MakeAnswerRequests({}, Model(10));
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_GT(requests->size(), 5u);
  EXPECT_THAT(requests->front().queries(0).passages(0), HasSubstr("harbour"));
}

TEST(MakeAnswerRequestsTest, NamesWhatIsWrong) {
  const auto error = [](void (*change)(AnswerRequestOptions*), const v1::ModelInfo& model) {
    AnswerRequestOptions options;
    change(&options);
    return Message(MakeAnswerRequests(options, model).status());
  };
  const v1::ModelInfo model = Model(10);
  EXPECT_EQ(error([](AnswerRequestOptions* o) { o->queries = 0; }, model),
            "--queries: expected 1 to 100000, found 0");
  EXPECT_EQ(error([](AnswerRequestOptions* o) { o->passage = "fixed:1", o->distinct = 0; }, model),
            "--distinct: expected 1 to 100000, found 0");
  EXPECT_THAT(error([](AnswerRequestOptions* o) { o->passage = "long"; }, model),
              HasSubstr("--passage: expected fixed:N"));
  EXPECT_THAT(
      error([](AnswerRequestOptions* o) { o->passage = "fixed:1", o->question = "x"; }, model),
      HasSubstr("--question: expected fixed:N"));
  EXPECT_THAT(
      error([](AnswerRequestOptions* o) { o->passage = "fixed:1", o->passages = "fixed:0"; },
            model),
      HasSubstr("--passages: expected numbers from 1"));
  EXPECT_THAT(error([](AnswerRequestOptions* o) { o->passage = "fixed:1", o->input = "x"; }, model),
              HasSubstr("exclude each other"));
  EXPECT_THAT(error([](AnswerRequestOptions* o) { o->input = "/nowhere"; }, model),
              HasSubstr("--input: cannot read the file '/nowhere'"));
  AnswerRequestOptions options;
  options.input = WriteFile("no_tab", "Who?\tAnn.\nWhere?\n");
  EXPECT_THAT(Message(MakeAnswerRequests(options, model).status()),
              HasSubstr("no_tab:2: expected a question and its passages, separated by tabs"));
  options.input = WriteFile("empty", "\n");
  EXPECT_THAT(Message(MakeAnswerRequests(options, model).status()), HasSubstr("has no question"));
  v1::ModelInfo tagged = model;
  tagged.mutable_reader()->set_pos_size(5);
  EXPECT_THAT(error([](AnswerRequestOptions*) {}, tagged), HasSubstr("needs tags"));
  v1::ModelInfo lemmas = model;
  lemmas.mutable_reader()->add_features("lemma");
  EXPECT_THAT(error([](AnswerRequestOptions*) {}, lemmas), HasSubstr("needs tags"));
}

TEST(MakeTranslateRequestsTest, DrawsIdsAndLongestTranslations) {
  TranslateRequestOptions options;
  options.lengths = "uniform:3:5";
  options.output = "uniform:10:12";
  options.sequences = 2;
  options.distinct = 30;
  options.beam_size = 4;
  options.num_hypotheses = 2;
  options.alignment = true;
  options.priority = "high";
  auto requests = MakeTranslateRequests(options, Model(50));
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_THAT(*requests, SizeIs(30));
  std::set<int> lengths, outputs, ids;
  for (const v1::TranslateRequest& request : *requests) {
    EXPECT_EQ(request.model(), "fake");
    EXPECT_EQ(request.beam_size(), 4);
    EXPECT_EQ(request.num_hypotheses(), 2);
    EXPECT_TRUE(request.return_alignment());
    EXPECT_EQ(request.priority(), v1::PRIORITY_HIGH);
    outputs.insert(request.max_new_tokens());
    ASSERT_EQ(request.sequences_size(), 2);
    for (const v1::Sequence& sequence : request.sequences()) {
      lengths.insert(sequence.token_ids().values_size());
      for (const int32_t id : sequence.token_ids().values()) ids.insert(id);
    }
  }
  EXPECT_EQ(lengths, (std::set<int>{3, 4, 5}));
  EXPECT_EQ(outputs, (std::set<int>{10, 11, 12}));
  EXPECT_GE(*ids.begin(), 0);
  EXPECT_LT(*ids.rbegin(), 50);
  EXPECT_GT(ids.size(), 25u);
}

TEST(MakeTranslateRequestsTest, ReadsTextsOrHasItsOwn) {
  TranslateRequestOptions options;
  options.input = WriteFile("texts", "A dog.\n\n A cat. \nA bird.\n");
  options.sequences = 2;
  auto requests = MakeTranslateRequests(options, Model(0));
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_THAT(*requests, SizeIs(2));
  EXPECT_EQ((*requests)[0].sequences(1).text(), "A cat.");
  EXPECT_EQ((*requests)[1].sequences(0).text(), "A bird.");
  EXPECT_EQ((*requests)[1].sequences(1).text(), "A dog.");
  EXPECT_EQ((*requests)[0].max_new_tokens(), 0);
  requests = MakeTranslateRequests({}, Model(0));
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_GT(requests->size(), 5u);
}

TEST(MakeTranslateRequestsTest, NamesWhatIsWrong) {
  const auto error = [](void (*change)(TranslateRequestOptions*), int vocabulary_size) {
    TranslateRequestOptions options;
    change(&options);
    return Message(MakeTranslateRequests(options, Model(vocabulary_size)).status());
  };
  EXPECT_EQ(error([](TranslateRequestOptions* o) { o->sequences = 0; }, 10),
            "--sequences: expected 1 to 100000, found 0");
  EXPECT_EQ(error([](TranslateRequestOptions* o) { o->lengths = "fixed:1", o->distinct = -1; }, 10),
            "--distinct: expected 1 to 100000, found -1");
  EXPECT_THAT(error([](TranslateRequestOptions* o) { o->lengths = "long"; }, 10),
              HasSubstr("--lengths: expected fixed:N"));
  EXPECT_THAT(error([](TranslateRequestOptions* o) { o->lengths = "fixed:1"; }, 0),
              HasSubstr("expected a translator"));
  EXPECT_THAT(error([](TranslateRequestOptions* o) { o->output = "fixed:0"; }, 10),
              HasSubstr("--output: expected numbers from 1"));
  EXPECT_THAT(error([](TranslateRequestOptions* o) { o->lengths = "fixed:1", o->input = "x"; }, 10),
              HasSubstr("exclude each other"));
  EXPECT_THAT(error([](TranslateRequestOptions* o) { o->input = "/nowhere"; }, 10),
              HasSubstr("--input: cannot read the file '/nowhere'"));
  EXPECT_THAT(error([](TranslateRequestOptions* o) { o->priority = "urgent"; }, 10),
              HasSubstr("urgent"));
}

TEST(WithoutTimesTest, LeavesEverythingElse) {
  v1::AnswerResponse answer;
  answer.set_model("reader");
  answer.set_version(3);
  answer.add_results()->add_answers()->set_text("Ann");
  const std::string without = answer.SerializeAsString();
  answer.mutable_times()->set_total_us(1500);
  EXPECT_EQ(WithoutTimes(answer.SerializeAsString()), without);
  EXPECT_EQ(WithoutTimes(without), without);
  EXPECT_EQ(WithoutTimes("\xff"), "\xff");

  v1::TranslateResponse translation;
  translation.add_translations()->add_hypotheses()->set_score(-0.5);
  const std::string plain = translation.SerializeAsString();
  translation.mutable_times()->set_compute_us(12);
  EXPECT_EQ(WithoutTimes(translation.SerializeAsString()), plain);
}

std::string Text(const std::string& text) {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text(text);
  return request.SerializeAsString();
}

LoadOptions Options(const client::FakeServer& server) {
  LoadOptions options;
  options.address = server.address();
  options.method = "/sru.v1.InferenceService/Classify";
  options.warmup = absl::ZeroDuration();
  options.duration = absl::Seconds(60);
  return options;
}

TEST(AnswersAloneTest, AnswersOfALoadAreComparedWithThem) {
  client::FakeServer server;
  LoadOptions options = Options(server);
  const std::vector<std::string> requests = {Text("short"), Text("a text that is long"),
                                             Text("also")};
  auto alone = AnswersAlone(options, requests);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_THAT(*alone, SizeIs(3));
  EXPECT_EQ(server.num_calls(), 3);
  v1::ClassifyResponse answer;
  ASSERT_TRUE(answer.ParseFromString((*alone)[1]));
  EXPECT_EQ(answer.classifications(0).labels(0).name(), "LONG");
  EXPECT_FALSE(answer.has_times());
  EXPECT_EQ((*alone)[0], (*alone)[2]);

  // Several threads and connections; one of the three texts is not the same as alone.
  options.in_flight = 8;
  options.threads = 2;
  options.connections = 3;
  options.calls = 90;
  options.check = [&](size_t request, absl::string_view found) {
    return WithoutTimes(found) == (*alone)[request];
  };
  std::vector<std::string> changed = requests;
  changed[2] = Text("also a long text");
  auto result = RunLoad(options, changed);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ok, 90);
  EXPECT_EQ(result->checked, 90);
  // Each thread sends them in turn.
  EXPECT_GE(result->wrong, 28);
  EXPECT_LE(result->wrong, 30);
  EXPECT_THAT(ResultText(options, *result), HasSubstr("answers, of which "));
  EXPECT_EQ(ResultJson(options, *result)["checked"], 90);
  EXPECT_EQ(ResultJson(options, *result)["wrong"], result->wrong);

  result = RunLoad(options, requests);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->checked, 90);
  EXPECT_EQ(result->wrong, 0);
}

// What is not OK has nothing to compare.
TEST(AnswersAloneTest, RefusalsAreNotChecked) {
  client::FakeServer server;
  LoadOptions options = Options(server);
  options.in_flight = 1;
  options.calls = 5;
  options.check = [](size_t, absl::string_view answer) { return !answer.empty(); };
  server.FailNext({client::FakeServer::Overloaded(0, 1)});
  auto result = RunLoad(options, {Text("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->checked, 4);
  EXPECT_EQ(result->wrong, 0);
}

TEST(AnswersAloneTest, TheFirstFailureEndsIt) {
  client::FakeServer server;
  const LoadOptions options = Options(server);
  EXPECT_EQ(AnswersAlone(options, {Text("text"), Text("bad")}).status(),
            absl::InvalidArgumentError("sequences[0].text: gives no tokens"));
  const std::atomic<bool> stop = true;
  LoadOptions stopped = options;
  stopped.stop = &stop;
  EXPECT_EQ(AnswersAlone(stopped, {Text("text")}).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sru::bench
