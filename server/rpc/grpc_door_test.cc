#include "server/rpc/grpc_door.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/calls/kinds/unknown_method.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/fake_methods.h"
#include "tests/testing/poll.h"

namespace sru::server::rpc {
namespace {

using ::sru::testing::FakeEnd;
using ::sru::testing::FakeStream;
using ::sru::testing::FakeUnary;
using ::sru::testing::PollUntil;
using ::testing::HasSubstr;

constexpr char kService[] = "sru.v1.InferenceService";

class GrpcDoorTest : public ::testing::Test {
 protected:
  // Starts a server with these methods.
  v1::InferenceService::Stub& Serve(std::vector<calls::Method> rows,
                                    absl::Duration send_timeout = absl::InfiniteDuration()) {
    methods_ = std::make_unique<calls::MethodTable>(std::move(rows));
    unsent_ = std::make_unique<UnsentAnswers>(send_timeout, &clock_);
    unsent_->Start();
    GrpcDoor::Options options;
    options.methods = methods_.get();
    options.unknown = [this](calls::Exchange* exchange) {
      return calls::StartUnknownMethod(exchange, &metrics_, &access_log_);
    };
    options.unsent = unsent_.get();
    options.send_timeout = send_timeout;
    options.access_log = &access_log_;
    door_ = std::make_unique<GrpcDoor>(std::move(options));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(door_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    return *stub_;
  }
  void TearDown() override {
    server_->Shutdown();
    server_->Wait();
    unsent_->Stop();
  }

  RealClock clock_;
  telemetry::Metrics metrics_{&clock_};
  telemetry::AccessLog access_log_{{telemetry::LogRequests::kNone}, &clock_};
  std::unique_ptr<calls::MethodTable> methods_;
  std::unique_ptr<UnsentAnswers> unsent_;
  std::unique_ptr<GrpcDoor> door_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(GrpcDoorTest, ACallSeesItsCallerAndTheCallerItsEnd) {
  auto& stub = Serve({FakeUnary<v1::ClassifyRequest, v1::ClassifyResponse>(
      kService, "Classify", [](auto& exchange, const auto& request, auto* response) {
        EXPECT_EQ(exchange.method(), "/sru.v1.InferenceService/Classify");
        EXPECT_EQ(exchange.FindHeader("x-mine"), "a value");
        EXPECT_EQ(exchange.FindHeader("x-none"), "");
        EXPECT_THAT(exchange.peer(), HasSubstr("ipv4:127.0.0.1:"));
        EXPECT_LE(exchange.time_left(), absl::Seconds(31));
        response->set_model(request.model());
        calls::CallEnd end =
            FakeEnd(request.model() == "bad" ? absl::ResourceExhaustedError("the queue is full")
                                             : absl::OkStatus());
        end.details = end.status.ok() ? "" : "details";
        end.headers = {{"x-first", "1"}};
        end.trailers = {{"x-last", "2"}};
        return end;
      })});
  for (const std::string& model :
       {std::string("m"), std::string(1 << 20, 'x'), std::string("bad")}) {
    grpc::ClientContext context;
    context.AddMetadata("x-mine", "a value");
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::ClassifyRequest request;
    request.set_model(model);
    v1::ClassifyResponse response;
    const grpc::Status status = stub.Classify(&context, request, &response);
    EXPECT_EQ(context.GetServerTrailingMetadata().count("x-last"), 1U);
    if (model != "bad") {
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.model(), model);
      EXPECT_EQ(context.GetServerInitialMetadata().count("x-first"), 1U);
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_EQ(status.error_message(), "the queue is full");
      EXPECT_EQ(status.error_details(), "details");
    }
  }
  grpc::ClientContext context;
  v1::EncodeResponse none;
  EXPECT_EQ(stub.Encode(&context, {}, &none).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcDoorTest, ACallLearnsThatItsCallerIsGone) {
  std::atomic<bool> entered{false};
  std::atomic<bool> cancelled{false};
  auto& stub = Serve({FakeStream<v1::GenerateRequest, v1::GenerateResponse>(
      kService, "Generate", [&](auto& exchange, const auto&, const auto&) {
        entered = true;
        cancelled = PollUntil([&exchange] { return exchange.is_cancelled(); });
        return FakeEnd(absl::CancelledError());
      })});
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, {});
  EXPECT_TRUE(PollUntil([&] { return entered.load(); }));
  context.TryCancel();
  EXPECT_TRUE(PollUntil([&] { return cancelled.load(); }));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcDoorTest, AClientThatNeverReadsIsGivenUp) {
  std::atomic<bool> refused{false};
  auto& stub = Serve({FakeStream<v1::GenerateRequest, v1::GenerateResponse>(
                         kService, "Generate",
                         [&](auto&, const auto&, const auto& write) {
                           v1::GenerateResponse response;
                           response.set_text(std::string(1 << 20, 'x'));
                           for (int i = 0; i < 100 && !refused; ++i) refused = !write(response);
                           return FakeEnd(absl::OkStatus());
                         })},
                     absl::Milliseconds(100));
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, {});
  EXPECT_TRUE(PollUntil([&] { return refused.load(); }));
  EXPECT_TRUE(PollUntil([&] { return unsent_->count() == 0; }));
  EXPECT_EQ(unsent_->abandoned(), 1);
  context.TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace sru::server::rpc
