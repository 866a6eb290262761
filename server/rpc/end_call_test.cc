#include "server/rpc/end_call.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "google/rpc/retry.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace sru::server::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EndCallTest : public ::testing::Test {
 protected:
  grpc::Status End(std::optional<telemetry::Method> method, telemetry::ModelMetrics* model,
                   const absl::Status& status,
                   std::optional<absl::Duration> retry_after = std::nullopt) {
    grpc::CallbackServerContext context;
    EndedCall ended;
    ended.call = &context;
    ended.method = method;
    ended.model_metrics = model;
    ended.retry_after = retry_after;
    ended.record.status = &status;
    ended.record.times = telemetry::CallTimes();
    return EndCall(&metrics_, &access_log_, std::move(ended));
  }

  std::string Metrics() const { return metrics_.Text(telemetry::ServerLevels()); }

  RealClock clock_;
  telemetry::Metrics metrics_{&clock_};
  telemetry::AccessLog access_log_{{telemetry::LogRequests::kNone, 0, false}, &clock_};
};

TEST_F(EndCallTest, ACallIsCountedWithItsModel) {
  const std::shared_ptr<telemetry::ModelMetrics> model = metrics_.ForModel("trec", 2, 4096);
  EXPECT_TRUE(End(telemetry::Method::kClassify, model.get(), absl::OkStatus()).ok());
  EXPECT_THAT(Metrics(), HasSubstr("sru_requests_total{code=\"OK\",method=\"Classify\","
                                   "model=\"trec\",version=\"2\"} 1"));
  EXPECT_THAT(Metrics(), HasSubstr("sru_request_duration_seconds_count{method=\"Classify\","
                                   "model=\"trec\",version=\"2\"} 1"));
}

TEST_F(EndCallTest, ACallWithoutAModelIsCountedWithoutLabelsOfOne) {
  const grpc::Status status =
      End(telemetry::Method::kGetModel, nullptr, absl::NotFoundError("model: 'x' is not loaded"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "model: 'x' is not loaded");
  EXPECT_THAT(Metrics(), HasSubstr("sru_requests_total{code=\"NOT_FOUND\",method=\"GetModel\","
                                   "model=\"\",version=\"\"} 1"));
}

TEST_F(EndCallTest, AnUnknownMethodIsCountedAsSuch) {
  const grpc::Status status =
      End(std::nullopt, nullptr, absl::UnimplementedError("there is no method /x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(Metrics(), HasSubstr("sru_unknown_method_calls_total 1"));
  EXPECT_THAT(Metrics(), Not(HasSubstr("sru_requests_total{")));
}

TEST_F(EndCallTest, ARefusalSaysWhenToComeBack) {
  const grpc::Status status = End(telemetry::Method::kEncode, nullptr,
                                  absl::ResourceExhaustedError("full"), absl::Milliseconds(30));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().nanos(), 30000000);
}

}  // namespace
}  // namespace sru::server::rpc
