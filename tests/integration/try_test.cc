// The status page's endpoints on a real server: text that is typed into the box takes the same path
// as every other call.
#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/small_reader.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kCalls[] =
    "sru_requests_total{code=\"$\",method=\"Classify\",model=\"trec\",version=\"1\"}";

std::string Calls(const std::string& code) {
  std::string series = kCalls;
  return series.replace(series.find('$'), 1, code);
}

HttpResponse Try(RunningServer& server, const std::string& body,
                 const std::string& headers = "Content-Type: application/json\r\nX-Sru-Try: 1\r\n",
                 const std::string& path = "/try") {
  return HttpExchange(
      server.server().metrics_address().port,
      absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(),
                   "\r\n", headers, "\r\n", body));
}

// The parts of a chunked body (RFC 9112, section 7.1), put together.
std::string WithoutChunks(const std::string& body) {
  std::string whole;
  for (size_t at = 0; at < body.size();) {
    const size_t size = std::stoul(body.substr(at), nullptr, 16);
    const size_t begin = body.find("\r\n", at) + 2;
    whole += body.substr(begin, size);
    at = begin + size + 2;
  }
  return whole;
}

TEST(TryTest, GivesWhatClassifyGives) {
  RunningServer server(TestOptions(kBundledRepository));
  ASSERT_TRUE(server.started());
  const std::string text = "Where do swifts sleep at night?";
  const HttpResponse response = Try(server, json{{"text", text}}.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);

  v1::ClassifyRequest request;
  request.add_sequences()->set_text(text);
  v1::ClassifyResponse expected;
  ASSERT_TRUE(server.Classify(request, &expected).ok());
  ASSERT_EQ(body["labels"].size(), 6u);
  for (int i = 0; i < 6; ++i) {
    const v1::Label& label = expected.classifications(0).labels(i);
    EXPECT_EQ(body["labels"][i]["name"], label.name());
    EXPECT_EQ(body["labels"][i]["logit"].get<float>(), label.logit());
    EXPECT_EQ(body["labels"][i]["probability"].get<float>(), label.probability());
  }
  EXPECT_EQ(body["labels"][0]["name"], "LOC");
  EXPECT_EQ(body["model"], "trec");
  EXPECT_EQ(body["token_count"], expected.classifications(0).token_count());
  EXPECT_GT(body["times"]["total_us"], 0);
  // Both were counted in the same place.
  EXPECT_EQ(server.Metric(Calls("OK")), 2);
}

TEST(TryTest, WritesWhatGenerateWrites) {
  RunningServer server(TestOptions(kBundledRepository));
  ASSERT_TRUE(server.started());
  const HttpResponse response = Try(
      server,
      json{{"prompt", "Prince Andrew"}, {"max_new_tokens", 50}, {"temperature", 0.8}, {"seed", 7}}
          .dump(),
      "Content-Type: application/json\r\nX-Sru-Try: 1\r\n", "/try/generate");
  ASSERT_EQ(response.status, 200) << response.body;
  std::string text;
  json last;
  for (const absl::string_view event :
       absl::StrSplit(WithoutChunks(response.body), "\n\n", absl::SkipEmpty())) {
    last = json::parse(std::string(absl::StripPrefix(event, "data: ")));
    text += last.value("text", "");
  }
  EXPECT_EQ(last["finish_reason"], "length") << last;
  EXPECT_EQ(last["model"], "war_and_peace");
  EXPECT_EQ(last["prompt_tokens"], 13);
  EXPECT_EQ(last["generated_tokens"], 50);

  v1::GenerateRequest request;
  request.mutable_prompt()->set_text("Prince Andrew");
  request.set_max_new_tokens(50);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(7);
  grpc::ClientContext context;
  const auto reader = server.stub().Generate(&context, request);
  v1::GenerateResponse message;
  std::string expected;
  while (reader->Read(&message)) expected += message.text();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, expected);
  EXPECT_EQ(server.Metric("sru_generated_tokens_total{model=\"war_and_peace\",version=\"1\"}"),
            100);
}

TEST(TryTest, AnswersWhatAnswerAnswers) {
  models::TempDirectory repository;
  models::WriteSmallReader(repository, "questions/1");
  RunningServer server(TestOptions(repository.path()));
  ASSERT_TRUE(server.started());
  const std::string headers = "Content-Type: application/json\r\nX-Sru-Try: 1\r\n";
  const std::string passage = "a \u00e9t\u00e9 c. d e f g? h b";
  const HttpResponse response =
      Try(server, json{{"question", "a b ?"}, {"passage", passage}, {"top_n", 2}}.dump(), headers,
          "/try/answer");
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);

  v1::AnswerRequest request;
  request.add_queries()->set_question("a b ?");
  request.mutable_queries(0)->add_passages(passage);
  request.set_top_n(2);
  request.set_no_overlap(true);
  v1::AnswerResponse expected;
  grpc::ClientContext context;
  ASSERT_TRUE(server.stub().Answer(&context, request, &expected).ok());
  const v1::QueryAnswers& result = expected.results(0);
  EXPECT_EQ(body["model"], "questions");
  EXPECT_EQ(body["token_count"], result.token_count());
  ASSERT_EQ(body["answers"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const v1::SpanAnswer& answer = result.answers(i);
    const json& found = body["answers"][i];
    EXPECT_EQ(found["text"], answer.text());
    EXPECT_EQ(found["start_char"], answer.start_char());
    EXPECT_EQ(found["end_char"], answer.end_char());
    EXPECT_EQ(found["log_score"], answer.log_score());
    EXPECT_EQ(found["probability"].get<float>(), answer.probability());
  }
  EXPECT_EQ(Try(server, R"({"question": "a", "passage": " "})", headers, "/try/answer").status,
            400);
  EXPECT_EQ(server.Metric("sru_requests_total{code=\"OK\",method=\"Answer\",model=\"questions\","
                          "version=\"1\"}"),
            2);
}

TEST(TryTest, TranslatesWhatTranslateTranslates) {
  models::TempDirectory repository;
  models::WriteSmallTranslator(repository, "captions/1");
  RunningServer server(TestOptions(repository.path()));
  ASSERT_TRUE(server.started());
  const std::string headers = "Content-Type: application/json\r\nX-Sru-Try: 1\r\n";
  const HttpResponse response =
      Try(server, json{{"text", "ab cab"}, {"beam_size", 4}, {"num_hypotheses", 2}}.dump(), headers,
          "/try/translate");
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);

  v1::TranslateRequest request;
  request.add_sequences()->set_text("ab cab");
  request.set_beam_size(4);
  request.set_num_hypotheses(2);
  request.set_return_alignment(true);
  v1::TranslateResponse expected;
  grpc::ClientContext context;
  ASSERT_TRUE(server.stub().Translate(&context, request, &expected).ok());
  const v1::Translation& translation = expected.translations(0);
  EXPECT_EQ(body["model"], "captions");
  EXPECT_EQ(body["token_count"], translation.token_count());
  EXPECT_EQ(body["source_tokens"].size(), static_cast<size_t>(translation.token_count()));
  ASSERT_EQ(body["hypotheses"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const v1::Hypothesis& hypothesis = translation.hypotheses(i);
    const json& found = body["hypotheses"][i];
    EXPECT_EQ(found["text"], hypothesis.text());
    EXPECT_EQ(found["score"], hypothesis.score());
    EXPECT_EQ(found["tokens"].size(), static_cast<size_t>(hypothesis.tokens_size()));
    ASSERT_EQ(found["alignment"].size(), found["tokens"].size());
    for (const json& row : found["alignment"]) {
      const auto weights = row.get<std::vector<int>>();
      EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0), 1000, 5) << row;
    }
  }

  EXPECT_EQ(Try(server, R"({"text": "a", "num_hypotheses": 9})", headers, "/try/translate").status,
            400);
  EXPECT_EQ(Try(server, R"({"text": "a"})").status, 400);  // Classify needs a classifier
  EXPECT_EQ(Try(server, R"({"text": ""})", headers, "/try/translate").status, 200);
}

TEST(TryTest, TheSameLimitsApply) {
  server::Options options = TestOptions(kBundledRepository);
  options.rpc.limits.max_sequence_tokens = 4;
  RunningServer server(options);
  ASSERT_TRUE(server.started());
  const HttpResponse response = Try(server, R"({"text": "one two three four five"})");
  EXPECT_EQ(response.status, 400);
  const json error = json::parse(response.body)["error"];
  EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("sequences[0]"));
  EXPECT_EQ(server.Metric(Calls("INVALID_ARGUMENT")), 1);

  EXPECT_EQ(Try(server, R"({"text": ""})").status, 400);
  EXPECT_EQ(Try(server, R"({"text": "x", "model": "none"})").status, 404);
  EXPECT_EQ(Try(server, R"({"text": "x", "version": 9})").status, 404);
  EXPECT_EQ(Try(server, R"({"text": "x", "version": -1})").status, 400);
  EXPECT_EQ(Try(server, "{").status, 400);
  EXPECT_EQ(Try(server, "{}", "Content-Type: application/json\r\n").status, 403);
  EXPECT_EQ(Try(server, std::string(70000, ' ')).status, 413);
  // None of that did any harm.
  EXPECT_EQ(Try(server, R"({"text": "x", "version": 1})").status, 200);
}

// Names that are not ours; probes and scrapers may use any.
TEST(TryTest, PeoplesPagesAreShownUnderOwnNamesOnly) {
  server::Options options = TestOptions(kBundledRepository);
  options.http.status_page_try = server::TryAccess::kAll;
  options.http.status_page_hosts = {"sru.example"};
  RunningServer server(options);
  ASSERT_TRUE(server.started());
  const auto status = [&](const std::string& path, const std::string& host) {
    const std::string body = path == "/try" ? R"({"text": "x"})" : "";
    return HttpExchange(server.server().metrics_address().port,
                        absl::StrCat(body.empty() ? "GET " : "POST ", path,
                                     " HTTP/1.1\r\nHost: ", host, "\r\nOrigin: http://", host,
                                     "\r\nContent-Type: application/json\r\nX-Sru-Try: 1\r\n"
                                     "Content-Length: ",
                                     body.size(), "\r\n\r\n", body))
        .status;
  };
  for (const char* path : {"/", "/status.json", "/try"}) {
    EXPECT_EQ(status(path, "sru.example"), 200) << path;
    EXPECT_EQ(status(path, "127.0.0.1:9090"), 200) << path;
    EXPECT_EQ(status(path, "evil.example"), 403) << path;
  }
  for (const char* path : {"/metrics", "/healthz", "/readyz"}) {
    EXPECT_EQ(status(path, "sru.default.svc.cluster.local:9090"), 200) << path;
  }
}

TEST(TryTest, CanBeTurnedOff) {
  server::Options options = TestOptions(kBundledRepository);
  options.http.status_page_try = server::TryAccess::kOff;
  RunningServer server(options);
  ASSERT_TRUE(server.started());
  EXPECT_EQ(Try(server, R"({"text": "x"})").status, 403);
  EXPECT_EQ(server.Get("/").status, 200);
  EXPECT_EQ(json::parse(server.Get("/status.json").body)["try"]["allowed"], false);
}

TEST(TryTest, StatusFollowsTheServer) {
  RunningServer server(TestOptions(kBundledRepository));
  ASSERT_TRUE(server.started());
  json status = json::parse(server.Get("/status.json").body);
  EXPECT_EQ(status["state"], "ready");
  ASSERT_EQ(status["models"].size(), 2u);
  EXPECT_EQ(status["models"][0]["name"], "trec");
  EXPECT_EQ(status["models"][0]["version"], 1);
  EXPECT_EQ(status["models"][0]["state"], "ready");
  EXPECT_EQ(status["models"][0]["latest"], true);
  EXPECT_EQ(status["models"][0]["takes_text"], true);
  EXPECT_EQ(status["models"][0]["labels"].size(), 6u);
  EXPECT_EQ(status["models"][0]["task"], "classifier");
  EXPECT_EQ(status["models"][1]["name"], "war_and_peace");
  EXPECT_EQ(status["models"][1]["task"], "language_model");
  EXPECT_EQ(status["models"][1]["labels"].size(), 0u);
  EXPECT_EQ(status["try"]["allowed"], true);
  EXPECT_EQ(status["limits"]["max_batch_tokens"], 4096);
  EXPECT_EQ(status["metrics"]["sru_ready"]["series"][0]["value"], 1);

  ASSERT_EQ(Try(server, R"({"text": "x"})").status, 200);
  EXPECT_TRUE(server.server().Drain());
  status = json::parse(server.Get("/status.json").body);
  EXPECT_EQ(status["state"], "draining");
  EXPECT_EQ(status["metrics"]["sru_ready"]["series"][0]["value"], 0);
  const HttpResponse refused = Try(server, R"({"text": "x"})");
  EXPECT_EQ(refused.status, 503) << refused.body;
}

// The box may be used at any moment of a server's life.
TEST(TryTest, DuringADrain) {
  RunningServer server(TestOptions(kBundledRepository));
  ASSERT_TRUE(server.started());
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::thread caller([&] {
    while (!stop) {
      const int status = Try(server, R"({"text": "x"})").status;
      EXPECT_TRUE(status == 200 || status == 503) << status;
      ++answered;
    }
  });
  while (answered < 5) std::this_thread::yield();
  EXPECT_TRUE(server.server().Drain());
  const int then = answered;
  while (answered < then + 5) std::this_thread::yield();
  stop = true;
  caller.join();
}

}  // namespace
}  // namespace sru::testing
