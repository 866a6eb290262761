#include "server/telemetry/access_log.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/passed_peer.h"

namespace sru::server::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers no call, but logs it as one that failed.
class FailingService : public grpc::CallbackGenericService {
 public:
  explicit FailingService(AccessLog* log) : log_(*log) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override {
    const absl::Status status = absl::NotFoundError("model: there is none");
    CallRecord record;
    record.method = "Classify";
    record.status = &status;
    log_.End(call, "id", record);
    auto* const reactor = new Reactor;
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, ""));
    return reactor;
  }

 private:
  struct Reactor : grpc::ServerGenericBidiReactor {
    void OnDone() override { delete this; }
  };
  AccessLog& log_;
};

// The line of a call that failed with these headers.
std::string LineOf(const std::string& peer_header) {
  const RealClock clock;
  AccessLog log(AccessLogOptions{}, &clock);
  FailingService service(&log);
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::GenericStub stub(server->InProcessChannel({}));
  grpc::ClientContext call;
  if (!peer_header.empty()) call.AddMetadata(kPassedPeerHeader, peer_header);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  absl::Notification ended;
  ::testing::internal::CaptureStderr();
  stub.UnaryCall(
      &call, "/a.Service/Method", {}, &request, &response, [&](const grpc::Status& status) {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
        ended.Notify();
      });
  ended.WaitForNotification();
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(AccessLogTest, ACallOverHttpHasTheAddressOfItsClient) {
  EXPECT_THAT(LineOf(PassPeer(PeerAt("10.0.0.1", 4711))),
              AllOf(HasSubstr("code=NOT_FOUND"), HasSubstr("peer=ipv4:10.0.0.1:4711 ")));
}

TEST(AccessLogTest, ACallerCannotClaimToBeAnother) {
  for (const std::string header : {"ipv4:10.0.0.1:4711", "http 10.0.0.1 4711"}) {
    EXPECT_THAT(LineOf(header), AllOf(HasSubstr("code=NOT_FOUND"), Not(HasSubstr("10.0.0.1"))));
  }
}

// The line of a request over HTTP that was refused for this reason.
std::string RefusalLine(const absl::Status& reason, bool content) {
  const RealClock clock;
  AccessLogOptions options;
  options.content = content;
  AccessLog log(options, &clock);
  CallHeaders headers;
  headers.request_id = "id-7";
  headers.user_agent = "curl/8";
  ::testing::internal::CaptureStderr();
  log.OnHttpRefusal("/v1/classify", 400, reason, headers, "10.0.0.1");
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(AccessLogTest, ARefusalOverHttpHasALineWithoutTheRequest) {
  EXPECT_THAT(
      RefusalLine(absl::NotFoundError("there is nothing"), false),
      AllOf(HasSubstr("HTTP request refused method=/v1/classify http_status=400"),
            HasSubstr("code=NOT_FOUND"), HasSubstr("there is nothing"), HasSubstr("peer=10.0.0.1"),
            HasSubstr("user_agent=curl/8"), HasSubstr("request_id=id-7")));
  for (const std::string text : {"sequences[0].text: found 'private'", "unknown field 'private'"}) {
    const absl::Status reason = absl::InvalidArgumentError(text);
    EXPECT_THAT(RefusalLine(reason, false),
                AllOf(HasSubstr("code=INVALID_ARGUMENT"), Not(HasSubstr("private"))));
    EXPECT_THAT(RefusalLine(reason, true), HasSubstr("private"));
  }
}

// The line of a call that was refused for its token.
std::string TokenLine(absl::string_view peer, absl::string_view certificate) {
  const RealClock clock;
  AccessLog log(AccessLogOptions{}, &clock);
  CallHeaders headers;
  headers.request_id = "id-7";
  headers.authorization = "Bearer private";
  headers.user_agent = "curl/8";
  ::testing::internal::CaptureStderr();
  log.OnAuthenticationFailure("/v1/classify", "unknown", headers, peer, certificate);
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(AccessLogTest, ARefusedTokenHasThePeerIfItIsKnown) {
  const std::string start = "authentication failed method=/v1/classify code=UNAUTHENTICATED ";
  const std::string end = " user_agent=curl/8 request_id=id-7\n";
  EXPECT_THAT(TokenLine("10.0.0.1", ""), HasSubstr(start + "reason=unknown peer=10.0.0.1" + end));
  EXPECT_THAT(TokenLine("", "team"), HasSubstr(start + "reason=unknown certificate=team" + end));
}

}  // namespace
}  // namespace sru::server::telemetry
