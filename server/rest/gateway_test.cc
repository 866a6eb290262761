#include "server/rest/gateway.h"

#include <array>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/base/advice.h"
#include "server/base/clock.h"
#include "server/base/retry.h"
#include "server/base/side_threads.h"
#include "server/callers/callers.h"
#include "server/rest/api_routes.h"
#include "server/rest/event_stream.h"
#include "server/rest/web_protocol.h"
#include "sru/v1/inference.pb.h"
#include "tests/testing/fake_methods.h"
#include "tests/testing/marian_files.h"
#include "tests/testing/plain_rest_call.h"
#include "tests/testing/poll.h"

namespace sru::server::rest {
namespace {

using ::nlohmann::json;
using ::sru::testing::FakeEnd;
using ::sru::testing::FakeStream;
using ::sru::testing::FakeUnary;
using ::sru::testing::Gzip;
using ::sru::testing::PollUntil;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Writer = std::function<bool(const v1::GenerateResponse&)>;

// The test's methods: each call runs the function that the test has set.
struct GatewayService {
  std::function<calls::CallEnd(calls::Exchange&, const v1::ClassifyRequest&, v1::ClassifyResponse*)>
      classify;
  std::function<calls::CallEnd(calls::Exchange&, const v1::GenerateRequest&, const Writer&)>
      generate;
  std::function<calls::CallEnd(calls::Exchange&, const v1::EncodeRequest&, v1::EncodeResponse*)>
      encode;
  std::string task = "classifier";  // of the model that GetModel finds
  std::atomic<bool> ready{true};

  // Rows of methods that no test calls have no calls.
  std::vector<calls::Method> Rows() {
    constexpr char kService[] = "sru.v1.InferenceService";
    std::vector<calls::Method> rows = {
        FakeUnary<v1::ClassifyRequest, v1::ClassifyResponse>(
            kService, "Classify",
            [this](auto& exchange, const auto& request, auto* response) {
              return classify(exchange, request, response);
            }),
        FakeStream<v1::GenerateRequest, v1::GenerateResponse>(
            kService, "Generate",
            [this](auto& exchange, const auto& request, const auto& write) {
              return generate(exchange, request, write);
            }),
        FakeUnary<v1::EncodeRequest, v1::EncodeResponse>(
            kService, "Encode",
            [this](auto& exchange, const auto& request, auto* response) {
              return encode(exchange, request, response);
            }),
        FakeUnary<v1::TokenizeRequest, v1::TokenizeResponse>(
            kService, "Tokenize",
            [](auto& /*exchange*/, const auto& request, auto* response) {
              response->set_model(request.model());
              response->set_max_sequence_tokens(9);
              v1::Tokenization& tokens = *response->add_tokenizations();
              for (const char byte : request.sequences(0).text()) {
                v1::Token& token = *tokens.add_tokens();
                token.set_id(byte);
                token.set_text(std::string(1, byte));
              }
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<v1::DetokenizeRequest, v1::DetokenizeResponse>(
            kService, "Detokenize",
            [](auto& /*exchange*/, const auto& request, auto* response) {
              if (request.model() != "lm") return FakeEnd(absl::NotFoundError("model: not lm"));
              if (request.sequences(0).values(0) > 99) {
                return FakeEnd(absl::InvalidArgumentError("sequences[0].values[0]: too large"));
              }
              response->add_texts("text");
              return FakeEnd(absl::OkStatus());
            }),
        Row<v1::ScoreRequest, v1::ScoreResponse>("Score"),
        Row<v1::AnswerRequest, v1::AnswerResponse>("Answer"),
        Row<v1::TranslateRequest, v1::TranslateResponse>("Translate")};
    for (calls::Method& row : rows) {
      row.http_path = absl::StrCat("/v1/", absl::AsciiStrToLower(row.name));
      for (size_t i = 0; i < calls::kNumMethods; ++i) {
        const auto id = static_cast<calls::MethodId>(i);
        if (row.name == calls::MethodName(id)) row.id = id;
      }
    }
    rows.push_back(FakeUnary<inference::ModelInferRequest, inference::ModelInferResponse>(
        "inference.GRPCInferenceService", "ModelInfer",
        [](auto& /*exchange*/, const auto& /*request*/, auto* response) {
          auto* const output = response->add_outputs();
          output->set_name("ids");
          output->set_datatype("INT32");
          output->add_shape(100000);
          response->add_raw_output_contents(std::string(400000, '\0'));
          return FakeEnd(absl::OkStatus());
        }));
    rows.push_back(FakeUnary<v1::ListModelsRequest, v1::ListModelsResponse>(
        kService, "ListModels", [](auto& /*exchange*/, const auto& /*request*/, auto* response) {
          for (const int version : {1, 2}) {
            v1::ModelInfo& model = *response->add_models();
            model.set_name("trec");
            model.set_version(version);
            model.set_task("classifier");
            model.add_labels("LOC");
            model.set_max_sequence_tokens(2048);
          }
          v1::ModelInfo& model = *response->add_models();
          model.set_name("lm");
          model.set_task("language_model");
          return FakeEnd(absl::OkStatus());
        }));
    rows.push_back(FakeUnary<inference::ServerReadyRequest, inference::ServerReadyResponse>(
        "inference.GRPCInferenceService", "ServerReady",
        [this](auto& /*exchange*/, const auto& /*request*/, auto* response) {
          response->set_ready(ready);
          return FakeEnd(absl::OkStatus());
        }));
    rows.push_back(FakeUnary<v1::GetModelRequest, v1::GetModelResponse>(
        kService, "GetModel", [this](auto& /*exchange*/, const auto& request, auto* response) {
          response->mutable_model()->set_name(request.model());
          response->mutable_model()->set_task(task);
          response->mutable_model()->set_version(request.version());
          return FakeEnd(absl::OkStatus());
        }));
    return rows;
  }

 private:
  template <typename Request, typename Response>
  static calls::Method Row(const char* name) {
    return FakeUnary<Request, Response>(
        "sru.v1.InferenceService", name,
        [](auto& /*exchange*/, const auto& /*request*/, auto* /*response*/) {
          return FakeEnd(absl::UnimplementedError("no test calls it"));
        });
  }
};

class TestBudget : public calls::ByteBudget {
 public:
  TestBudget() : ByteBudget(int64_t{64} << 20) {}

  std::atomic<bool> throws{false};  // the next reservation

 private:
  bool Reserve(int64_t bytes) override {
    if (throws.exchange(false)) throw std::bad_alloc();
    return ByteBudget::Reserve(bytes);
  }
};

struct TestRequest : http::PageRequest {
  absl::StatusOr<absl::Cord> body;
  bool is_refused = false;  // whatever its body is
};

// A client with its request, until it has the answer.
class Client final : public calls::HttpExchange, public std::enable_shared_from_this<Client> {
 public:
  explicit Client(TestRequest request) : request_(std::move(request)) {
    target_ = request_.path;
    if (!request_.query.empty()) absl::StrAppend(&target_, "?", request_.query);
  }

  void SendHead(Gateway* gateway) {
    self_ = shared_from_this();
    const std::shared_ptr<http::HttpCall> call = gateway->Start(this, http::RequestOf(*this));
    handler = call.get();
    call->Begin(&counts_);
  }
  // Unless it was refused.
  void SendBody() {
    if (ended()) return;
    EXPECT_FALSE(request_.is_refused);
    handler->OnBody(request_.body);
  }
  void Leave() { handler->OnCancel(); }
  bool ended() const {
    MutexLock lock(&mutex);
    return ended_;
  }

  mutable Mutex mutex;
  std::shared_ptr<const http::PageResponse> response
      ABSL_GUARDED_BY(mutex);  // whole, or the head of one in parts
  std::string parts ABSL_GUARDED_BY(mutex);
  bool reads ABSL_GUARDED_BY(mutex) = true;
  bool throws ABSL_GUARDED_BY(mutex) = false;        // when it is answered in parts
  bool throws_later ABSL_GUARDED_BY(mutex) = false;  // when a part is sent
  std::function<void(bool)> written ABSL_GUARDED_BY(mutex);
  calls::HttpHandler* handler = nullptr;

  // HttpExchange:
  absl::string_view verb() const override { return request_.method; }
  absl::string_view method() const override { return target_; }
  std::string peer() const override { return request_.peer; }
  void VisitHeaders(const std::function<void(absl::string_view name, absl::string_view value)>&
                        visit) const override {
    for (const auto& [name, value] : request_.headers) visit(name, value);
  }
  absl::string_view FindHeader(absl::string_view /*name*/) const override { return {}; }
  absl::Duration time_left() const override { return absl::InfiniteDuration(); }
  bool is_cancelled() const override { return false; }
  void Read() override {}
  void SetHead(int status, calls::Metadata headers) override {
    auto head = std::make_shared<Answer>();
    head->status = status;
    bool is_whole = false;
    for (const auto& [name, value] : headers) {
      if (name == "Content-Type") head->content_type = value;
      is_whole |= name == "Content-Length";
    }
    head->headers = std::move(headers);
    MutexLock lock(&mutex);
    if (throws && !is_whole) throw std::bad_alloc();
    EXPECT_EQ(head_, nullptr) << "answered twice";
    head_ = head;
    if (!is_whole) response = std::move(head);
  }
  void Write(absl::Cord message) override {
    {
      MutexLock lock(&mutex);
      if (throws_later) throw std::bad_alloc();
      parts += std::string(message);
      if (!reads) {
        written = [this](bool ok) { handler->OnWritten(ok); };
        return;
      }
    }
    handler->OnWritten(true);
  }
  void Finish(calls::CallEnd /*end*/) override { End({}); }
  void WriteAndFinish(absl::Cord message, calls::CallEnd /*end*/) override {
    End(std::move(message));
  }

 private:
  // Keeps what the answer has reserved.
  struct Answer : http::PageResponse {
    absl::Cord bytes;
  };

  void End(absl::Cord bytes) {
    {
      MutexLock lock(&mutex);
      if (head_ != nullptr) {
        head_->body = std::string(bytes);
        head_->bytes = std::move(bytes);
        response = std::move(head_);
      }
      ended_ = true;
    }
    const std::shared_ptr<Client> last = std::move(self_);
    if (handler != nullptr) handler->OnDone();
  }

  const TestRequest request_;
  std::string target_;
  http::AnswerCounts counts_{};
  std::shared_ptr<Client> self_;
  std::shared_ptr<Answer> head_ ABSL_GUARDED_BY(mutex);  // until the end
  bool ended_ ABSL_GUARDED_BY(mutex) = false;
};

class GatewayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    service_.classify = [](calls::Exchange&, const v1::ClassifyRequest& request,
                           v1::ClassifyResponse* response) {
      response->set_model(request.model());
      for (const v1::Sequence& sequence : request.sequences()) {
        response->add_classifications()->add_labels()->set_name(sequence.text());
      }
      return FakeEnd(absl::OkStatus());
    };
    service_.generate = [](calls::Exchange&, const v1::GenerateRequest& request,
                           const Writer& writer) {
      for (int i = 0; i < request.max_new_tokens(); ++i) {
        v1::GenerateResponse response;
        response.set_model("lm");
        response.set_text(absl::StrCat(i % 10));
        const bool last = i + 1 == request.max_new_tokens();
        if (last) {
          response.set_finish_reason(v1::FINISH_REASON_LENGTH);
          response.set_prompt_tokens(2);
          response.set_generated_tokens(request.max_new_tokens());
        }
        if (!writer(response)) break;
      }
      return FakeEnd(absl::OkStatus());
    };
    gateway_ = std::make_unique<Gateway>(MakeOptions());
  }

  Gateway::Options MakeOptions() {
    Gateway::Options options;
    options.methods = &methods_;
    options.memory = &budget_;
    options.authenticate =
        [this](const http::PageRequest& request) -> absl::StatusOr<callers::CallerPtr> {
      if (request.header("authorization") == "Bearer secret") return caller_;
      return absl::UnauthenticatedError("a token is needed");
    };
    options.page_hosts = {"sru.example"};
    options.on_refused = [this](const http::PageRequest& request, const callers::Caller* /*caller*/,
                                int status, const absl::Status& /*reason*/) {
      refused_.push_back(absl::StrCat(request.path, " ", status));
    };
    return options;
  }

  void TearDown() override {
    gateway_->Close();
    {
      if (client_ == nullptr) client_ = std::make_shared<Client>(Request("GET", "/"));
      MutexLock lock(&client_->mutex);
      client_->response = nullptr;
    }
    EXPECT_TRUE(PollUntil([this] { return budget_.used() == 0; })) << budget_.used();
    gateway_ = nullptr;
  }

  // What calls run, whatever they ask.
  void OnClassify(const std::function<calls::CallEnd(calls::Exchange&)>& run) {
    service_.classify = [run](calls::Exchange& exchange, const v1::ClassifyRequest&,
                              v1::ClassifyResponse*) { return run(exchange); };
  }
  void OnGenerate(const std::function<calls::CallEnd(calls::Exchange&, const Writer&)>& run) {
    service_.generate = [run](calls::Exchange& exchange, const v1::GenerateRequest&,
                              const Writer& writer) { return run(exchange, writer); };
  }
  // The limits of the caller of all requests.
  void Limit(const std::string& limits) {
    caller_ = callers_.WithLimits("name a", "a", *callers::ParseLimitsFlag("f", limits));
  }

  static TestRequest Request(const std::string& method, const std::string& path,
                             const std::string& body = "") {
    TestRequest request;
    request.method = method;
    request.path = path;
    request.peer = "ipv4:10.1.2.3:4711";
    request.headers["host"] = "localhost:8080";
    request.headers["authorization"] = "Bearer secret";
    if (method == "POST") request.headers["content-type"] = "application/json";
    request.body = absl::Cord(body);
    return request;
  }

  static TestRequest With(TestRequest request, const std::string& name, const std::string& value) {
    request.headers[name] = value;
    return request;
  }
  // A request whose body must not be read.
  static TestRequest Unread(const std::string& path) {
    TestRequest request = Request("POST", path);
    request.is_refused = true;
    return request;
  }

  std::shared_ptr<const http::PageResponse> Ask(const TestRequest& request) {
    Start(request);
    return Await();
  }
  void Start(const TestRequest& request, bool reads = true) {
    SendHead(request, reads);
    client_->SendBody();
  }
  void SendHead(const TestRequest& request, bool reads = true) {
    client_ = std::make_shared<Client>(request);
    {
      MutexLock lock(&client_->mutex);
      client_->reads = reads;
    }
    client_->SendHead(gateway_.get());
  }
  std::shared_ptr<const http::PageResponse> Await() {
    EXPECT_TRUE(PollUntil([this] {
      MutexLock lock(&client_->mutex);
      return client_->response != nullptr;
    }));
    MutexLock lock(&client_->mutex);
    return client_->response;
  }
  json Complete(const std::string& body) {
    return json::parse(Ask(Request("POST", "/v1/completions", body))->body);
  }
  // All that came in parts.
  std::string AwaitEnd() {
    EXPECT_TRUE(PollUntil([this] { return client_->ended(); }));
    MutexLock lock(&client_->mutex);
    return client_->parts;
  }
  std::string Parts() {
    MutexLock lock(&client_->mutex);
    return client_->parts;
  }

  static std::string Header(const http::PageResponse& response, const std::string& name) {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return value;
    }
    return "";
  }
  void ExpectRefusal(const TestRequest& request, int status, const std::string& code,
                     const std::string& part) {
    SCOPED_TRACE(part);
    const auto response = Ask(request);
    EXPECT_EQ(response->status, status);
    EXPECT_EQ(response->content_type, "application/json");
    json error = json::parse(response->body);
    // Connect's errors, whose codes are in lower case, have no such level.
    ASSERT_EQ(error.contains("error"), absl::ascii_isupper(code[0]));
    if (error.contains("error")) error = json(error.at("error"));
    EXPECT_EQ(error.at("code"), code);
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(part));
  }

  GatewayService service_;
  const calls::MethodTable methods_{service_.Rows()};
  TestBudget budget_;
  std::vector<std::string> refused_;
  RealClock clock_;
  callers::Callers callers_{{}, &clock_};
  callers::CallerPtr caller_;  // of all requests; null: nobody in particular
  std::shared_ptr<Client> client_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayTest, AJsonRequestIsACall) {
  const auto response = Ask(
      Request("POST", "/v1/classify", R"({"model":"m","sequences":[{"text":"a"},{"text":"b"}]})"));
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->content_type, "application/json");
  const json answer = json::parse(response->body);
  EXPECT_EQ(answer.at("model"), "m");
  EXPECT_EQ(answer.at("classifications").at(1).at("labels").at(0).at("name"), "b");
  EXPECT_TRUE(refused_.empty());
}

TEST_F(GatewayTest, HeadersGoWithTheCall) {
  std::map<std::string, std::string> seen;
  std::string peer;
  absl::Duration left;
  OnClassify([&](calls::Exchange& exchange) {
    for (const char* name : {"x-request-id", "authorization", "traceparent"}) {
      seen[name] = std::string(exchange.FindHeader(name));
    }
    peer = exchange.peer();
    left = exchange.time_left();
    return FakeEnd(absl::OkStatus());
  });
  TestRequest request = Request("POST", "/v1/classify", "{}");
  request.headers["x-request-id"] = "mine";
  request.headers["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  request.headers["x-request-timeout-ms"] = "50000";
  const auto response = Ask(request);
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(seen["x-request-id"], "mine");
  EXPECT_EQ(seen["authorization"], "Bearer secret");
  EXPECT_THAT(seen["traceparent"], StartsWith("00-4bf9"));
  EXPECT_EQ(peer, "ipv4:10.1.2.3:4711");
  EXPECT_GT(left, absl::Seconds(10));
  EXPECT_LE(left, absl::Seconds(50));
}

TEST_F(GatewayTest, ErrorsOfCallsAreJson) {
  OnClassify([](calls::Exchange&) {
    return FakeEnd(RetryAfter(absl::ResourceExhaustedError("the queue is full"),
                              absl::Seconds(2) + absl::Nanoseconds(1)));
  });
  const auto response = Ask(Request("POST", "/v1/classify", "{}"));
  EXPECT_EQ(response->status, 429);
  EXPECT_EQ(Header(*response, "Retry-After"), "3");
  EXPECT_EQ(response->body,
            R"({"error":{"code":"RESOURCE_EXHAUSTED","message":"the queue is full"}})");
}

TEST_F(GatewayTest, BadHeadersAreRefusedBeforeTheBody) {
  const TestRequest request = Unread("/v1/classify");
  ExpectRefusal(Request("GET", "/v1/nothing"), 404, "NOT_FOUND",
                "there is nothing at /v1/nothing; GET /openapi.json");
  ExpectRefusal(Request("OPTIONS", "/v1/classify"), 405, "UNIMPLEMENTED", "it takes POST");
  EXPECT_EQ(Header(*Ask(Request("PUT", "/v1/models")), "Allow"), "GET");
  ExpectRefusal(With(request, "content-type", "text/plain"), 415, "INVALID_ARGUMENT",
                "Content-Type: expected application/json, found 'text/plain'");
  for (const char* encoding : {"br", "gzip, gzip", "zstd", "deflate, gzip"}) {
    const TestRequest packed = With(request, "content-encoding", encoding);
    ExpectRefusal(
        packed, 415, "INVALID_ARGUMENT",
        absl::StrCat("Content-Encoding: expected gzip, deflate or none, found '", encoding, "'"));
    EXPECT_EQ(Header(*Ask(packed), "Accept-Encoding"), "gzip, deflate");
  }
  ExpectRefusal(With(request, "authorization", "Bearer wrong"), 401, "UNAUTHENTICATED",
                "a token is needed");
  EXPECT_EQ(Header(*Ask(With(request, "authorization", "")), "WWW-Authenticate"), "Bearer");
  for (const char* value :
       {"0", "-1", "1.5", "", "abc", "86400001", "99999999999999999999", " 5"}) {
    ExpectRefusal(With(request, "x-request-timeout-ms", value), 400, "INVALID_ARGUMENT",
                  "X-Request-Timeout-Ms: expected");
  }
  // The errors of an API have its form.
  const json error = json::parse(Ask(Request("GET", "/v1/completions"))->body).at("error");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_THAT(refused_, ::testing::Contains("/v1/classify 415"));
  // What a route finds wrong itself is told as well.
  refused_.clear();
  ExpectRefusal(Request("POST", "/v1/classify", "{"), 400, "INVALID_ARGUMENT", "JSON");
  EXPECT_THAT(refused_, ::testing::ElementsAre("/v1/classify 400"));
}

TEST_F(GatewayTest, AMisspeltPathIsToldTheNearestRoute) {
  const std::pair<const char*, const char*> cases[] = {
      {"/v1/clasify",
       "nothing at /v1/clasify; the nearest route is POST /v1/classify; GET /openapi.json"},
      {"/v1/model", "the nearest route is GET /v1/models"},
      {"/v2/models/trec/infre", "the nearest route is POST /v2/models/trec/infer"},
      {"/v2/health/life", "the nearest route is GET /v2/health/live"},
      {"/sru.v1.InferenceService/Clasify",
       "the nearest route is POST /sru.v1.InferenceService/Classify"},
      {"/sru.v1.InferenceService/Nothing", "/Nothing; GET /openapi.json describes all routes"},
      {"/some/other/thing",
       "nothing at /some/other/thing; GET /openapi.json describes all routes"}};
  for (const auto& [path, message] : cases) {
    const auto response = Ask(Request("POST", path, "{}"));
    EXPECT_EQ(response->status, 404);
    EXPECT_THAT(response->body, HasSubstr(message));
  }
}

// Probes need no token, unless the flag says so; of other routes those around them do.
TEST_F(GatewayTest, ProbesAreOpen) {
  for (const bool auth_probes : {false, true}) {
    Gateway::Options options = MakeOptions();
    options.auth_probes = auth_probes;
    gateway_ = std::make_unique<Gateway>(std::move(options));
    for (const char* path : {"/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/health",
                             "/v2", "/v2/models/m", "/info"}) {
      TestRequest request = Request("GET", path);
      request.headers.erase("authorization");
      const bool is_probe = absl::StrContains(path, "/health") || absl::EndsWith(path, "/ready");
      SendHead(request);
      EXPECT_EQ(client_->ended(), !is_probe || auth_probes) << path;
      if (!client_->ended()) client_->Leave();
    }
  }
}

TEST_F(GatewayTest, OtherOriginsAreRefused) {
  const auto with = [](std::initializer_list<std::pair<const char*, const char*>> headers) {
    TestRequest request = Request("POST", "/v1/classify", "{}");
    for (const auto& [name, value] : headers) request.headers[name] = value;
    return request;
  };
  for (const TestRequest& request :
       {with({{"origin", "http://evil.example"}}), with({{"origin", "null"}}),
        with({{"sec-fetch-site", "cross-site"}}), with({{"sec-fetch-site", "same-site"}}),
        with({{"origin", "http://localhost:9090"}})}) {
    ExpectRefusal(request, 403, "PERMISSION_DENIED",
                  "on the ports for calls, those of --allow_origins");
  }
  // A name that a stranger made point here.
  for (const TestRequest& request :
       {with({{"host", "evil.example"}, {"origin", "http://evil.example"}}),
        with({{"host", "evil.example"}, {"sec-fetch-site", "same-origin"}}),
        with({{"host", "evil.example"}, {"user-agent", "Mozilla/5.0 (X11)"}})}) {
    ExpectRefusal(request, 403, "PERMISSION_DENIED", "evil.example");
  }
  EXPECT_EQ(
      Ask(with({{"origin", "http://localhost:8080"}, {"sec-fetch-site", "same-origin"}}))->status,
      200);
  EXPECT_EQ(Ask(with({{"host", "sru.example"}, {"origin", "https://sru.example"}}))->status, 200);
  // Programs may call by any name.
  EXPECT_EQ(Ask(with({{"host", "balancer.example"}, {"user-agent", "python-requests/2"}}))->status,
            200);
  for (const auto& [name, value] : Ask(with({}))->headers)
    EXPECT_THAT(name, Not(StartsWith("Access-Control")));
}

TEST_F(GatewayTest, BodiesThatCannotBeReadAreRefused) {
  const std::vector<std::pair<absl::Status, int>> cases = {
      {absl::InvalidArgumentError("no length"), 411},
      {absl::ResourceExhaustedError("too long"), 413},
      {absl::DeadlineExceededError("too slow"), 408},
  };
  for (const auto& [status, http_status] : cases) {
    TestRequest request = Request("POST", "/v1/classify");
    request.body = status;
    EXPECT_EQ(Ask(request)->status, http_status);
  }
  ExpectRefusal(Request("POST", "/v1/classify", "{"), 400, "INVALID_ARGUMENT",
                "the body is not JSON");
}

TEST_F(GatewayTest, ABodyThatIsTooLongIsToldTheFlag) {
  Gateway::Options options = MakeOptions();
  options.max_body_bytes = 1000;
  options.max_body_flag = " (--max_message_bytes)";
  gateway_ = std::make_unique<Gateway>(std::move(options));
  TestRequest request = Request("POST", "/v1/classify");
  request.body = absl::ResourceExhaustedError("at most 1000 bytes");
  ExpectRefusal(request, 413, "RESOURCE_EXHAUSTED", "1000 bytes (--max_message_bytes)");
}

TEST_F(GatewayTest, PackedBodiesAreUnpacked) {
  const std::string body = R"({"model":"m","sequences":[{"text":"a"}]})";
  const auto ask = [](const char* encoding, const std::string& packed) {
    return With(Request("POST", "/v1/classify", packed), "content-encoding", encoding);
  };
  const std::string expected = Ask(Request("POST", "/v1/classify", body))->body;
  for (const char* encoding : {"gzip", "x-gzip", "GZIP"}) {
    EXPECT_EQ(Ask(ask(encoding, Gzip(body)))->body, expected) << encoding;
  }
  EXPECT_EQ(Ask(ask("identity", body))->body, expected);
  // As Python's zlib.compress() makes it of the body.
  const std::string zlib = absl::HexStringToBytes(
      "78daab56cacd4f49cd51b252ca55d2512a4e2d2c4dcd4b4e2d56b28aae562a49ad28014a242ad5c6d602000e"
      "410d47");
  EXPECT_EQ(Ask(ask("deflate", zlib))->body, expected);
  const std::string long_body = std::string(3 << 20, ' ') + body;
  EXPECT_EQ(Ask(ask("gzip", Gzip(long_body)))->body, expected);

  const std::string packed = Gzip(body);
  std::string damaged = packed;
  damaged[packed.size() - 6] ^= 1;  // of the checksum
  const std::string member = Gzip("");
  for (const auto& [encoding, wrong, message] : std::vector<std::array<std::string, 3>>{
           {"gzip", "", "the body in gzip ends too early"},
           {"gzip", packed.substr(0, packed.size() - 1), "the body in gzip ends too early"},
           {"gzip", packed + "x", "expected one gzip stream, found 1 bytes after its end"},
           {"gzip", member + packed, "expected one gzip stream, found"},
           {"gzip", body, "expected a body in gzip, found other or damaged bytes"},
           {"gzip", damaged, "expected a body in gzip, found other or damaged bytes"},
           {"gzip", zlib, "expected a body in gzip, found other or damaged bytes"},
           {"deflate", packed, "expected a body in deflate, found other or damaged bytes"},
           {"deflate", zlib.substr(0, 20), "the body in deflate ends too early"}}) {
    ExpectRefusal(ask(encoding.c_str(), wrong), 400, "INVALID_ARGUMENT",
                  "Content-Encoding: " + message);
  }
}

TEST_F(GatewayTest, ABombIsNotUnpacked) {
  Gateway::Options options = MakeOptions();
  options.max_body_bytes = 100000;
  gateway_ = std::make_unique<Gateway>(std::move(options));
  const auto ask = [](size_t bytes) {
    return With(Request("POST", "/v1/classify", Gzip(std::string(bytes - 2, ' ') + "{}")),
                "content-encoding", "gzip");
  };
  EXPECT_EQ(Ask(ask(100000))->status, 200);
  for (const size_t bytes : {size_t{100001}, size_t{64} << 20}) {
    ExpectRefusal(ask(bytes), 413, "RESOURCE_EXHAUSTED",
                  "Content-Encoding: the body unpacks to more than 100000 bytes");
  }
  // What is unpacked is reserved while it grows.
  client_ = nullptr;  // its answer holds memory
  calls::ByteReservation others(&budget_);
  ASSERT_TRUE(others.Grow(budget_.limit() - 90000));
  ExpectRefusal(ask(99000), 429, "RESOURCE_EXHAUSTED", "memory");
  others.ShrinkTo(0);
  EXPECT_EQ(Ask(ask(99000))->status, 200);
}

TEST_F(GatewayTest, ARequestOfSeveralCallsIsOneOfItsCaller) {
  Limit("calls_in_flight=2");
  std::atomic<int> calls{0};
  std::atomic<int> goes_on{0};
  OnGenerate([&](calls::Exchange& exchange, const Writer& writer) {
    ++calls;
    if (exchange.goes_on()) ++goes_on;
    EXPECT_EQ(exchange.caller()->in_flight(), 1);
    v1::GenerateResponse response;
    response.set_finish_reason(v1::FINISH_REASON_LENGTH);
    writer(response);
    return FakeEnd(absl::OkStatus());
  });
  EXPECT_EQ(
      Ask(Request("POST", "/v1/completions", R"({"model":"lm","prompt":["a","b","c"]})"))->status,
      200);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(goes_on, 2) << "the first one has looked at what is left of the caller's tokens";
  EXPECT_EQ(caller_->in_flight(), 0);
}

// Only the header that is wrong is the parameter of an error.
TEST_F(GatewayTest, ARefusalForTheCallersLimitsNamesNoParameter) {
  Limit("tokens_per_second=100");
  EXPECT_TRUE(caller_->Charge(100 + 50).ok());
  const auto refused = Ask(Unread("/v1/completions"));
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(json::parse(refused->body).at("error").at("param"), nullptr);

  Limit("methods=Classify");
  const auto forbidden = Ask(Unread("/v1/completions"));
  EXPECT_EQ(forbidden->status, 403);
  EXPECT_EQ(json::parse(forbidden->body).at("error").at("param"), nullptr);

  const auto wrong =
      Ask(With(Request("POST", "/v1/embeddings", "{}"), "x-request-timeout-ms", "x"));
  EXPECT_EQ(wrong->status, 400);
  EXPECT_EQ(json::parse(wrong->body).at("error").at("param"), "X-Request-Timeout-Ms");
}

TEST_F(GatewayTest, ACallerHasItsLimits) {
  callers::Caller* seen = nullptr;
  OnClassify([&](calls::Exchange& exchange) {
    seen = exchange.caller().get();
    EXPECT_EQ(seen->in_flight(), 1);
    return FakeEnd(absl::OkStatus());
  });
  Limit("calls_in_flight=2 tokens_per_second=100 methods=Classify");
  TestRequest request = Request("POST", "/v1/classify", "{}");
  const auto answer = Ask(request);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(seen, caller_.get());
  EXPECT_EQ(Header(*answer, "x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(Header(*answer, "x-ratelimit-remaining-requests"), "2");
  EXPECT_EQ(Header(*answer, "x-ratelimit-limit-tokens"), "100");
  EXPECT_EQ(Header(*answer, "x-ratelimit-remaining-tokens"), "100");
  EXPECT_EQ(Header(*answer, "x-ratelimit-reset-tokens"), "0s");
  EXPECT_EQ(caller_->in_flight(), 0);

  // From here on no body is read.
  request = Unread("/v1/classify");
  const auto forbidden = Ask(Unread("/v1/completions"));
  EXPECT_EQ(forbidden->status, 403);
  EXPECT_THAT(forbidden->body, HasSubstr("may not call Generate"));
  EXPECT_EQ(Ask(Request("GET", "/v1/models"))->status, 200) << "it only looks something up";

  SendHead(request);
  EXPECT_TRUE(caller_->Charge(100 + 50).ok());
  // The request that is running is looked at again: it is one of those that the caller may have.
  EXPECT_TRUE(client_->handler->IsAccepted());
  client_->Leave();
  const auto refused = Ask(request);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(Header(*refused, "Retry-After"), "1");
  EXPECT_EQ(Header(*refused, "x-ratelimit-remaining-tokens"), "0");
  EXPECT_NE(Header(*refused, "x-ratelimit-reset-tokens"), "0s");
  EXPECT_THAT(refused_, ::testing::ElementsAre("/v1/completions 403", "/v1/classify 429"));

  Limit("calls_in_flight=1");
  callers::Lease lease;
  EXPECT_TRUE(lease.Enter(caller_, calls::MethodId::kClassify).ok());
  const auto full = Ask(request);
  EXPECT_EQ(full->status, 429);
  EXPECT_EQ(Header(*full, "x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(Header(*full, "x-ratelimit-limit-tokens"), "");
  lease.Leave();
  request = Request("POST", "/v1/classify", "{}");
  EXPECT_EQ(Ask(request)->status, 200);
  EXPECT_EQ(caller_->counts().refused, 3);
}

TEST_F(GatewayTest, AnOpenStreamHasAPlace) {
  Limit("open_streams=1");
  const std::string body = R"({"model":"lm","prompt":{"text":"a"},"max_new_tokens":3})";
  for (int i = 0; i < 3; ++i) {
    const auto answer = Ask(Request("POST", "/v1/generate", body));
    EXPECT_EQ(answer->status, 200) << answer->body;
    AwaitEnd();
    EXPECT_TRUE(PollUntil([this] { return caller_->in_flight() == 0; }));
  }
  callers::Lease lease;
  EXPECT_TRUE(lease.Enter(caller_, calls::MethodId::kGenerate).ok());
  EXPECT_EQ(Ask(Request("POST", "/v1/generate", body))->status, 429);
}

TEST_F(GatewayTest, AnAnswerInPartsGivesItsPlaceBackBeforeItsLastPart) {
  Limit("calls_in_flight=1");
  TestRequest request = Request("POST", "/v2/models/m/infer", R"({"inputs":[]})");
  Start(request, /*reads=*/false);
  std::vector<int64_t> in_flight;  // while the client has not taken the part
  for (bool ended = false; !ended;) {
    std::function<void(bool)> written;
    ASSERT_TRUE(PollUntil([&] {
      ended = client_->ended();
      MutexLock lock(&client_->mutex);
      written.swap(client_->written);
      return ended || written != nullptr;
    }));
    if (written == nullptr) break;
    in_flight.push_back(caller_->in_flight());
    written(true);
  }
  ASSERT_GT(in_flight.size(), 2U);
  EXPECT_EQ(in_flight.front(), 1);
  EXPECT_EQ(in_flight.back(), 0);
}

TEST_F(GatewayTest, MemoryIsBoundedAndGivenBack) {
  calls::ByteReservation others(&budget_);
  ASSERT_TRUE(others.Grow(budget_.limit() - 100000));
  ExpectRefusal(Request("POST", "/v1/classify", std::string(50000, ' ') + "{}"), 429,
                "RESOURCE_EXHAUSTED", "memory");
  const auto response = Ask(Request("POST", "/v1/classify", R"({"sequences":[{"text":"a"}]})"));
  EXPECT_EQ(response->status, 200);
  EXPECT_GT(budget_.used(), others.bytes());  // until the client has the answer
}

TEST_F(GatewayTest, UnreadPagesHaveAPartOfTheMemory) {
  const TestRequest page = Request("GET", "/openapi.json");
  std::vector<std::shared_ptr<const http::PageResponse>> unread = {Ask(page)};
  const auto bytes = static_cast<int64_t>(unread[0]->body.size());
  EXPECT_EQ(budget_.used(), bytes);
  while (unread.back()->status == 200 && unread.size() < 4000) unread.push_back(Ask(page));
  EXPECT_EQ(unread.back()->status, 429);
  EXPECT_THAT(unread.back()->body, HasSubstr("retry later"));
  EXPECT_EQ(Header(*unread.back(), "Retry-After"), "1");
  EXPECT_LE(budget_.used(), budget_.limit() / 8);
  EXPECT_GT(budget_.used(), budget_.limit() / 8 - bytes);
  EXPECT_EQ(Ask(Request("POST", "/v1/classify", "{}"))->status, 200);
  unread.clear();
  const auto last = Ask(page);
  EXPECT_EQ(last->status, 200);

  calls::ByteReservation others(&budget_);
  ASSERT_TRUE(others.Grow(budget_.limit() - budget_.used() - bytes / 2));
  ExpectRefusal(page, 429, "RESOURCE_EXHAUSTED", "memory");
}

// Clients of LibreTranslate have the token in the body.
RouteGroup TokenInBody() {
  Route route(AnswerMemory::kOwn, "POST", "/detect", ErrorForm::kLibreTranslate);
  route.token_in_body = true;
  route.handle = [](const std::shared_ptr<RestCall>& call) {
    const std::string token = json::parse(call->body()).value("api_key", "");
    if (absl::Status access = call->Authenticate(token); !access.ok()) return call->Fail(access);
    call->Reply(JsonResponse("[]"));
  };
  return {{route}, nullptr};
}

TEST_F(GatewayTest, WhoIsNotKnownYetHasAPartOfTheMemory) {
  SideThreads readers(1);
  Gateway::Options options = MakeOptions();
  options.readers = &readers;
  options.more = {TokenInBody()};
  gateway_ = std::make_unique<Gateway>(std::move(options));
  std::atomic<bool> is_busy{false};
  std::atomic<bool> go_on{false};
  readers.Post([&] {
    is_busy = true;
    EXPECT_TRUE(PollUntil([&] { return go_on.load(); }));
  });
  // Otherwise the thread may take a request first.
  ASSERT_TRUE(PollUntil([&] { return is_busy.load(); }));
  const int64_t part = budget_.limit() / 8;
  TestRequest request = Request("POST", "/detect", R"({"q":"a","api_key":"x"})");
  request.headers.erase("authorization");
  const auto pad = [](TestRequest* padded, int64_t bytes) {
    padded->body->Append(std::string(static_cast<size_t>(bytes) - padded->body->size(), ' '));
  };
  pad(&request, part / 4 - 1024);
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i) {
    Start(request);
    clients.push_back(client_);
  }
  EXPECT_EQ(budget_.used(), part - 4 * 1024);
  for (const int i : {4, 5}) {
    client_ = clients[i];
    EXPECT_EQ(Await()->status, 429);
  }
  // Others have the rest.
  EXPECT_EQ(Ask(Request("POST", "/v1/classify", "{}"))->status, 200);
  go_on = true;
  clients.resize(4);
  for (const auto& client : clients) {
    client_ = client;
    EXPECT_EQ(Await()->status, 403);
  }
  EXPECT_LT(budget_.used(), 4096) << "refusals keep what was sent";

  pad(&request, part + 1);
  const auto too_large = Ask(request);
  EXPECT_EQ(too_large->status, 429);
  EXPECT_THAT(too_large->body, HasSubstr("send the header"));
  TestRequest with_header = Request("POST", "/detect", R"({"q":"a"})");
  pad(&with_header, part + 1);
  EXPECT_EQ(Ask(with_header)->status, 200);
  // Who turns out to be known leaves the part to others.
  request = Request("POST", "/detect", R"({"q":"a","api_key":"secret"})");
  request.headers.erase("authorization");
  pad(&request, part - 4096);
  const auto unread = Ask(request);
  EXPECT_EQ(unread->status, 200);
  EXPECT_EQ(Ask(request)->status, 200);
}

TEST_F(GatewayTest, WithoutTokensTheSenderIsKnownByTheHeaders) {
  Gateway::Options options = MakeOptions();
  options.more = {TokenInBody()};
  options.asks_for_tokens = false;
  options.authenticate =
      [](const http::PageRequest& request) -> absl::StatusOr<callers::CallerPtr> {
    if (request.peer.empty()) return absl::PermissionDeniedError("nobody");
    return callers::CallerPtr();
  };
  gateway_ = std::make_unique<Gateway>(std::move(options));
  TestRequest request = Request("POST", "/detect", R"({"q":"a"})");
  request.headers.erase("authorization");
  request.body->Append(std::string(static_cast<size_t>(budget_.limit() / 8), ' '));
  EXPECT_EQ(Ask(request)->status, 200);
  request.peer.clear();
  SendHead(request);
  EXPECT_TRUE(client_->ended());
}

TEST_F(GatewayTest, CallersTakeTurnsWithLongBodies) {
  const std::vector<callers::CallerPtr> known = {callers_.ByAddress("a"), callers_.ByAddress("b")};
  std::string order;
  std::optional<SideThreads> readers(std::in_place, 1);
  Gateway::Options options = MakeOptions();
  options.readers = &*readers;
  options.on_refused = [&](const http::PageRequest& /*request*/, const callers::Caller* caller,
                           int /*status*/, const absl::Status& /*reason*/) {
    order += caller == known[0].get() ? 'a' : 'b';  // it has read the body, which is no JSON
  };
  gateway_ = std::make_unique<Gateway>(std::move(options));
  std::atomic<bool> begun{false};
  std::atomic<bool> go_on{false};
  readers->Post([&] {
    begun = true;
    EXPECT_TRUE(PollUntil([&] { return go_on.load(); }));
  });
  ASSERT_TRUE(PollUntil([&] { return begun.load(); }));
  for (const char name : {'a', 'a', 'a', 'b'}) {
    caller_ = known[name - 'a'];
    TestRequest request = Request("POST", "/v1/classify", std::string(10000, ' '));
    Start(request);
  }
  go_on = true;
  readers.reset();  // has read them
  EXPECT_THAT(order, ::testing::AnyOf("abaa", "baaa"));
}

TEST_F(GatewayTest, ACallIsCancelledWhenItsClientIsGone) {
  std::atomic<bool> entered{false};
  std::atomic<bool> cancelled{false};
  OnClassify([&](calls::Exchange& exchange) {
    entered = true;
    cancelled = PollUntil([&exchange] { return exchange.is_cancelled(); });
    return FakeEnd(absl::CancelledError());
  });
  Start(Request("POST", "/v1/classify", "{}"));
  ASSERT_TRUE(PollUntil([&] { return entered.load(); }));
  client_->Leave();
  EXPECT_TRUE(client_->ended());
  EXPECT_TRUE(PollUntil([&] { return cancelled.load(); }));
}

TEST_F(GatewayTest, CloseCancelsWhatRunsAndRefusesTheRest) {
  std::atomic<bool> entered{false};
  OnClassify([&](calls::Exchange& exchange) {
    entered = true;
    PollUntil([&exchange] { return exchange.is_cancelled(); });
    return FakeEnd(absl::CancelledError());
  });
  SendHead(Request("POST", "/v1/classify", "{}"));
  const std::shared_ptr<Client> late = client_;
  Start(Request("POST", "/v1/classify", "{}"));
  ASSERT_TRUE(PollUntil([&] { return entered.load(); }));
  gateway_->Close();
  EXPECT_EQ(Await()->status, 503);
  const auto response = Ask(Request("POST", "/v1/classify", "{}"));
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(Header(*response, "Retry-After"), "1");
  client_ = late;  // whose head was looked at before
  client_->SendBody();
  EXPECT_EQ(Await()->status, 503);
}

TEST_F(GatewayTest, RoutesCallsAndDeadlinesCanBeBounded) {
  Gateway::Options options = MakeOptions();
  options.only = {"/v1/classify", "/v1/generate"};
  options.max_calls = 2;
  options.max_timeout = absl::Seconds(30);
  gateway_ = std::make_unique<Gateway>(std::move(options));
  for (const char* path : {"/v1/encode", "/v1/completions", "/v2/models/m/infer"}) {
    EXPECT_EQ(Ask(Request("POST", path, "{}"))->status, 404) << path;
  }
  ExpectRefusal(Request("GET", "/openapi.json"), 404, "NOT_FOUND",
                "there is nothing at /openapi.json");

  std::atomic<int> entered{0};
  std::atomic<bool> go_on{false};
  OnClassify([&](calls::Exchange& exchange) {
    EXPECT_LE(exchange.time_left(), absl::Seconds(30));
    ++entered;
    EXPECT_TRUE(PollUntil([&] { return go_on.load(); }));
    return FakeEnd(absl::OkStatus());
  });
  TestRequest patient = Request("POST", "/v1/classify", "{}");
  patient.headers["x-request-timeout-ms"] = "86400000";
  std::vector<std::shared_ptr<Client>> clients;
  for (const TestRequest& request : {patient, Request("POST", "/v1/classify", "{}")}) {
    Start(request);
    clients.push_back(client_);
  }
  ASSERT_TRUE(PollUntil([&] { return entered == 2; }));
  ExpectRefusal(patient, 429, "RESOURCE_EXHAUSTED", "2 calls at a time");
  EXPECT_EQ(Header(*Ask(Request("POST", "/v1/generate", "{}")), "Retry-After"), "1");
  go_on = true;
  for (const auto& client : clients) {
    client_ = client;
    EXPECT_EQ(Await()->status, 200);
  }
  ExpectRefusal(patient, 429, "RESOURCE_EXHAUSTED",
                "2 calls at a time");  // nobody has taken the answers
  clients.clear();
  // Neither texts nor refused bodies keep a place.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Ask(Request("POST", "/v1/generate", R"({"max_new_tokens":2})"))->status, 200);
    AwaitEnd();
    EXPECT_EQ(Ask(Request("POST", "/v1/classify", "{"))->status, 400);
  }
}

TEST_F(GatewayTest, ModelsAreListedInBothForms) {
  json answer = json::parse(Ask(Request("GET", "/v1/models"))->body);
  EXPECT_EQ(answer.at("object"), "list");
  ASSERT_EQ(answer.at("data").size(), 2) << "one for both versions of trec";
  EXPECT_EQ(answer.at("data").at(0).at("id"), "trec");
  EXPECT_EQ(answer.at("models").size(), 3);
  TestRequest request = Request("GET", "/v1/models/a%20b");
  request.query = "version=2";
  answer = json::parse(Ask(request)->body);
  EXPECT_EQ(answer.at("id"), "a b");
  EXPECT_EQ(answer.at("model").at("version"), "2");
  request.query = "version=x";
  ExpectRefusal(request, 400, "INVALID_ARGUMENT", "query: version: expected a whole number");
  request.query = "v=1";
  ExpectRefusal(request, 400, "INVALID_ARGUMENT", "query: expected version=NUMBER, found 'v=1'");
  EXPECT_EQ(Ask(Request("GET", "/v1/models/%zz"))->status, 404);
}

TEST_F(GatewayTest, GenerateAnswersByEvents) {
  const auto response =
      Ask(Request("POST", "/v1/generate", R"({"prompt":{"text":"a"},"max_new_tokens":2})"));
  EXPECT_EQ(response->status, 200);
  EXPECT_THAT(response->content_type, StartsWith("text/event-stream"));
  EXPECT_EQ(AwaitEnd(),
            "data: {\"model\":\"lm\",\"text\":\"0\"}\n\n"
            "data: "
            "{\"model\":\"lm\",\"text\":\"1\",\"finish_reason\":\"FINISH_REASON_LENGTH\",\"prompt_"
            "tokens\":2,"
            "\"generated_tokens\":2}\n\n");
}

TEST_F(GatewayTest, AStreamThatFailsSaysSo) {
  int messages = 0;
  OnGenerate([&](calls::Exchange&, const Writer& writer) {
    for (int i = 0; i < messages; ++i) writer(v1::GenerateResponse());
    return FakeEnd(absl::UnavailableError("the server drains"));
  });
  // Before the first message the answer has a status of its own.
  EXPECT_EQ(Ask(Request("POST", "/v1/generate", "{}"))->status, 503);
  messages = 1;
  EXPECT_EQ(Ask(Request("POST", "/v1/generate", "{}"))->status, 200);
  EXPECT_EQ(AwaitEnd(),
            "data: {}\n\ndata: {\"error\":{\"code\":\"UNAVAILABLE\",\"message\":\"the server "
            "drains\"}}\n\n");
}

TEST_F(GatewayTest, ASlowReaderStopsTheService) {
  std::atomic<int> written{0};
  OnGenerate([&](calls::Exchange&, const Writer& writer) {
    v1::GenerateResponse response;
    response.set_text(std::string(1000, 'x'));
    for (int i = 0; i < 1000; ++i) {
      if (!writer(response)) break;
      ++written;
    }
    return FakeEnd(absl::OkStatus());
  });
  Start(Request("POST", "/v1/generate", "{}"), /*reads=*/false);
  // Each time that the client takes an event, the service may send about one more.
  for (int i = 1; i <= 5; ++i) {
    std::function<void(bool)> taken;
    ASSERT_TRUE(PollUntil([&] {
      MutexLock lock(&client_->mutex);
      taken = std::exchange(client_->written, nullptr);
      return taken != nullptr;
    }));
    EXPECT_LE(written, i + 2);
    taken(i < 5);  // then it is gone
  }
  AwaitEnd();
  EXPECT_LT(written, 10);
}

TEST_F(GatewayTest, CompletionsHaveOpenAisForm) {
  const json answer = Complete(R"({"model":"lm","prompt":["a","b"],"max_tokens":3})");
  EXPECT_THAT(answer.at("id").get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_EQ(answer.at("model"), "lm");
  ASSERT_EQ(answer.at("choices").size(), 2);
  EXPECT_EQ(
      answer.at("choices").at(1),
      json({{"index", 1}, {"text", "012"}, {"logprobs", nullptr}, {"finish_reason", "length"}}));
  EXPECT_EQ(answer.at("usage"),
            json({{"prompt_tokens", 4}, {"completion_tokens", 6}, {"total_tokens", 10}}));
}

TEST_F(GatewayTest, CompletionsCanBeStreamed) {
  const auto response = Ask(Request(
      "POST", "/v1/completions",
      R"({"prompt":"a","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}})"));
  EXPECT_EQ(response->status, 200);
  std::vector<std::string> events = absl::StrSplit(AwaitEnd(), "\n\n", absl::SkipEmpty());
  ASSERT_EQ(events.size(), 4);
  const auto event = [&](int i) { return json::parse(events[i].substr(6)); };
  EXPECT_EQ(event(0).at("choices").at(0).at("text"), "0");
  EXPECT_EQ(event(0).at("choices").at(0).at("finish_reason"), nullptr);
  EXPECT_EQ(event(0).at("usage"), nullptr);
  EXPECT_EQ(event(1).at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(event(2).at("choices"), json::array());
  EXPECT_EQ(event(2).at("usage").at("total_tokens"), 4);
  EXPECT_EQ(events[3], "data: [DONE]");
}

TEST_F(GatewayTest, TokensOfCompletionsHaveLogProbabilities) {
  service_.generate = [](calls::Exchange&, const v1::GenerateRequest& request,
                         const Writer& writer) {
    EXPECT_TRUE(request.echo() && request.token_log_probs() && request.token_texts());
    EXPECT_TRUE(request.stop().empty() && request.stop_token_ids().empty());
    EXPECT_EQ(request.top_candidates(), 1);
    v1::GenerateResponse response;
    response.set_text("\u00e4bc");
    for (const char* text : {"\u00e4", "b", "c"}) response.add_token_texts(text);
    for (const int id : {1, 2, 3}) response.add_token_ids(id);
    for (const float log_prob : {0.0f, -1.0f, -2.0f}) response.add_log_probs(log_prob);
    response.add_candidates();
    for (const char* text : {"b", "x"}) {
      v1::Candidate& candidate = *response.add_candidates()->add_candidates();
      candidate.set_text(text);
      candidate.set_log_prob(-1);
    }
    response.set_finish_reason(v1::FINISH_REASON_LENGTH);
    response.set_prompt_tokens(2);
    response.set_generated_tokens(1);
    writer(response);
    return FakeEnd(absl::OkStatus());
  };
  json answer = Complete(R"({"prompt":"a","max_tokens":1,"echo":true,"logprobs":1})");
  EXPECT_EQ(answer.at("choices").at(0).at("logprobs"), json::parse(R"({"tokens":["\u00e4","b","c"],
      "token_logprobs":[null,-1.0,-2.0],"top_logprobs":[null,{"b":-1.0},{"x":-1.0,"c":-2.0}],"text_offset":[0,1,2]})"));
  // Without new tokens, the prompt alone is scored, and comes back as it was sent.
  answer = Complete(
      R"({"prompt":"\u00e4 b\n","max_tokens":0,"echo":true,"logprobs":1,"stop":"\n","stop_token_ids":[3]})");
  EXPECT_EQ(answer.at("choices").at(0).at("text"), "\u00e4 b\n");
  EXPECT_EQ(answer.at("choices").at(0).at("logprobs").at("tokens"), json({"\u00e4", "b"}));
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 0);
}

// A caller may have fewer places than a request has prompts.
TEST_F(GatewayTest, PromptsThatFindNoPlaceAreSentAgainWhenOthersHaveEnded) {
  std::atomic<int> open{0};
  std::atomic<int> refused{0};
  service_.generate = [&](calls::Exchange&, const v1::GenerateRequest& request,
                          const Writer& writer) {
    if (++open > 2) {
      --open;
      ++refused;
      return FakeEnd(absl::ResourceExhaustedError("no place"));
    }
    EXPECT_TRUE(PollUntil([&] { return refused > 0; }));
    v1::GenerateResponse response;
    response.set_text(request.prompt().text() + "!");
    response.set_finish_reason(v1::FINISH_REASON_LENGTH);
    writer(response);
    --open;
    return FakeEnd(absl::OkStatus());
  };
  const json answer = Complete(R"({"prompt":["a","b","c","d"]})");
  ASSERT_TRUE(answer.contains("choices")) << answer;
  std::string texts;
  for (const json& choice : answer.at("choices")) texts += choice.at("text").get<std::string>();
  EXPECT_EQ(texts, "a!b!c!d!");
  // Where no other one is under way, there is nothing to wait for.
  open = 2;
  EXPECT_EQ(Ask(Request("POST", "/v1/completions", R"({"prompt":["a","b"]})"))->status, 429);
}

TEST_F(GatewayTest, CompletionsThatFailAreCancelledTogether) {
  std::atomic<int> cancelled{0};
  service_.generate = [&](calls::Exchange& exchange, const v1::GenerateRequest& request,
                          const Writer&) {
    if (request.prompt().text() == "bad") return FakeEnd(absl::NotFoundError("no such model"));
    if (PollUntil([&exchange] { return exchange.is_cancelled(); })) ++cancelled;
    return FakeEnd(absl::CancelledError());
  };
  const auto response = Ask(Request("POST", "/v1/completions", R"({"prompt":["a","bad"]})"));
  EXPECT_EQ(response->status, 404);
  EXPECT_EQ(json::parse(response->body).at("error"), json({{"message", "no such model"},
                                                           {"type", "not_found_error"},
                                                           {"param", nullptr},
                                                           {"code", "NOT_FOUND"}}));
  EXPECT_TRUE(PollUntil([&] { return cancelled == 1; }));
}

TEST_F(GatewayTest, WhatThrowsForOnePromptEndsTheOthers) {
  std::atomic<int> running{0};
  std::atomic<int> cancelled{0};
  service_.generate = [&](calls::Exchange& exchange, const v1::GenerateRequest& request,
                          const Writer& writer) {
    ++running;
    if (request.prompt().text() == "bad") {
      EXPECT_TRUE(PollUntil([&] { return running == 2; }));
      v1::GenerateResponse part;
      part.set_text("0");
      budget_.throws = true;
      writer(part);
    }
    if (PollUntil([&exchange] { return exchange.is_cancelled(); })) ++cancelled;
    return FakeEnd(absl::CancelledError());
  };
  const auto response = Ask(Request("POST", "/v1/completions", R"({"prompt":["a","bad"]})"));
  EXPECT_EQ(response->status, 429);
  EXPECT_EQ(json::parse(response->body).at("error").at("code"), "RESOURCE_EXHAUSTED");
  EXPECT_TRUE(PollUntil([&] { return cancelled == 2; }));
}

TEST_F(GatewayTest, WhatThrowsInAStreamEndsIt) {
  for (const bool later : {false, true}) {
    SCOPED_TRACE(later);
    std::atomic<bool> cancelled{false};
    OnGenerate([&](calls::Exchange& exchange, const Writer& writer) {
      {
        MutexLock lock(&client_->mutex);
        (later ? client_->throws_later : client_->throws) = true;
      }
      v1::GenerateResponse part;
      part.set_text("0");
      writer(part);
      cancelled = PollUntil([&exchange] { return exchange.is_cancelled(); });
      return FakeEnd(absl::CancelledError());
    });
    const auto response =
        Ask(Request("POST", "/v1/generate", R"({"prompt":{"text":"a"},"max_new_tokens":2})"));
    EXPECT_EQ(response->status, later ? 200 : 429);
    if (!later) {
      EXPECT_EQ(json::parse(response->body).at("error").at("code"), "RESOURCE_EXHAUSTED");
    } else {
      EXPECT_EQ(AwaitEnd(), "");
    }
    EXPECT_TRUE(PollUntil([&] { return cancelled.load(); }));
  }
}

TEST_F(GatewayTest, TheDescriptionHasEveryRoute) {
  const json description = json::parse(Ask(Request("GET", "/openapi.json"))->body);
  EXPECT_EQ(description.at("openapi"), "3.1.0");
  int count = 0;
  for (const RouteGroup& group : ApiRoutes(methods_)) {
    for (const Route& route : group.routes) {
      if (IsWebCall(route.error_form)) continue;
      EXPECT_TRUE(
          description.at("paths").contains(route.path) &&
          description.at("paths").at(route.path).contains(absl::AsciiStrToLower(route.method)))
          << route.method << " " << route.path;
      ++count;
    }
  }
  EXPECT_GT(count, 30);
  EXPECT_EQ(
      description.at("components").at("schemas").at("Label").at("properties").at("name").at("type"),
      "string");
}

TEST_F(GatewayTest, EmbeddingsHaveOpenAisForm) {
  v1::EncodeRequest seen;
  service_.encode = [&seen](calls::Exchange& exchange, const v1::EncodeRequest& request,
                            v1::EncodeResponse* response) {
    seen = request;
    EXPECT_EQ(exchange.answer_expansion(), 8);
    response->set_model("trec");
    for (int i = 0; i < request.sequences_size(); ++i) {
      v1::Encoding& encoding = *response->add_encodings();
      encoding.add_shape(1);
      encoding.set_data(std::string("\0\0\0\x3f", 4));  // 0.5
      encoding.set_token_count(3);
    }
    return FakeEnd(absl::OkStatus());
  };
  // Without the header the memory of the answer is reserved as well.
  TestRequest request = Request("POST", "/v1/embeddings", R"({"model":"trec","input":["a","b"]})");
  request.headers.erase("content-type");
  EXPECT_EQ(Ask(request)->body,
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]},)"
            R"({"object":"embedding","index":1,"embedding":[0.5]}],"model":"trec",)"
            R"("usage":{"prompt_tokens":6,"total_tokens":6}})");
  EXPECT_TRUE(seen.normalize());
  const auto ask = [&](const std::string& path, const std::string& body) {
    return Ask(Request("POST", path, body));
  };
  EXPECT_THAT(ask("/v1/embeddings", R"({"input":"a","encoding_format":"base64"})")->body,
              HasSubstr(R"("embedding":"AAAAPw==")"));
  EXPECT_EQ(ask("/embed", R"({"inputs":["a","b"]})")->body, "[[0.5],[0.5]]");
  const auto refused = ask("/v1/embeddings", R"({"input":"a","dimensions":2})");
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(json::parse(refused->body).at("error").at("param"), "dimensions");

  service_.encode = [](calls::Exchange&, const v1::EncodeRequest&, v1::EncodeResponse*) {
    return FakeEnd(Advise(absl::InvalidArgumentError("sequences[1].text: too long"),
                          AdviceOn::kLength, "set truncate"));
  };
  EXPECT_EQ(
      json::parse(ask("/v1/embeddings", R"({"input":["a","b"]})")->body).at("error").at("message"),
      "input[1]: too long; shorten the text");
  EXPECT_EQ(json::parse(ask("/embed", R"({"inputs":["a","b"]})")->body).at("error"),
            "inputs[1]: too long; shorten the text or set truncate");
}

TEST_F(GatewayTest, ThePipelineIsThatOfTheModelsTask) {
  const auto ask = [&](const std::string& path, const std::string& body) {
    return Ask(Request("POST", path, body));
  };
  EXPECT_EQ(ask("/pipelines/a%20b", R"({"inputs":"x"})")->body, R"([[{"label":"x","score":0}]])");
  EXPECT_EQ(ask("/", R"({"inputs":["x","y"]})")->body,
            R"([[{"label":"x","score":0}],[{"label":"y","score":0}]])");
  EXPECT_EQ(json::parse(ask("/", R"({"inputs":"x","x":1})")->body).at("error"),
            "x: unknown field; docs/rest.md has those that are supported");
  service_.task = "language_model";
  EXPECT_EQ(ask("/", R"({"inputs":"x"})")->status, 400);
  // Which method it calls is known when the model is, and so is whether the caller may.
  service_.task = "classifier";
  Limit("methods=Encode");
  const auto forbidden = ask("/", R"({"inputs":"x"})");
  EXPECT_EQ(forbidden->status, 403);
  EXPECT_THAT(forbidden->body, HasSubstr("may not call Classify"));
}

TEST_F(GatewayTest, TokensAreThoseOfTheOnlyLanguageModel) {
  const auto ask = [&](const std::string& path, const std::string& body) {
    return Ask(Request("POST", path, body))->body;
  };
  EXPECT_EQ(ask("/tokenize", R"({"prompt":"AB"})"),
            R"({"count":2,"max_model_len":9,"tokens":[65,66],"token_strs":null})");
  EXPECT_THAT(ask("/tokenize", R"({"prompt":"AB","return_token_strs":true})"),
              HasSubstr(R"("token_strs":["A","B"])"));
  EXPECT_EQ(ask("/detokenize", R"({"tokens":[65]})"), R"({"prompt":"text"})");
  EXPECT_EQ(json::parse(ask("/detokenize", R"({"tokens":[100]})")).at("error").at("message"),
            "tokens[0]: too large");
  EXPECT_EQ(json::parse(Ask(Request("GET", "/tokenizer_info"))->body).at("name_or_path"), "lm");
}

TEST_F(GatewayTest, InfoAndHealth) {
  const json info = json::parse(Ask(Request("GET", "/info"))->body);
  EXPECT_EQ(info.at("model_id"), "trec");
  EXPECT_EQ(info.at("model_type").at("classifier").at("id2label").at("0"), "LOC");
  EXPECT_EQ(info.at("max_input_length"), 2048);
  EXPECT_EQ(info.at("max_client_batch_size"), 1024);
  EXPECT_EQ(Ask(Request("GET", "/health"))->body, R"({"status":"ok"})");
  service_.ready = false;
  EXPECT_EQ(Ask(Request("GET", "/health"))->status, 503);
}

class KeptStream final : public http::PageStream {
 public:
  explicit KeptStream(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  ~KeptStream() override { client_->Finish({}); }
  void AsyncWrite(std::string part, std::function<void(bool)> written) override {
    {
      MutexLock lock(&client_->mutex);
      client_->parts += part;
    }
    written(true);
  }

 private:
  const std::shared_ptr<Client> client_;
};

class StreamedCall final : public sru::testing::PlainRestCall {
 public:
  explicit StreamedCall(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  std::unique_ptr<http::PageStream> ReplyInParts(http::PageResponse /*head*/) override {
    return std::make_unique<KeptStream>(client_);
  }

 private:
  const std::shared_ptr<Client> client_;
};

TEST_F(GatewayTest, ASilentStreamIsKeptAlive) {
  client_ = std::make_shared<Client>(Request("GET", "/"));
  const auto events = std::make_shared<EventStream>(std::make_shared<StreamedCall>(client_),
                                                    ErrorForm::kV1, absl::Milliseconds(1));
  events->Start();
  EXPECT_TRUE(
      PollUntil([this] { return Parts().size() > std::string(": keep-alive\n\n").size(); }));
  EXPECT_THAT(Parts(), StartsWith(": keep-alive\n\n: keep-alive\n\n"));
  events->Send("{}", nullptr);
  events->End("last");
  EXPECT_THAT(AwaitEnd(), ::testing::EndsWith("data: {}\n\ndata: last\n\n"));
}

// Calls of methods by Connect and gRPC-Web, and pages of other origins.
class WebCallTest : public GatewayTest {
 protected:
  static constexpr char kClassify[] = "/sru.v1.InferenceService/Classify";
  static constexpr char kGenerate[] = "/sru.v1.InferenceService/Generate";

  static TestRequest Post(const std::string& path, const std::string& content_type,
                          const std::string& body) {
    TestRequest request = Request("POST", path, body);
    request.headers["content-type"] = content_type;
    return request;
  }
  static std::string ClassifyBytes() {
    v1::ClassifyRequest request;
    request.set_model("m");
    request.add_sequences()->set_text("a");
    return request.SerializeAsString();
  }
  static std::string GenerateBytes(int tokens) {
    v1::GenerateRequest request;
    request.set_max_new_tokens(tokens);
    return request.SerializeAsString();
  }
  static std::string Framed(absl::string_view message, ErrorForm form = ErrorForm::kGrpcWeb) {
    return WebFrame(form, message, /*is_end=*/false);
  }
  static std::string Ended(absl::string_view end, ErrorForm form = ErrorForm::kGrpcWeb) {
    return WebFrame(form, end, /*is_end=*/true);
  }
};

TEST_F(WebCallTest, AConnectCallHasTheMessageAsItsBody) {
  const auto as_json =
      Ask(Post(kClassify, "application/json", R"({"model":"m","sequences":[{"text":"a"}]})"));
  EXPECT_EQ(as_json->status, 200);
  EXPECT_EQ(as_json->content_type, "application/json");
  EXPECT_EQ(
      as_json->body,
      Ask(Request("POST", "/v1/classify", R"({"model":"m","sequences":[{"text":"a"}]})"))->body);

  const auto as_proto = Ask(Post(kClassify, "application/proto", ClassifyBytes()));
  EXPECT_EQ(as_proto->status, 200);
  EXPECT_EQ(as_proto->content_type, "application/proto");
  v1::ClassifyResponse response;
  ASSERT_TRUE(response.ParseFromString(as_proto->body));
  EXPECT_EQ(response.model(), "m");
  EXPECT_EQ(response.classifications(0).labels(0).name(), "a");
  EXPECT_GE(budget_.used(), as_proto->body.size());  // until the client has it
  // A message without fields.
  EXPECT_EQ(Ask(Post(kClassify, "application/proto", ""))->status, 200);
  EXPECT_TRUE(refused_.empty());
}

TEST_F(WebCallTest, AConnectErrorHasDetailsAndTrailers) {
  OnClassify([](calls::Exchange&) {
    calls::CallEnd end =
        FakeEnd(RetryAfter(absl::UnavailableError("the server drains"), absl::Seconds(2)));
    end.trailers = {{"x-request-id", "of-the-service"}};
    return end;
  });
  const auto response = Ask(Post(kClassify, "application/proto", ""));
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(response->content_type, "application/json");
  EXPECT_EQ(response->body,
            R"({"code":"unavailable","details":[{"type":"google.rpc.RetryInfo","value":"CgIIAg"}],)"
            R"("message":"the server drains"})");
  EXPECT_EQ(Header(*response, "Trailer-x-request-id"), "of-the-service");
  EXPECT_EQ(Header(*response, "Retry-After"), "2");
}

// Refusals by the gateway itself look like those of a service.
TEST_F(WebCallTest, ALimitOfTheCallerSaysWhenToComeBack) {
  Limit("calls_in_flight=1");
  callers::Lease lease;
  ASSERT_TRUE(lease.Enter(caller_, calls::MethodId::kClassify).ok());
  const auto connect = Ask(Post(kClassify, "application/proto", ClassifyBytes()));
  EXPECT_EQ(connect->status, 429);
  EXPECT_THAT(connect->body, HasSubstr("google.rpc.RetryInfo"));
  EXPECT_THAT(Ask(Post(kClassify, "application/grpc-web", ClassifyBytes()))->body,
              HasSubstr("grpc-status-details-bin: "));
}

TEST_F(WebCallTest, AnAnswerByConnectHasTheTrailersAsHeaders) {
  OnClassify([](calls::Exchange&) {
    calls::CallEnd end = FakeEnd(absl::OkStatus());
    end.trailers = {{"x-cost", "7"}};
    return end;
  });
  EXPECT_EQ(Header(*Ask(Post(kClassify, "application/json", "{}")), "Trailer-x-cost"), "7");
  EXPECT_EQ(Header(*Ask(Request("POST", "/v1/classify", "{}")), "Trailer-x-cost"), "");
}

TEST_F(WebCallTest, WhatIsNoConnectCallIsRefused) {
  const TestRequest good = Post(kClassify, "application/json", "{}");
  ExpectRefusal(Request("GET", kClassify), 405, "unimplemented", "it takes POST");
  ExpectRefusal(With(good, "content-type", "text/plain"), 415, "invalid_argument",
                "application/proto or application/grpc-web");
  ExpectRefusal(With(good, "content-type", "application/connect+json"), 415, "invalid_argument",
                "found 'application/connect+json'");
  ExpectRefusal(Post(kGenerate, "application/json", "{}"), 415, "invalid_argument",
                "application/connect+json");
  TestRequest untyped = good;
  untyped.headers.erase("content-type");
  ExpectRefusal(untyped, 415, "invalid_argument", "found ''");
  ExpectRefusal(With(good, "content-encoding", "br"), 501, "unimplemented",
                "Content-Encoding: expected gzip, deflate or none, found 'br'");
  ExpectRefusal(With(good, "connect-protocol-version", "2"), 400, "invalid_argument", "expected 1");
  ExpectRefusal(With(good, "connect-timeout-ms", "12345678901"), 400, "invalid_argument",
                "connect-timeout-ms");
  ExpectRefusal(With(good, "x-request-timeout-ms", "0"), 400, "invalid_argument", "Timeout-Ms");
  ExpectRefusal(With(good, "authorization", ""), 401, "unauthenticated", "a token is needed");
  ExpectRefusal(Post(kClassify, "application/json", "{"), 400, "invalid_argument", "JSON");
  ExpectRefusal(Post("/sru.v1.InferenceService/Nothing", "application/json", "{}"), 404,
                "not_found", "Nothing; GET /openapi.json");
  EXPECT_THAT(refused_, ::testing::Contains(absl::StrCat(kClassify, " 415")));
}

TEST_F(WebCallTest, TheEarlierDeadlineCounts) {
  absl::Duration left;
  OnClassify([&](calls::Exchange& exchange) {
    left = exchange.time_left();
    return FakeEnd(absl::OkStatus());
  });
  const TestRequest connect =
      With(Post(kClassify, "application/json", "{}"), "connect-timeout-ms", "50000");
  for (const TestRequest& request :
       {connect, With(connect, "x-request-timeout-ms", "60000"),
        With(Post(kClassify, "application/grpc-web", Framed("")), "grpc-timeout", "50S")}) {
    EXPECT_EQ(Ask(request)->status, 200);
    EXPECT_GT(left, absl::Seconds(10));
    EXPECT_LE(left, absl::Seconds(50));
  }
  EXPECT_EQ(Ask(With(connect, "x-request-timeout-ms", "20000"))->status, 200);
  EXPECT_LE(left, absl::Seconds(20));
}

TEST_F(WebCallTest, ACallIsCancelledWhenItsDeadlineHasPassed) {
  absl::Duration left = absl::InfiniteDuration();
  OnClassify([&](calls::Exchange& exchange) {
    EXPECT_TRUE(PollUntil([&exchange] { return exchange.is_cancelled(); }));
    left = exchange.time_left();
    return FakeEnd(absl::DeadlineExceededError("late"));
  });
  const TestRequest request = Post(kClassify, "application/json", "{}");
  ExpectRefusal(With(request, "connect-timeout-ms", "20"), 504, "deadline_exceeded", "late");
  EXPECT_LE(left, absl::Milliseconds(1));
}

TEST_F(WebCallTest, AGrpcWebCallHasFrames) {
  v1::ClassifyResponse expected;
  expected.set_model("m");
  expected.add_classifications()->add_labels()->set_name("a");
  const std::string answer = expected.SerializeAsString();

  const auto binary = Ask(Post(kClassify, "application/grpc-web+proto", Framed(ClassifyBytes())));
  EXPECT_EQ(binary->status, 200);
  EXPECT_EQ(binary->content_type, "application/grpc-web+proto");
  EXPECT_EQ(binary->body, Framed(answer) + Ended("grpc-status: 0\r\n"));

  // The prefix and the message in pieces of their own.
  const std::string frame = Framed(ClassifyBytes());
  const auto text =
      Ask(Post(kClassify, "application/grpc-web-text",
               absl::Base64Escape(frame.substr(0, 5)) + absl::Base64Escape(frame.substr(5))));
  EXPECT_EQ(text->status, 200);
  EXPECT_EQ(text->content_type, "application/grpc-web-text+proto");
  EXPECT_EQ(text->body, Framed(answer, ErrorForm::kGrpcWebText) +
                            Ended("grpc-status: 0\r\n", ErrorForm::kGrpcWebText));
  EXPECT_TRUE(refused_.empty());
}

TEST_F(WebCallTest, AGrpcWebCallThatIsRefusedHasTrailers) {
  const TestRequest good = Post(kClassify, "application/grpc-web", Framed(""));
  const auto body = [](const std::string& type, const std::string& text) {
    return Post(kClassify, type, text);
  };
  TestRequest large = good;
  large.body = absl::ResourceExhaustedError("too long");
  for (const auto& [request, code] :
       {std::pair{With(good, "authorization", ""), 16},
        std::pair{With(good, "grpc-timeout", "x"), 3},
        std::pair{With(good, "grpc-encoding", "gzip"), 12}, std::pair{large, 8},
        std::pair{body("application/grpc-web", "abc"), 3},
        std::pair{body("application/grpc-web", Ended("")), 3},
        std::pair{body("application/grpc-web", Framed("") + Framed("")), 3},
        std::pair{body("application/grpc-web-text", "Y"), 3}}) {
    refused_.clear();
    const auto response = Ask(request);
    EXPECT_EQ(response->status, 200);
    EXPECT_THAT(response->content_type, StartsWith("application/grpc-web"));
    const std::string decoded = response->content_type == "application/grpc-web+proto"
                                    ? response->body
                                    : *DecodeBase64Pieces(response->body);
    EXPECT_EQ(decoded.front(), '\x80');
    EXPECT_THAT(decoded, HasSubstr(absl::StrCat("grpc-status: ", code, "\r\ngrpc-message: ")));
    EXPECT_THAT(refused_, ::testing::ElementsAre(absl::StrCat(kClassify, " 200")));
  }
  calls::ByteReservation others(&budget_);
  ASSERT_TRUE(others.Grow(budget_.limit() - budget_.used() - 10));
  // Memory for the decoded body is reserved, too.
  EXPECT_THAT(*DecodeBase64Pieces(Ask(body("application/grpc-web-text", "AAAAAAA="))->body),
              HasSubstr("grpc-status: 8\r\n"));
}

TEST_F(WebCallTest, StreamsComeInFrames) {
  v1::GenerateResponse first;
  first.set_model("lm");
  first.set_text("0");
  v1::GenerateResponse second;
  second.set_model("lm");
  second.set_text("1");
  second.set_finish_reason(v1::FINISH_REASON_LENGTH);
  second.set_prompt_tokens(2);
  second.set_generated_tokens(2);
  const std::string request = Framed(GenerateBytes(2));
  const auto frames = [&](ErrorForm form, const std::string& end) {
    return Framed(first.SerializeAsString(), form) + Framed(second.SerializeAsString(), form) +
           Ended(end, form);
  };

  const auto response = Ask(Post(kGenerate, "application/grpc-web+proto", request));
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->content_type, "application/grpc-web+proto");
  EXPECT_EQ(AwaitEnd(), frames(ErrorForm::kGrpcWeb, "grpc-status: 0\r\n"));

  Ask(Post(kGenerate, "application/grpc-web-text", absl::Base64Escape(request)));
  EXPECT_EQ(AwaitEnd(), frames(ErrorForm::kGrpcWebText, "grpc-status: 0\r\n"));

  Ask(Post(kGenerate, "application/connect+proto", request));
  EXPECT_EQ(AwaitEnd(), frames(ErrorForm::kConnectProtoStream, "{}"));

  const auto as_json =
      Ask(Post(kGenerate, "application/connect+json", Framed(R"({"max_new_tokens":1})")));
  EXPECT_EQ(as_json->content_type, "application/connect+json");
  EXPECT_EQ(AwaitEnd(), Framed(R"({"model":"lm","text":"0","finish_reason":"FINISH_REASON_LENGTH",)"
                               R"("prompt_tokens":2,"generated_tokens":1})") +
                            Ended("{}", ErrorForm::kConnectJsonStream));

  // Without a message.
  Ask(Post(kGenerate, "application/grpc-web", Framed(GenerateBytes(0))));
  EXPECT_EQ(AwaitEnd(), Ended("grpc-status: 0\r\n"));
}

TEST_F(WebCallTest, AStreamThatFailsEndsWithItsError) {
  int messages = 0;
  OnGenerate([&](calls::Exchange&, const Writer& writer) {
    for (int i = 0; i < messages; ++i) writer(v1::GenerateResponse());
    return FakeEnd(absl::UnavailableError("the server drains"));
  });
  const std::string error = R"({"error":{"code":"unavailable","message":"the server drains"}})";
  const auto early = Ask(Post(kGenerate, "application/connect+json", Framed("{}")));
  EXPECT_EQ(early->status, 200);
  EXPECT_EQ(early->content_type, "application/connect+json");
  EXPECT_EQ(early->body, Ended(error, ErrorForm::kConnectJsonStream));
  messages = 1;
  Ask(Post(kGenerate, "application/connect+json", Framed("{}")));
  EXPECT_EQ(AwaitEnd(), Framed("{}") + Ended(error, ErrorForm::kConnectJsonStream));
  Ask(Post(kGenerate, "application/grpc-web", Framed("")));
  EXPECT_EQ(AwaitEnd(),
            Framed("") + Ended("grpc-status: 14\r\ngrpc-message: the server drains\r\n"));
}

TEST_F(WebCallTest, AMethodWithAStreamOfRequestsIsForGrpc) {
  calls::Method method;
  method.service = "sru.v1.InferenceService";
  method.name = "EncodeStream";
  method.kind = calls::MethodKind::kBidirectional;
  std::vector<calls::Method> rows = service_.Rows();
  rows.push_back(method);
  const calls::MethodTable methods(std::move(rows));
  Gateway::Options options = MakeOptions();
  options.methods = &methods;
  gateway_ = std::make_unique<Gateway>(std::move(options));
  const auto response = Ask(Post(method.path(), "application/connect+proto", Framed("")));
  EXPECT_EQ(response->status, 200);
  EXPECT_THAT(response->body, HasSubstr(R"("code":"unimplemented")"));
  EXPECT_THAT(response->body, HasSubstr("needs gRPC"));
}

TEST_F(WebCallTest, PagesOfAllowedOriginsMayCall) {
  Gateway::Options options = MakeOptions();
  options.allow_origins = {"https://app.example"};
  gateway_ = std::make_unique<Gateway>(std::move(options));
  // The server has a public name, which browsers send.
  TestRequest request = Request("POST", "/v1/classify", "{}");
  request.headers["host"] = "sru.public.example";
  request.headers["user-agent"] = "Mozilla/5.0 (X11)";
  request.headers["sec-fetch-site"] = "cross-site";
  request.headers["origin"] = "https://app.example";
  const auto expect_cors = [](const http::PageResponse& response) {
    EXPECT_EQ(Header(response, "Access-Control-Allow-Origin"), "https://app.example");
    EXPECT_EQ(Header(response, "Vary"), "Origin");
  };

  TestRequest preflight = request;
  preflight.method = "OPTIONS";
  preflight.headers.erase("authorization");
  preflight.headers.erase("content-type");
  preflight.headers["access-control-request-method"] = "POST";
  const auto consent = Ask(preflight);
  EXPECT_EQ(consent->status, 204);
  EXPECT_EQ(consent->body, "");
  EXPECT_EQ(Header(*consent, "Access-Control-Allow-Methods"), "GET, POST");
  expect_cors(*consent);
  EXPECT_TRUE(refused_.empty());

  const auto answer = Ask(request);
  EXPECT_EQ(answer->status, 200);
  expect_cors(*answer);
  expect_cors(*Ask(With(request, "authorization", "")));  // 401, before the body
  const TestRequest stream =
      With(Post("/v1/generate", "application/json", R"({"max_new_tokens":1})"), "origin",
           "https://app.example");
  expect_cors(*Ask(stream));
  AwaitEnd();

  // Other pages are refused as without the option, and their browsers do not show them why.
  for (const TestRequest& foreign :
       {With(request, "origin", "https://other.example"),
        With(preflight, "origin", "https://other.example"), With(request, "origin", "null")}) {
    const auto refusal = Ask(foreign);
    EXPECT_EQ(refusal->status, 403);
    EXPECT_EQ(Header(*refusal, "Access-Control-Allow-Origin"), "");
    EXPECT_EQ(Header(*refusal, "Access-Control-Allow-Methods"), "");
  }
  // Not a preflight, though OPTIONS.
  preflight.headers.erase("access-control-request-method");
  EXPECT_EQ(Ask(preflight)->status, 405);
}

TEST_F(WebCallTest, WithoutAllowedOriginsPreflightsAreRefused) {
  TestRequest preflight = Request("OPTIONS", kClassify);
  preflight.headers["origin"] = "https://app.example";
  preflight.headers["access-control-request-method"] = "POST";
  const auto refusal = Ask(preflight);
  EXPECT_EQ(refusal->status, 403);
  for (const auto& [name, value] : refusal->headers) {
    EXPECT_THAT(name, Not(StartsWith("Access-Control")));
    EXPECT_NE(name, "Vary");
  }
}

}  // namespace
}  // namespace sru::server::rest
