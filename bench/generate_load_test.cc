#include "bench/generate_load.h"

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/load_generator.h"
#include "bench/report.h"
#include "bench/requests.h"
#include "gmock/gmock.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/fake_server.h"

namespace sru::bench {
namespace {

using client::FakeServer;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::ModelInfo FakeModel() {
  v1::ModelInfo model;
  model.set_name("fake");
  model.set_vocabulary_size(100);
  return model;
}

std::vector<v1::GenerateRequest> Requests(int distinct, const std::string& output = "fixed:5") {
  GenerateRequestOptions options;
  options.prompt = "uniform:1:20";
  options.output = output;
  options.distinct = distinct;
  auto requests = MakeGenerateRequests(options, FakeModel());
  EXPECT_TRUE(requests.ok()) << requests.status();
  return *requests;
}

GenerateLoadOptions Options(const FakeServer& server) {
  GenerateLoadOptions options;
  options.address = server.address();
  options.warmup = absl::ZeroDuration();
  options.duration = absl::Seconds(60);
  return options;
}

TEST(GenerateLoadTest, AClosedLoopKeepsItsSessions) {
  FakeServer server;
  GenerateLoadOptions options = Options(server);
  options.sessions = 3;
  options.texts = 20;
  options.connections = 2;
  auto result = RunGenerateLoad(options, Requests(4));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->ok, 20);
  EXPECT_EQ(result->calls, result->ok);
  EXPECT_GE(result->tokens, 100);
  // One first token per text, and the others between.
  EXPECT_GE(result->first_token.count(), 20);
  EXPECT_EQ(result->first_token.count() + result->between_tokens.count(), result->tokens);
  EXPECT_EQ(result->text.count(), result->ok);
  EXPECT_EQ(result->lost, 0);
  EXPECT_EQ(result->checked_tokens, 0);
  EXPECT_GT(result->tokens_per_s(), 0);
  EXPECT_EQ(result->codes.at(absl::StatusCode::kOk), result->ok);
}

TEST(GenerateLoadTest, AnOpenLoopArrivesByItsRate) {
  FakeServer server;
  GenerateLoadOptions options = Options(server);
  options.rate = 1000;
  options.texts = 30;
  auto result = RunGenerateLoad(options, Requests(8, "geometric:3:10"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->ok, 30);
  EXPECT_LT(result->elapsed_s, 30);
}

TEST(GenerateLoadTest, TextsOfTheWarmUpDoNotCount) {
  FakeServer server;
  GenerateLoadOptions options = Options(server);
  options.warmup = absl::Milliseconds(100);
  options.texts = 3;
  auto result = RunGenerateLoad(options, Requests(4));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->calls, 3);
  EXPECT_LT(result->elapsed_s, 30);
}

TEST(GenerateLoadTest, TheCheckFindsTokensThatAreNotTheSame) {
  FakeServer server;
  GenerateLoadOptions options = Options(server);
  options.sessions = 2;
  options.texts = 8;
  options.check = true;
  auto result = RunGenerateLoad(options, Requests(4));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->checked_tokens, 40);
  EXPECT_EQ(result->wrong_tokens, 0);

  // The texts alone are made first.
  FakeServer corrupt;
  corrupt.CorruptGenerateFrom(4);
  options.address = corrupt.address();
  result = RunGenerateLoad(options, Requests(4));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->checked_tokens, 40);
  EXPECT_EQ(result->wrong_tokens, result->checked_tokens);
}

TEST(GenerateLoadTest, CountsWhatWasRefusedAndWhatWasCutOff) {
  FakeServer server;
  // One text at a time: the first is refused, the second is cut off, but has a state.
  server.FailNext({FakeServer::Overloaded(0, 1000000)});
  server.DrainGenerateAfter({2});
  GenerateLoadOptions options = Options(server);
  options.texts = 4;
  auto result = RunGenerateLoad(options, Requests(1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->codes.at(absl::StatusCode::kResourceExhausted), 1);
  EXPECT_EQ(result->codes.at(absl::StatusCode::kUnavailable), 1);
  EXPECT_EQ(result->refused.count(), 1);
  EXPECT_EQ(result->lost, 0);
  EXPECT_EQ(result->first_error.at(absl::StatusCode::kResourceExhausted), "the queue is full");
  const std::string text = ResultText(options, *result);
  EXPECT_THAT(text, AllOf(HasSubstr("closed loop, 1 sessions"), HasSubstr("RESOURCE_EXHAUSTED"),
                          HasSubstr("first: the queue is full"), HasSubstr("next tokens")));
  const nlohmann::ordered_json json = ResultJson(options, *result);
  EXPECT_EQ(json["codes"]["UNAVAILABLE"], 1);
  EXPECT_EQ(json["lost"], 0);
  EXPECT_EQ(json.count("wrong_tokens"), 0u);
}

TEST(GenerateLoadTest, ATextThatLastsIsCutOffAtTheEnd) {
  FakeServer server;
  GenerateLoadOptions options = Options(server);
  options.duration = absl::Milliseconds(50);
  v1::GenerateRequest request;
  request.mutable_prompt()->set_text("hang");
  auto result = RunGenerateLoad(options, {request});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls, 0);
  EXPECT_EQ(result->tokens, 2);
}

// Answers only calls that show a token.
class TokenService : public v1::InferenceService::Service {
 public:
  TokenService() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status Classify(grpc::ServerContext* context, const v1::ClassifyRequest* /*request*/,
                        v1::ClassifyResponse* /*response*/) override {
    return Check(*context);
  }
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* response) override {
    *response->add_models() = FakeModel();
    return Check(*context);
  }
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* /*request*/,
                        v1::GetModelResponse* response) override {
    *response->mutable_model() = FakeModel();
    return Check(*context);
  }
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* /*request*/,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    v1::GenerateResponse response;
    response.add_token_ids(1);
    const grpc::Status status = Check(*context);
    if (status.ok()) writer->Write(response);
    return status;
  }

 private:
  static grpc::Status Check(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find("authorization");
    if (found != context.client_metadata().end() && found->second == "Bearer secret") {
      return grpc::Status::OK;
    }
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no token");
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(GenerateLoadTest, EveryCallShowsTheTokenAndUsesNoProxy) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  const auto restore = absl::MakeCleanup([] { unsetenv("http_proxy"); });
  TokenService service;
  LoadOptions load;
  load.address = service.address();
  load.method = "/sru.v1.InferenceService/Classify";
  load.warmup = absl::ZeroDuration();
  load.in_flight = load.connections = 1;
  load.calls = 3;
  GenerateLoadOptions options;
  options.address = service.address();
  options.warmup = absl::ZeroDuration();
  options.texts = 3;
  options.check = true;
  const std::vector<std::string> calls = {""};
  EXPECT_EQ(FindModel(load, "", 0, {}).status().code(), absl::StatusCode::kUnauthenticated);
  auto refused = RunLoad(load, calls);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->codes[absl::StatusCode::kUnauthenticated], 3);
  EXPECT_EQ(RunGenerateLoad(options, Requests(1)).status().code(),
            absl::StatusCode::kUnauthenticated);

  load.token = options.token = "secret";
  EXPECT_EQ(FindModel(load, "", 0, {}).status(), absl::OkStatus());
  auto answered = RunLoad(load, calls);
  ASSERT_TRUE(answered.ok()) << answered.status();
  EXPECT_EQ(answered->ok, 3);
  auto result = RunGenerateLoad(options, Requests(1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->ok, 3);
}

TEST(GenerateLoadTest, AnErrorNamesTheFlagOfThisProgram) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Fail(kLoad, absl::UnauthenticatedError("no token"), LoadOptions()), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("give it with --token=TOKEN\n"));
}

TEST(GenerateLoadTest, OptionsOutOfRange) {
  GenerateLoadOptions options;
  options.address = client::DeadAddress();
  EXPECT_EQ(RunGenerateLoad(options, Requests(1)).status().code(), absl::StatusCode::kUnavailable);
  options.address = "192.0.2.1:50051";
  EXPECT_THAT(std::string(RunGenerateLoad(options, Requests(1)).status().message()),
              HasSubstr("192.0.2.1"));
  options.duration = absl::ZeroDuration();
  EXPECT_THAT(std::string(RunGenerateLoad(options, Requests(1)).status().message()),
              HasSubstr("--duration"));
}

TEST(MakeGenerateRequestsTest, DrawsPromptsAndLengths) {
  GenerateRequestOptions options;
  options.prompt = "fixed:10";
  options.output = "uniform:2:4";
  options.shared_prefix = 6;
  options.distinct = 50;
  options.temperature = 0.5;
  options.priority = v1::PRIORITY_LOW;
  auto requests = MakeGenerateRequests(options, FakeModel());
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_EQ(requests->size(), 50u);
  std::set<std::string> suffixes;
  std::set<int> outputs;
  std::set<uint64_t> seeds;
  for (const v1::GenerateRequest& request : *requests) {
    const auto& ids = request.prompt().token_ids().values();
    ASSERT_EQ(ids.size(), 10);
    const auto& first = requests->front().prompt().token_ids().values();
    EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 6, first.begin()));
    std::string suffix;
    for (int i = 6; i < 10; ++i) {
      EXPECT_LT(ids[i], 100);
      suffix += absl::StrCat(ids[i], " ");
    }
    suffixes.insert(suffix);
    outputs.insert(request.max_new_tokens());
    seeds.insert(request.sampling().seed());
    EXPECT_EQ(request.priority(), v1::PRIORITY_LOW);
    EXPECT_EQ(request.sampling().temperature(), 0.5f);
  }
  EXPECT_EQ(suffixes.size(), 50u);
  EXPECT_EQ(outputs, (std::set<int>{2, 3, 4}));
  EXPECT_EQ(seeds.size(), 50u);

  options.distinct = 1;
  options.output = "fixed:0";
  EXPECT_THAT(std::string(MakeGenerateRequests(options, FakeModel()).status().message()),
              HasSubstr("--output: expected numbers from 1"));
  options.output = "fixed:1";
  EXPECT_THAT(std::string(MakeGenerateRequests(options, v1::ModelInfo()).status().message()),
              HasSubstr("expected a language model"));
}

}  // namespace
}  // namespace sru::bench
