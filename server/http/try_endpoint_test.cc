#include "server/http/try_endpoint.h"

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/rpc/grpc_status.h"
#include "tests/testing/notification.h"

namespace sru::server {
namespace {

using nlohmann::json;
using ::sru::testing::Notification;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGoodBody[] = R"({"text": "Who wrote Hamlet ?"})";

PageRequest GoodRequest(const std::string& body = kGoodBody) {
  PageRequest request;
  request.method = "POST";
  request.path = "/try";
  request.remote_address = "127.0.0.1";
  request.headers = {
      {"host", "localhost:9090"}, {"content-type", "application/json"}, {"x-sru-try", "1"}};
  request.read_body = [body] { return absl::StatusOr<std::string>(body); };
  return request;
}

std::string HeaderOf(const PageResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

std::string CodeOf(const PageResponse& response) {
  return json::parse(response.body)["error"]["code"];
}
std::string MessageOf(const PageResponse& response) {
  return json::parse(response.body)["error"]["message"];
}

class TryEndpointTest : public ::testing::Test {
 protected:
  TryEndpointTest() { Serve(&endpoint_); }

  void Serve(TryEndpoint* endpoint) {
    endpoint->SetClassify([this](grpc::ClientContext* context, const v1::ClassifyRequest& request,
                                 v1::ClassifyResponse* response) {
      ++num_calls_;
      request_ = request;
      time_left_ = absl::FromChrono(context->deadline()) - absl::Now();
      if (!status_.ok()) return status_;
      response->set_model("trec");
      response->set_version(4);
      v1::Classification* classification = response->add_classifications();
      for (const auto& [name, probability] : {std::pair{"HUM", 0.75f}, std::pair{"LOC", 0.25f}}) {
        v1::Label* label = classification->add_labels();
        label->set_name(name);
        label->set_probability(probability);
      }
      classification->set_token_count(4);
      response->mutable_times()->set_total_us(123);
      return grpc::Status::OK;
    });
  }

  int num_calls_ = 0;
  v1::ClassifyRequest request_;
  absl::Duration time_left_;
  grpc::Status status_;
  TryEndpoint endpoint_{TryAccess::kLocal};
};

TEST_F(TryEndpointTest, Classifies) {
  const PageResponse response = endpoint_.Handle(
      GoodRequest(R"({"text": "Who wrote Hamlet ?", "model": "trec", "version": 4})"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/json; charset=utf-8");
  const json body = json::parse(response.body);
  EXPECT_EQ(body["model"], "trec");
  EXPECT_EQ(body["version"], 4);
  EXPECT_EQ(body["labels"][0]["name"], "HUM");
  EXPECT_EQ(body["labels"][0]["probability"], 0.75);
  EXPECT_EQ(body["token_count"], 4);
  EXPECT_EQ(body["truncated"], false);
  EXPECT_EQ(body["times"]["total_us"], 123);
  EXPECT_EQ(request_.model(), "trec");
  EXPECT_EQ(request_.version(), 4);
  ASSERT_EQ(request_.sequences_size(), 1);
  EXPECT_EQ(request_.sequences(0).text(), "Who wrote Hamlet ?");
}

TEST_F(TryEndpointTest, AlwaysHasADeadline) {
  endpoint_.Handle(GoodRequest());
  EXPECT_LE(time_left_, absl::Seconds(5));
  endpoint_.Handle(GoodRequest(R"({"text": "x", "timeout_ms": 300})"));
  EXPECT_LE(time_left_, absl::Milliseconds(300));
}

TEST_F(TryEndpointTest, BadBodies) {
  for (const auto& [body, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "not valid JSON"},
           {"{", "not valid JSON"},
           {"[]", "expected a JSON object"},
           {"null", "expected a JSON object"},
           {"{}", "text: is missing"},
           {R"({"text": 5})", "text: expected a string, found 5"},
           {R"({"text": null})", "text: expected a string"},
           {"{\"text\": \"caf\xe9\"}", "not valid JSON"},
           {R"({"text": "x", "text": "y"})", "'text' appears twice"},
           {R"({"text": "x", "model": 1})", "model: expected a string"},
           {R"({"text": "x", "version": "1"})", "version: expected a version number"},
           {R"({"text": "x", "version": 1.5})", "version: expected a version number"},
           {R"({"text": "x", "version": 18446744073709551615})", "version: expected"},
           {R"({"text": "x", "timeout_ms": 0})", "timeout_ms: expected 1 to 10000"},
           {R"({"text": "x", "timeout_ms": 10001})", "timeout_ms: expected 1 to 10000"},
           {R"({"text": "x", "timeout_ms": 1e300})", "timeout_ms: expected 1 to 10000"},
           {R"({"text": "x", "txet": "y"})", "there is no key 'txet'"},
           {R"({"text": "x", "model": [[[[[[]]]]]]})", "nested deeper"},
       }) {
    const PageResponse response = endpoint_.Handle(GoodRequest(body));
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(CodeOf(response), "INVALID_ARGUMENT") << body;
    EXPECT_THAT(MessageOf(response), HasSubstr(part)) << body;
  }
  EXPECT_EQ(num_calls_, 0);
}

TEST_F(TryEndpointTest, BodiesThatCannotBeRead) {
  for (const auto& [status, http_status] :
       {std::pair{absl::InvalidArgumentError("no length"), 411},
        std::pair{absl::ResourceExhaustedError("too long"), 413},
        std::pair{absl::DeadlineExceededError("too slow"), 408}}) {
    PageRequest request = GoodRequest();
    request.read_body = [error = status] { return absl::StatusOr<std::string>(error); };
    EXPECT_EQ(endpoint_.Handle(request).status, http_status);
  }
  EXPECT_EQ(num_calls_, 0);
}

TEST_F(TryEndpointTest, OnlyPost) {
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    PageRequest request = GoodRequest();
    request.method = method;
    const PageResponse response = endpoint_.Handle(request);
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(HeaderOf(response, "Allow"), "POST") << method;
    EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Origin"), "") << method;
  }
  EXPECT_EQ(num_calls_, 0);
}

TEST_F(TryEndpointTest, OtherWebSitesCannot) {
  const auto status_with = [this](const std::map<std::string, std::string>& headers) {
    PageRequest request = GoodRequest();
    for (const auto& [name, value] : headers) request.headers[name] = value;
    return endpoint_.Handle(request).status;
  };
  // Requests that a form or a script of another origin can send without asking.
  EXPECT_EQ(status_with({{"x-sru-try", ""}}), 403);
  EXPECT_EQ(status_with({{"content-type", "text/plain"}}), 415);
  EXPECT_EQ(status_with({{"content-type", ""}}), 415);
  EXPECT_EQ(status_with({{"content-type", "application/x-www-form-urlencoded"}}), 415);
  EXPECT_EQ(status_with({{"origin", "https://evil.example"}}), 403);
  EXPECT_EQ(status_with({{"origin", "http://localhost:9091"}}), 403);
  EXPECT_EQ(status_with({{"origin", "null"}}), 403);
  EXPECT_EQ(status_with({{"sec-fetch-site", "cross-site"}}), 403);
  EXPECT_EQ(status_with({{"sec-fetch-site", "same-site"}}), 403);
  // A name of another site that its DNS points to this machine.
  EXPECT_EQ(status_with({{"host", "evil.example:9090"}, {"origin", "http://evil.example:9090"}}),
            403);
  EXPECT_EQ(status_with({{"host", "127.evil.example"}}), 403);
  EXPECT_EQ(status_with({{"host", "localhost, evil.example"}}), 403);
  EXPECT_EQ(num_calls_, 0);
  EXPECT_EQ(status_with({{"origin", "http://localhost:9090"}, {"sec-fetch-site", "same-origin"}}),
            200);
  EXPECT_EQ(status_with({{"content-type", "Application/JSON; charset=utf-8"}}), 200);
}

TEST_F(TryEndpointTest, LocalMeansThisMachine) {
  for (const auto& [address, host, allowed] :
       std::vector<std::tuple<const char*, const char*, bool>>{
           {"127.0.0.1", "localhost:9090", true},
           {"127.0.0.1", "127.0.0.1:9090", true},
           {"127.8.9.1", "LOCALHOST", true},
           {"::1", "[::1]:9090", true},
           {"::ffff:127.0.0.1", "[::1]", true},
           {"10.0.0.7", "localhost:9090", false},
           {"::ffff:10.0.0.7", "localhost", false},
           {"2001:db8::1", "[::1]:9090", false},
           {"127.0.0.1", "10.0.0.7:9090", false},
           {"127.0.0.1", "[::ffff:127.0.0.1]:9090", true},
           {"127.0.0.1", "localhost:80@evil.example", false},
           {"127.0.0.1", "localhost:", false},
           {"127.0.0.1", "127.1", false},
           {"127.0.0.1", "127.0.0.1.evil.example", false},
           {"127.0.0.1", "gpu-box", false},
           {"127.0.0.1", "", false},
           {"", "localhost", false},
       }) {
    PageRequest request = GoodRequest();
    request.remote_address = address;
    request.headers["host"] = host;
    const PageResponse response = endpoint_.Handle(request);
    EXPECT_EQ(response.status, allowed ? 200 : 403) << address << " " << host;
    if (!allowed) {
      EXPECT_THAT(MessageOf(response), HasSubstr("--status_page_try=all"));
    }
  }
  for (const char* header : {"x-forwarded-for", "forwarded", "via", "x-real-ip"}) {
    PageRequest request = GoodRequest();
    request.headers[header] = "anything";
    EXPECT_EQ(endpoint_.Handle(request).status, 403) << header;
  }
}

TEST_F(TryEndpointTest, AllMeansEverybodyButOtherWebSites) {
  TryEndpoint endpoint(TryAccess::kAll, {"sru.example"});
  Serve(&endpoint);
  PageRequest request = GoodRequest();
  request.remote_address = "10.0.0.7";
  request.headers["host"] = "sru.example:9090";
  EXPECT_EQ(endpoint.Handle(request).status, 200);
  request.headers["origin"] = "http://sru.example:9090";
  EXPECT_EQ(endpoint.Handle(request).status, 200);
  request.headers["origin"] = "http://evil.example";
  EXPECT_EQ(endpoint.Handle(request).status, 403);
}

// A name of a stranger that his DNS points here; to the browser the page is then his own.
TEST_F(TryEndpointTest, AllWithstandsDnsRebinding) {
  TryEndpoint endpoint(TryAccess::kAll, {"sru.example"});
  Serve(&endpoint);
  PageRequest request = GoodRequest();
  for (const char* host : {"evil.example", "evil.example:9090", "127.0.0.1.evil.example",
                           "sru.example.evil.example", "localhost:80@evil.example", "127.1", ""}) {
    request.headers["host"] = host;
    request.headers["origin"] = absl::StrCat("http://", host);
    const PageResponse response = endpoint.Handle(request);
    EXPECT_EQ(response.status, 403) << host;
    EXPECT_EQ(CodeOf(response), "PERMISSION_DENIED");
  }
  request.headers["host"] = "evil.example";
  EXPECT_THAT(MessageOf(endpoint.Handle(request)), HasSubstr("--status_page_host=evil.example"));
  EXPECT_EQ(num_calls_, 0);
  for (const char* host : {"10.0.0.7:9090", "[2001:db8::1]:9090", "localhost", "gpu-box:9090"}) {
    request.headers["host"] = host;
    request.headers["origin"] = absl::StrCat("http://", host);
    EXPECT_EQ(endpoint.Handle(request).status, 200) << host;
  }
}

TEST_F(TryEndpointTest, OffMeansNobody) {
  TryEndpoint endpoint(TryAccess::kOff);
  Serve(&endpoint);
  const PageResponse response = endpoint.Handle(GoodRequest());
  EXPECT_EQ(response.status, 403);
  EXPECT_THAT(MessageOf(response), HasSubstr("--status_page_try=off"));
  EXPECT_EQ(num_calls_, 0);
}

TEST_F(TryEndpointTest, ErrorsOfTheCallKeepTheirCode) {
  for (const auto& [code, http_status] : std::vector<std::pair<absl::StatusCode, int>>{
           {absl::StatusCode::kInvalidArgument, 400},
           {absl::StatusCode::kFailedPrecondition, 400},
           {absl::StatusCode::kUnauthenticated, 401},
           {absl::StatusCode::kPermissionDenied, 403},
           {absl::StatusCode::kNotFound, 404},
           {absl::StatusCode::kResourceExhausted, 429},
           {absl::StatusCode::kInternal, 500},
           {absl::StatusCode::kUnavailable, 503},
           {absl::StatusCode::kDeadlineExceeded, 504},
       }) {
    status_ = ToGrpcStatus(absl::Status(code, "model: it says why"));
    const PageResponse response = endpoint_.Handle(GoodRequest());
    EXPECT_EQ(response.status, http_status);
    EXPECT_EQ(CodeOf(response), absl::StatusCodeToString(code));
    EXPECT_EQ(MessageOf(response), "model: it says why");
    EXPECT_EQ(HeaderOf(response, "Retry-After"), "");
  }
}

TEST_F(TryEndpointTest, ARefusalSaysWhenToComeBack) {
  status_ = ToGrpcStatus(absl::ResourceExhaustedError("queue full"), absl::Milliseconds(1200));
  EXPECT_EQ(HeaderOf(endpoint_.Handle(GoodRequest()), "Retry-After"), "2");
}

TEST_F(TryEndpointTest, BeforeTheModelsAreLoaded) {
  TryEndpoint endpoint(TryAccess::kLocal);
  const PageResponse response = endpoint.Handle(GoodRequest());
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(CodeOf(response), "UNAVAILABLE");
}

TEST(TryEndpointConcurrencyTest, AFewAtATime) {
  TryEndpoint endpoint(TryAccess::kLocal);
  Notification release;
  std::atomic<int> started{0};
  endpoint.SetClassify(
      [&](grpc::ClientContext*, const v1::ClassifyRequest&, v1::ClassifyResponse*) {
        ++started;
        EXPECT_TRUE(release.Wait());
        return grpc::Status::OK;
      });
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int i = 0; i < TryEndpoint::kMaxConcurrent; ++i) {
    threads.emplace_back([&] { answered += endpoint.Handle(GoodRequest()).status == 200; });
  }
  while (started < TryEndpoint::kMaxConcurrent) std::this_thread::yield();
  const PageResponse refused = endpoint.Handle(GoodRequest());
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(HeaderOf(refused, "Retry-After"), "1");
  release.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, TryEndpoint::kMaxConcurrent);
  EXPECT_EQ(endpoint.Handle(GoodRequest()).status, 200);
}

TEST(TryEndpointConcurrencyTest, ClosingEndsWhatRuns) {
  TryEndpoint endpoint(TryAccess::kLocal);
  Notification started;
  Notification closing;
  std::atomic<int> num_calls{0};
  endpoint.SetClassify(
      [&](grpc::ClientContext*, const v1::ClassifyRequest&, v1::ClassifyResponse*) {
        ++num_calls;
        started.Notify();
        EXPECT_TRUE(closing.Wait());
        return grpc::Status(grpc::StatusCode::CANCELLED, "as TryCancel() makes it");
      });
  PageResponse running;
  std::thread caller([&] { running = endpoint.Handle(GoodRequest()); });
  ASSERT_TRUE(started.Wait());
  std::thread closer([&] { endpoint.Close(); });
  closing.Notify();
  closer.join();
  caller.join();
  EXPECT_EQ(num_calls, 1);
  const PageResponse refused = endpoint.Handle(GoodRequest());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(MessageOf(refused), "the server is shutting down");
  EXPECT_EQ(num_calls, 1);
}

// Collects the body of a text, and may stop reading.
class FakeStream : public PageStream {
 public:
  bool Write(std::string part) override {
    ++writes;
    body += part;
    return writes < gone_after;
  }
  void AsyncWrite(std::string part, std::function<void(bool)> written) override {
    written(Write(std::move(part)));
  }

  // The JSON objects of the events.
  std::vector<json> Events() const {
    std::vector<json> events;
    for (const absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
      EXPECT_EQ(event.substr(0, 6), "data: ");
      events.push_back(json::parse(std::string(event.substr(6))));
    }
    return events;
  }

  std::string body;
  int writes = 0;
  int gone_after = 1000;
};

class TryGenerateTest : public ::testing::Test {
 protected:
  TryGenerateTest() {
    endpoint_.SetGenerate([this](grpc::ClientContext* context, const v1::GenerateRequest& request,
                                 const std::function<bool(const v1::GenerateResponse&)>& take) {
      request_ = request;
      time_left_ = absl::FromChrono(context->deadline()) - absl::Now();
      v1::GenerateResponse response;
      response.set_text("a\n");
      if (!take(response)) return grpc::Status(grpc::StatusCode::CANCELLED, "gone");
      response.clear_text();  // a token whose text comes later
      if (!take(response)) return grpc::Status(grpc::StatusCode::CANCELLED, "gone");
      if (!status_.ok()) return status_;
      response.set_text("\"b\"");
      response.set_finish_reason(v1::FINISH_REASON_STOP);
      response.set_model("lm");
      response.set_version(4);
      response.set_prompt_tokens(2);
      response.set_generated_tokens(3);
      response.mutable_times()->set_total_us(123);
      take(response);
      return grpc::Status::OK;
    });
  }

  PageRequest Request(const std::string& body) {
    PageRequest request = GoodRequest(body);
    request.path = "/try/generate";
    return request;
  }

  v1::GenerateRequest request_;
  absl::Duration time_left_;
  grpc::Status status_;
  TryEndpoint endpoint_{TryAccess::kLocal};
};

TEST_F(TryGenerateTest, TheTextComesAsEvents) {
  const PageResponse response = endpoint_.Handle(
      Request(R"({"prompt": "It was", "model": "lm", "version": 4, "max_new_tokens": 7,
                  "temperature": 0.5, "top_p": 1, "seed": 18446744073709551615,
                  "timeout_ms": 300})"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/event-stream; charset=utf-8");
  ASSERT_NE(response.write_body, nullptr);
  FakeStream stream;
  response.write_body(&stream);
  const std::vector<json> events = stream.Events();
  ASSERT_EQ(events.size(), 2u) << stream.body;
  EXPECT_EQ(events[0], (json{{"text", "a\n"}}));
  EXPECT_EQ(events[1]["text"], "\"b\"");
  EXPECT_EQ(events[1]["finish_reason"], "stop");
  EXPECT_EQ(events[1]["model"], "lm");
  EXPECT_EQ(events[1]["version"], 4);
  EXPECT_EQ(events[1]["prompt_tokens"], 2);
  EXPECT_EQ(events[1]["generated_tokens"], 3);
  EXPECT_EQ(events[1]["times"]["total_us"], 123);
  EXPECT_EQ(request_.prompt().text(), "It was");
  EXPECT_EQ(request_.model(), "lm");
  EXPECT_EQ(request_.version(), 4);
  EXPECT_EQ(request_.max_new_tokens(), 7);
  EXPECT_EQ(request_.sampling().temperature(), 0.5f);
  EXPECT_EQ(request_.sampling().top_p(), 1.0f);
  EXPECT_EQ(request_.sampling().seed(), ~uint64_t{0});
  EXPECT_LE(time_left_, absl::Milliseconds(300));
  EXPECT_EQ(response.headers,
            (std::vector<std::pair<std::string, std::string>>{{"X-Accel-Buffering", "no"}}));
}

TEST_F(TryGenerateTest, AnErrorIsTheLastEvent) {
  status_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  FakeStream stream;
  endpoint_.Handle(Request(R"({"prompt": "x"})")).write_body(&stream);
  const std::vector<json> events = stream.Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["error"]["code"], "UNAVAILABLE");
  EXPECT_EQ(events[1]["error"]["message"], "draining");
  EXPECT_EQ(request_.max_new_tokens(), 200);
  EXPECT_LE(time_left_, absl::Seconds(30));
}

TEST_F(TryGenerateTest, AClientThatGoesAwayEndsTheCall) {
  FakeStream stream;
  stream.gone_after = 1;
  endpoint_.Handle(Request(R"({"prompt": "x"})")).write_body(&stream);
  EXPECT_EQ(stream.Events()[0]["text"], "a\n");
  EXPECT_EQ(stream.Events()[1]["error"]["code"], "CANCELLED");
}

TEST_F(TryGenerateTest, BadBodies) {
  for (const auto& [body, part] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"{}", "prompt: is missing"},
           {R"({"prompt": 5})", "prompt: expected a string, found 5"},
           {R"({"prompt": "x", "max_new_tokens": 0})",
            "max_new_tokens: expected 1 to 1000, found 0"},
           {R"({"prompt": "x", "max_new_tokens": 1001})", "max_new_tokens: expected 1 to 1000"},
           {R"({"prompt": "x", "temperature": "hot"})", "temperature: expected a number"},
           {R"({"prompt": "x", "top_p": null})", "top_p: expected a number"},
           {R"({"prompt": "x", "seed": -1})", "seed: expected a number from 0"},
           {R"({"prompt": "x", "seed": 1.5})", "seed: expected a number from 0"},
           {R"({"prompt": "x", "timeout_ms": 60001})", "timeout_ms: expected 1 to 60000"},
           {R"({"prompt": "x", "model": 1})", "model: expected a string"},
           {R"({"prompt": "x", "top_k": 1})", "there is no key 'top_k'"}}) {
    const PageResponse response = endpoint_.Handle(Request(body));
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(response.write_body, nullptr);
    EXPECT_EQ(CodeOf(response), "INVALID_ARGUMENT");
    EXPECT_THAT(MessageOf(response), HasSubstr(part));
  }
}

// The same rules as for /try.
TEST_F(TryGenerateTest, AccessIsThatOfTheOtherBox) {
  PageRequest request = Request(R"({"prompt": "x"})");
  request.remote_address = "192.0.2.1";
  EXPECT_EQ(endpoint_.Handle(request).status, 403);
  request = Request(R"({"prompt": "x"})");
  request.headers.erase("x-sru-try");
  EXPECT_EQ(endpoint_.Handle(request).status, 403);
  request = Request(R"({"prompt": "x"})");
  request.method = "GET";
  EXPECT_EQ(endpoint_.Handle(request).status, 405);
  EXPECT_THAT(MessageOf(endpoint_.Handle(request)), HasSubstr("/try/generate takes POST"));
}

TEST_F(TryGenerateTest, ATextTakesAPlaceUntilItHasEnded) {
  std::vector<PageResponse> texts;
  for (int i = 0; i < TryEndpoint::kMaxConcurrent; ++i) {
    texts.push_back(endpoint_.Handle(Request(R"({"prompt": "x"})")));
    EXPECT_EQ(texts.back().status, 200);
  }
  EXPECT_EQ(endpoint_.Handle(Request(R"({"prompt": "x"})")).status, 429);
  FakeStream stream;
  texts.back().write_body(&stream);
  texts.pop_back();
  EXPECT_EQ(endpoint_.Handle(Request(R"({"prompt": "x"})")).status, 200);
}

TEST_F(TryGenerateTest, ClosingEndsIt) {
  const PageResponse response = endpoint_.Handle(Request(R"({"prompt": "x"})"));
  endpoint_.Close();
  FakeStream stream;
  response.write_body(&stream);
  EXPECT_EQ(stream.Events()[0]["error"]["message"], "the server is shutting down");
}

class TryAnswerTest : public ::testing::Test {
 protected:
  TryAnswerTest() {
    endpoint_.SetAnswer([this](grpc::ClientContext* context, const v1::AnswerRequest& request,
                               v1::AnswerResponse* response) {
      request_ = request;
      time_left_ = absl::FromChrono(context->deadline()) - absl::Now();
      if (!status_.ok()) return status_;
      response->set_model("squad");
      response->set_version(4);
      v1::QueryAnswers* result = response->add_results();
      v1::SpanAnswer* answer = result->add_answers();
      answer->set_text("b\u00e4r");
      answer->set_start_byte(5);
      answer->set_start_char(4);
      answer->set_end_char(7);
      answer->set_log_score(12.5);
      answer->set_probability(0.75f);
      result->set_token_count(9);
      response->mutable_times()->set_total_us(123);
      return grpc::Status::OK;
    });
  }

  PageResponse Ask(const std::string& body) {
    PageRequest request = GoodRequest(body);
    request.path = "/try/answer";
    return endpoint_.Handle(request);
  }

  v1::AnswerRequest request_;
  absl::Duration time_left_;
  grpc::Status status_;
  TryEndpoint endpoint_{TryAccess::kLocal};
};

TEST_F(TryAnswerTest, Answers) {
  const PageResponse response = Ask(
      R"({"question": "Who?", "passage": "\u00e4\u00e4: b\u00e4r", "model": "squad", "version": 4,
          "top_n": 2, "timeout_ms": 300})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.content_type, "application/json; charset=utf-8");
  const json body = json::parse(response.body);
  EXPECT_EQ(body["model"], "squad");
  EXPECT_EQ(body["version"], 4);
  EXPECT_EQ(body["token_count"], 9);
  EXPECT_EQ(body["times"]["total_us"], 123);
  ASSERT_EQ(body["answers"].size(), 1u);
  EXPECT_EQ(body["answers"][0], (json{{"text", "b\u00e4r"},
                                      {"start_char", 4},
                                      {"end_char", 7},
                                      {"log_score", 12.5},
                                      {"probability", 0.75}}));
  EXPECT_EQ(request_.model(), "squad");
  EXPECT_EQ(request_.version(), 4);
  EXPECT_EQ(request_.top_n(), 2);
  EXPECT_TRUE(request_.no_overlap());
  ASSERT_EQ(request_.queries_size(), 1);
  EXPECT_EQ(request_.queries(0).question(), "Who?");
  ASSERT_EQ(request_.queries(0).passages_size(), 1);
  EXPECT_EQ(request_.queries(0).passages(0), "\u00e4\u00e4: b\u00e4r");
  EXPECT_LE(time_left_, absl::Milliseconds(300));

  EXPECT_EQ(Ask(R"({"question": "Who?", "passage": "x"})").status, 200);
  EXPECT_EQ(request_.top_n(), 3);
  EXPECT_LE(time_left_, absl::Seconds(5));
  EXPECT_GT(time_left_, absl::Seconds(1));
}

TEST_F(TryAnswerTest, BadBodies) {
  for (const auto& [body, part] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"{}", "question: is missing"},
           {R"({"passage": "x"})", "question: is missing"},
           {R"({"question": "x"})", "passage: is missing"},
           {R"({"question": 5, "passage": "x"})", "question: expected a string, found 5"},
           {R"({"question": "x", "passage": ["x"]})", "passage: expected a string"},
           {R"({"question": "x", "passage": "x", "top_n": 0})", "top_n: expected 1 to 10, found 0"},
           {R"({"question": "x", "passage": "x", "top_n": 11})", "top_n: expected 1 to 10"},
           {R"({"question": "x", "passage": "x", "top_n": "1"})", "top_n: expected 1 to 10"},
           {R"({"question": "x", "passage": "x", "timeout_ms": 10001})",
            "timeout_ms: expected 1 to 10000"},
           {R"({"question": "x", "passage": "x", "text": "x"})", "there is no key 'text'"}}) {
    const PageResponse response = Ask(body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(CodeOf(response), "INVALID_ARGUMENT");
    EXPECT_THAT(MessageOf(response), HasSubstr(part)) << body;
    EXPECT_THAT(MessageOf(response), Not(HasSubstr("\"prompt\"")));
  }
}

TEST_F(TryAnswerTest, ErrorsAndAccessAreThoseOfTheOtherBoxes) {
  status_ = ToGrpcStatus(absl::ResourceExhaustedError("queue full"), absl::Milliseconds(1200));
  const std::string good = R"({"question": "x", "passage": "x"})";
  PageResponse response = Ask(good);
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(HeaderOf(response, "Retry-After"), "2");
  for (const char* path : {"/try/answer", "/try/translate"}) {
    PageRequest request = GoodRequest(good);
    request.path = path;
    request.remote_address = "192.0.2.1";
    EXPECT_EQ(endpoint_.Handle(request).status, 403);
    request.remote_address = "127.0.0.1";
    request.headers.erase("x-sru-try");
    EXPECT_EQ(endpoint_.Handle(request).status, 403);
    request.method = "GET";
    response = endpoint_.Handle(request);
    EXPECT_EQ(response.status, 405);
    EXPECT_THAT(MessageOf(response), HasSubstr(std::string(path) + " takes POST; expected {"));
  }
  endpoint_.Close();
  EXPECT_EQ(MessageOf(Ask(good)), "the server is shutting down");
}

class TryTranslateTest : public ::testing::Test {
 protected:
  TryTranslateTest() {
    endpoint_.SetTranslate([this](grpc::ClientContext* context, const v1::TranslateRequest& request,
                                  v1::TranslateResponse* response) {
      request_ = request;
      time_left_ = absl::FromChrono(context->deadline()) - absl::Now();
      response->set_model("captions");
      response->set_version(4);
      *response->add_translations() = translation_;
      response->mutable_times()->set_total_us(123);
      return grpc::Status::OK;
    });
    translation_.set_token_count(2);
    for (const char* token : {"\u2581a", "\u2581dog"}) translation_.add_source_tokens(token);
    v1::Hypothesis* hypothesis = translation_.add_hypotheses();
    hypothesis->set_text("ein Hund");
    hypothesis->set_score(-0.5);
    hypothesis->set_log_prob(-1.5);
    for (const char* token : {"\u2581ein", "\u2581Hund"}) hypothesis->add_tokens(token);
    for (const float weight : {0.75f, 0.25f, 0.0004f, 0.9996f}) hypothesis->add_alignment(weight);
  }

  PageResponse Ask(const std::string& body) {
    PageRequest request = GoodRequest(body);
    request.path = "/try/translate";
    return endpoint_.Handle(request);
  }

  v1::Translation translation_;
  v1::TranslateRequest request_;
  absl::Duration time_left_;
  TryEndpoint endpoint_{TryAccess::kLocal};
};

TEST_F(TryTranslateTest, Translates) {
  const PageResponse response = Ask(
      R"({"text": "a dog", "model": "captions", "version": 4, "beam_size": 8, "num_hypotheses": 2,
          "timeout_ms": 60000})");
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);
  EXPECT_EQ(body["model"], "captions");
  EXPECT_EQ(body["version"], 4);
  EXPECT_EQ(body["token_count"], 2);
  EXPECT_EQ(body["truncated"], false);
  EXPECT_EQ(body["source_tokens"], json({"\u2581a", "\u2581dog"}));
  EXPECT_EQ(body["times"]["total_us"], 123);
  ASSERT_EQ(body["hypotheses"].size(), 1u);
  const json& best = body["hypotheses"][0];
  EXPECT_EQ(best["text"], "ein Hund");
  EXPECT_EQ(best["score"], -0.5);
  EXPECT_EQ(best["log_prob"], -1.5);
  EXPECT_EQ(best["unfinished"], false);
  EXPECT_EQ(best["tokens"], json({"\u2581ein", "\u2581Hund"}));
  EXPECT_EQ(best["alignment"], json::array({json::array({750, 250}), json::array({0, 1000})}));
  EXPECT_EQ(request_.model(), "captions");
  EXPECT_EQ(request_.version(), 4);
  EXPECT_EQ(request_.beam_size(), 8);
  EXPECT_EQ(request_.num_hypotheses(), 2);
  EXPECT_TRUE(request_.return_alignment());
  ASSERT_EQ(request_.sequences_size(), 1);
  EXPECT_EQ(request_.sequences(0).text(), "a dog");
  EXPECT_GT(time_left_, absl::Seconds(31));
}

// Without tokens, and where nobody could see anything.
TEST_F(TryTranslateTest, AnAlignmentMayBeLeftOut) {
  for (const int source_tokens : {0, 3, 200}) {
    translation_.set_token_count(source_tokens);
    const std::vector<float> alignment(source_tokens == 200 ? 20200 : 4, 0.5f);
    translation_.mutable_hypotheses(0)->mutable_alignment()->Assign(alignment.begin(),
                                                                    alignment.end());
    const json body = json::parse(Ask(R"({"text": ""})").body);
    EXPECT_EQ(body["hypotheses"][0]["alignment"], json::array()) << source_tokens;
  }
  translation_.Clear();
  EXPECT_EQ(json::parse(Ask(R"({"text": ""})").body)["hypotheses"], json::array());
  EXPECT_EQ(request_.beam_size(), 0);
  EXPECT_EQ(request_.num_hypotheses(), 0);
  EXPECT_LE(time_left_, absl::Seconds(30));
}

TEST_F(TryTranslateTest, BadBodies) {
  for (const auto& [body, part] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON"},
           {"{}", "text: is missing"},
           {R"({"text": 5})", "text: expected a string, found 5"},
           {R"({"text": "x", "beam_size": 65})", "beam_size: expected 0 to 64, found 65"},
           {R"({"text": "x", "beam_size": -1})", "beam_size: expected 0 to 64"},
           {R"({"text": "x", "num_hypotheses": 0})", "num_hypotheses: expected 1 to 10, found 0"},
           {R"({"text": "x", "num_hypotheses": 11})", "num_hypotheses: expected 1 to 10"},
           {R"({"text": "x", "timeout_ms": 60001})", "timeout_ms: expected 1 to 60000"},
           {R"({"text": "x", "alpha": 1})", "there is no key 'alpha'"}}) {
    const PageResponse response = Ask(body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(CodeOf(response), "INVALID_ARGUMENT");
    EXPECT_THAT(MessageOf(response), HasSubstr(part)) << body;
  }
}

TEST(TryAccessTest, Parses) {
  EXPECT_EQ(*ParseTryAccess("f", "off"), TryAccess::kOff);
  EXPECT_EQ(*ParseTryAccess("f", "local"), TryAccess::kLocal);
  EXPECT_EQ(*ParseTryAccess("f", "all"), TryAccess::kAll);
  const absl::Status status = ParseTryAccess("status_page_try", "yes").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--status_page_try"));
}

}  // namespace
}  // namespace sru::server
