// The status page's calls on a real server: text that is typed into a box takes the same path as
// every other call.
#include <atomic>
#include <string>
#include <thread>
#include <utility>
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

constexpr char kText[] = R"({"model": "trec", "sequences": [{"text": "x"}]})";

std::string Calls(const std::string& method, const std::string& model, const std::string& code) {
  return absl::StrCat("sru_requests_total{code=\"", code, "\",method=\"", method, "\",model=\"",
                      model, "\",version=\"1\"}");
}

HttpResponse Try(RunningServer& server, const std::string& body,
                 const std::string& path = "/v1/classify", const std::string& headers = "",
                 const std::string& method = "POST",
                 const std::string& type = "Content-Type: application/json\r\n") {
  return HttpExchange(server.metrics_port(),
                      absl::StrCat(method, " ", path,
                                   " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(),
                                   "\r\n", type, headers, "\r\n", body));
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
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("Where do swifts sleep at night?");
  const HttpResponse response =
      Try(server, json{{"sequences", {{{"text", request.sequences(0).text()}}}}}.dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);

  const v1::ClassifyResponse expected = server.Must(request);
  const json& labels = body["classifications"][0]["labels"];
  ASSERT_EQ(labels.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    const v1::Label& label = expected.classifications(0).labels(i);
    EXPECT_EQ(labels[i]["name"], label.name());
    EXPECT_EQ(labels[i]["probability"].get<float>(), label.probability());
  }
  EXPECT_EQ(labels[0]["name"], "LOC");
  // Both were counted in the same place.
  EXPECT_EQ(server.Metric(Calls("Classify", "trec", "OK")), 2);
}

TEST(TryTest, WritesWhatGenerateWrites) {
  RunningServer server(TestOptions(kBundledRepository));
  const HttpResponse response = Try(server,
                                    R"({"prompt": {"text": "Prince Andrew"}, "max_new_tokens": 50,
                                        "sampling": {"temperature": 0.8, "seed": 7}})",
                                    "/v1/generate");
  ASSERT_EQ(response.status, 200) << response.body;
  std::string text;
  json last;
  for (const absl::string_view event :
       absl::StrSplit(WithoutChunks(response.body), "\n\n", absl::SkipEmpty())) {
    last = json::parse(std::string(absl::StripPrefix(event, "data: ")));
    text += last.value("text", "");
  }
  EXPECT_EQ(last["finish_reason"], "FINISH_REASON_LENGTH") << last;

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

TEST(TryTest, AsksReadersAndTranslators) {
  models::TempDirectory repository;
  models::WriteSmallReader(repository, "questions/1");
  models::WriteSmallTranslator(repository, "captions/1");
  RunningServer server(TestOptions(repository.path()));
  const HttpResponse answer =
      Try(server, R"({"queries": [{"question": "a b ?", "passages": ["a c d e f g? h b"]}]})",
          "/v1/answer");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(server.Metric(Calls("Answer", "questions", "OK")), 1);
  const HttpResponse translation = Try(
      server, R"({"sequences": [{"text": "ab cab"}], "return_alignment": true})", "/v1/translate");
  EXPECT_EQ(translation.status, 200) << translation.body;
  EXPECT_EQ(server.Metric(Calls("Translate", "captions", "OK")), 1);
}

// No more than the boxes need.
TEST(TryTest, OtherCallsAreForTheirOwnPort) {
  RunningServer server(TestOptions(kBundledRepository));
  for (const auto& [method, path] :
       std::vector<std::pair<std::string, std::string>>{{"POST", "/v1/score"},
                                                        {"POST", "/v1/tokenize"},
                                                        {"POST", "/v1/completions"},
                                                        {"POST", "/v1/embeddings"},
                                                        {"GET", "/v1/models"},
                                                        {"GET", "/v1/models/trec"},
                                                        {"GET", "/v2/health/live"},
                                                        {"POST", "/v2/models/trec/infer"},
                                                        {"GET", "/openapi.json"},
                                                        {"POST", "/try"}}) {
    EXPECT_EQ(Try(server, kText, path, "", method).status, 404) << path;
  }
  EXPECT_EQ(Try(server, kText, "/v1/encode").status, 200);
  for (const char* method : {"GET", "PUT", "DELETE", "OPTIONS"}) {
    const HttpResponse refused = Try(server, kText, "/v1/classify", "", method);
    EXPECT_EQ(refused.status, 405) << method;
    EXPECT_THAT(refused.headers, HasSubstr("Allow: POST"));
  }
}

TEST(TryTest, TheSameLimitsApply) {
  server::Options options = TestOptions(kBundledRepository);
  options.rpc.limits.max_sequence_tokens = 4;
  RunningServer server(options);
  const HttpResponse response =
      Try(server, R"({"sequences": [{"text": "one two three four five"}]})");
  EXPECT_EQ(response.status, 400);
  const json error = json::parse(response.body)["error"];
  EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("sequences[0]"));
  EXPECT_EQ(server.Metric(Calls("Classify", "trec", "INVALID_ARGUMENT")), 1);
  EXPECT_EQ(Try(server, "{").status, 400);
  EXPECT_EQ(Try(server, std::string(70000, ' ')).status, 413);
  // None of that did any harm.
  EXPECT_EQ(Try(server, kText).status, 200);
}

// Also what a page of another origin can send without asking.
TEST(TryTest, OtherWebSitesCannotCall) {
  RunningServer server(TestOptions(kBundledRepository));
  for (const char* header :
       {"Origin: https://evil.example", "Origin: http://localhost:9091", "Origin: null",
        "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "X-Forwarded-For: 10.0.0.7"}) {
    EXPECT_EQ(Try(server, kText, "/v1/classify", absl::StrCat(header, "\r\n")).status, 403)
        << header;
  }
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded"}) {
    const std::string header = absl::StrCat("Content-Type: ", type, "\r\n");
    EXPECT_EQ(Try(server, kText, "/v1/classify", "", "POST", header).status, 415);
  }
  const HttpResponse untyped = Try(server, kText, "/v1/classify", "", "POST", "");
  EXPECT_EQ(untyped.status, 403);
  EXPECT_THAT(untyped.body, HasSubstr("Content-Type: expected application/json"));
  EXPECT_EQ(server.Metric("sru_requests_in_flight"), 0);
  EXPECT_EQ(server.Metric(Calls("Classify", "trec", "OK")), -1);
}

// Names that are not ours; probes and scrapers may use any.
TEST(TryTest, PeoplesPagesAreShownUnderOwnNamesOnly) {
  server::Options options = TestOptions(kBundledRepository);
  options.http.status_page_try = server::http::TryAccess::kAll;
  options.http.status_page_hosts = {"sru.example"};
  RunningServer server(options);
  const auto status = [&](const std::string& path, const std::string& host) {
    const std::string body = path == "/v1/classify" ? kText : "";
    return HttpExchange(server.metrics_port(),
                        absl::StrCat(body.empty() ? "GET " : "POST ", path,
                                     " HTTP/1.1\r\nHost: ", host, "\r\nOrigin: http://", host,
                                     "\r\nContent-Type: application/json\r\n"
                                     "Content-Length: ",
                                     body.size(), "\r\n\r\n", body))
        .status;
  };
  for (const char* path : {"/", "/status.json", "/v1/classify"}) {
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
  options.http.status_page_try = server::http::TryAccess::kOff;
  RunningServer server(options);
  EXPECT_EQ(Try(server, kText).status, 403);
  EXPECT_EQ(server.Get("/").status, 200);
  EXPECT_EQ(json::parse(server.Get("/status.json").body)["try"]["allowed"], false);
}

TEST(TryTest, StatusFollowsTheServer) {
  RunningServer server(TestOptions(kBundledRepository));
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

  ASSERT_EQ(Try(server, kText).status, 200);
  EXPECT_TRUE(server.server().Drain());
  status = json::parse(server.Get("/status.json").body);
  EXPECT_EQ(status["state"], "draining");
  EXPECT_EQ(status["metrics"]["sru_ready"]["series"][0]["value"], 0);
  const HttpResponse refused = Try(server, kText);
  EXPECT_EQ(refused.status, 503) << refused.body;
}

// The box may be used at any moment of a server's life.
TEST(TryTest, DuringADrain) {
  RunningServer server(TestOptions(kBundledRepository));
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::thread caller([&] {
    while (!stop) {
      const int status = Try(server, kText).status;
      // 429: the call before has not ended yet.
      EXPECT_TRUE(status == 200 || status == 503 || status == 429) << status;
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
