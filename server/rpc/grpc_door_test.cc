#include "server/rpc/grpc_door.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/retry.h"
#include "server/calls/grpc_text.h"
#include "server/calls/kinds/unknown_method.h"
#include "server/transport/listening_sockets.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/fake_methods.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

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
  // Opens a door to these methods.
  v1::InferenceService::Stub& Serve(std::vector<calls::Method> rows,
                                    const ListenAddress& address = {"127.0.0.1", 0}) {
    methods_ = std::make_unique<calls::MethodTable>(std::move(rows));
    options_.methods = methods_.get();
    options_.unknown = [this](calls::Exchange* exchange) {
      return calls::StartUnknownMethod(exchange, &metrics_, &access_log_);
    };
    auto door = GrpcDoor::Open("listen", address, options_, /*receive_bytes=*/0, nullptr);
    EXPECT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(door_->address().ToString(), grpc::InsecureChannelCredentials()));
    return *stub_;
  }

  RealClock clock_;
  telemetry::Metrics metrics_{&clock_};
  telemetry::AccessLog access_log_{{telemetry::LogRequests::kNone}, &clock_};
  std::unique_ptr<calls::MethodTable> methods_;
  door::DoorOptions options_;
  std::unique_ptr<GrpcDoor> door_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(GrpcDoorTest, ACallSeesItsCallerAndTheCallerItsEnd) {
  const absl::Status queue_is_full =
      RetryAfter(absl::ResourceExhaustedError("the queue is full"), absl::Seconds(1));
  auto& stub = Serve({FakeUnary<v1::ClassifyRequest, v1::ClassifyResponse>(
      kService, "Classify", [&](auto& exchange, const auto& request, auto* response) {
        EXPECT_EQ(exchange.method(), "/sru.v1.InferenceService/Classify");
        EXPECT_EQ(exchange.FindHeader("x-mine"), "a value");
        EXPECT_EQ(exchange.FindHeader("x-none"), "");
        EXPECT_THAT(exchange.peer(), HasSubstr("ipv4:127.0.0.1:"));
        EXPECT_LE(exchange.time_left(), absl::Seconds(31));
        response->set_model(request.model());
        calls::CallEnd end = FakeEnd(request.model() == "bad" ? queue_is_full : absl::OkStatus());
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
      EXPECT_EQ(status.error_details(), calls::StatusDetails(queue_is_full));
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

TEST_F(GrpcDoorTest, ACallThatMayNotIsRefusedBeforeItBegins) {
  std::atomic<int> begun{0};
  options_.check_call = [](const transport::CallToCheck& call) {
    EXPECT_EQ(call.path, "/sru.v1.InferenceService/Classify");
    EXPECT_THAT(std::string(call.peer), HasSubstr("ipv4:127.0.0.1:"));
    EXPECT_EQ(call.certificate(), "");
    const bool ok = call.authorizations == 1 && call.headers.authorization == "Bearer me";
    return transport::CallVerdict{ok ? nullptr : "who are you?", nullptr};
  };
  auto& stub = Serve({FakeUnary<v1::ClassifyRequest, v1::ClassifyResponse>(
      kService, "Classify", [&](auto&, const auto&, auto*) {
        ++begun;
        return FakeEnd(absl::OkStatus());
      })});
  for (const char* const token : {"Bearer you", "Bearer me"}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", token);
    v1::ClassifyResponse response;
    const grpc::Status status = stub.Classify(&context, {}, &response);
    const bool mine = token == std::string("Bearer me");
    EXPECT_EQ(status.error_code(), mine ? grpc::StatusCode::OK : grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(status.error_message(), mine ? "" : "who are you?");
  }
  EXPECT_EQ(begun, 1);
}

TEST_F(GrpcDoorTest, AnAnswerIsUnsentUntilItsClientTakesIt) {
  std::atomic<bool> refused{false};
  auto& stub = Serve({FakeStream<v1::GenerateRequest, v1::GenerateResponse>(
      kService, "Generate", [&](auto&, const auto&, const auto& write) {
        v1::GenerateResponse response;
        response.set_text(std::string(1 << 20, 'x'));
        for (int i = 0; i < 100 && !refused; ++i) refused = !write(response);
        return FakeEnd(absl::OkStatus());
      })});
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, {});
  // Some leave before the window is full.
  EXPECT_TRUE(PollUntil([&] { return !door_->WaitUntilSent(absl::Milliseconds(50)); }));
  context.TryCancel();
  reader->Finish();
  EXPECT_TRUE(PollUntil([&] { return refused.load(); }));
  EXPECT_TRUE(door_->WaitUntilSent(absl::Seconds(20)));
}

TEST_F(GrpcDoorTest, AShutdownWaitsForCallsAndTheirAnswers) {
  std::atomic<bool> entered{false};
  std::atomic<bool> may_end{false};
  auto& stub = Serve({FakeUnary<v1::ClassifyRequest, v1::ClassifyResponse>(
      kService, "Classify", [&](auto&, const auto&, auto* response) {
        entered = true;
        EXPECT_TRUE(PollUntil([&] { return may_end.load(); }));
        response->set_model(std::string(100000, 'm'));
        return FakeEnd(absl::OkStatus());
      })});
  v1::ClassifyResponse response;
  std::thread caller([&] {
    grpc::ClientContext context;
    EXPECT_TRUE(stub.Classify(&context, {}, &response).ok());
  });
  EXPECT_TRUE(PollUntil([&] { return entered.load(); }));
  std::thread shutdown([this] { door_->Shutdown(absl::Seconds(60)); });
  may_end = true;
  shutdown.join();
  caller.join();
  EXPECT_EQ(response.model().size(), 100000U);
}

TEST_F(GrpcDoorTest, ListensOnEveryKindOfAddress) {
  const models::TempDirectory directory;
  for (const ListenAddress& address :
       {ListenAddress{"0.0.0.0", 0}, ListenAddress{"::1", 0},
        ListenAddress{absl::StrCat(kUnixPrefix, directory.path("door.sock")), 0}}) {
    if (address.host == "::1" && !transport::CheckListening({{"listen", address}}).ok()) continue;
    auto& stub = Serve({}, address);
    grpc::ClientContext context;
    v1::ClassifyResponse response;
    EXPECT_EQ(stub.Classify(&context, {}, &response).error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << address.ToString();
    if (address.host == "0.0.0.0") {
      EXPECT_GT(door_->address().port, 0);
      const auto second = GrpcDoor::Open("listen", door_->address(), options_,
                                         /*receive_bytes=*/0, nullptr);
      EXPECT_TRUE(absl::IsUnavailable(second.status()));
      EXPECT_THAT(std::string(second.status().message()),
                  HasSubstr(absl::StrCat("cannot listen on ", door_->address().ToString(),
                                         " (--listen): ")));
    }
  }
}

}  // namespace
}  // namespace sru::server::rpc
