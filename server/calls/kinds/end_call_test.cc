#include "server/calls/kinds/end_call.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"
#include "server/telemetry/request_id.h"

namespace sru::server::calls {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct EndedCaller final : CallOrigin {
  absl::string_view FindHeader(absl::string_view name) const override {
    return name == telemetry::kRequestIdHeader ? absl::string_view(request_id) : "";
  }
  std::string peer() const override { return "ipv4:10.0.0.1:4711"; }

  std::string request_id;
};

class EndCallTest : public ::testing::Test {
 protected:
  CallEnd End(std::optional<MethodId> method, telemetry::ModelMetrics* model,
              const absl::Status& status) {
    EndedCall ended(caller_, telemetry::AccessLog::Begin(caller_), status);
    ended.method = method;
    ended.model_metrics = model;
    ended.record.times = telemetry::CallTimes();
    return EndCall(&metrics_, &access_log_, std::move(ended));
  }

  std::string Metrics() const { return metrics_.Text(telemetry::ServerLevels()); }

  EndedCaller caller_;
  RealClock clock_;
  telemetry::Metrics metrics_{&clock_};
  telemetry::AccessLog access_log_{{telemetry::LogRequests::kNone, 0, false}, &clock_};
};

TEST_F(EndCallTest, ACallIsCountedWithItsModel) {
  const std::shared_ptr<telemetry::ModelMetrics> model = metrics_.ForModel("trec", 2, 4096);
  EXPECT_TRUE(End(MethodId::kClassify, model.get(), absl::OkStatus()).status.ok());
  EXPECT_THAT(Metrics(), HasSubstr("sru_requests_total{code=\"OK\",method=\"Classify\","
                                   "model=\"trec\",version=\"2\"} 1"));
  EXPECT_THAT(Metrics(), HasSubstr("sru_request_duration_seconds_count{method=\"Classify\","
                                   "model=\"trec\",version=\"2\"} 1"));
}

TEST_F(EndCallTest, ACallWithoutAModelIsCountedWithoutLabelsOfOne) {
  const absl::Status status =
      End(MethodId::kGetModel, nullptr, absl::NotFoundError("model: 'x' is not loaded")).status;
  EXPECT_EQ(status, absl::NotFoundError("model: 'x' is not loaded"));
  EXPECT_THAT(Metrics(), HasSubstr("sru_requests_total{code=\"NOT_FOUND\",method=\"GetModel\","
                                   "model=\"\",version=\"\"} 1"));
}

TEST_F(EndCallTest, AnUnknownMethodIsCountedAsSuch) {
  const absl::Status status =
      End(std::nullopt, nullptr, absl::UnimplementedError("there is no method /x")).status;
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(Metrics(), HasSubstr("sru_unknown_method_calls_total 1"));
  EXPECT_THAT(Metrics(), Not(HasSubstr("sru_requests_total{")));
}

TEST_F(EndCallTest, ARefusalSaysWhenToComeBack) {
  const absl::Status full =
      RetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(30));
  const CallEnd end = End(MethodId::kEncode, nullptr, full);
  EXPECT_EQ(RetryAfterOf(end.status), absl::Milliseconds(30));
}

// Clients do not retry an error that comes with initial metadata.
TEST_F(EndCallTest, TheRequestIdComesFirstAndWithAnErrorLast) {
  caller_.request_id = "id-7";
  const Metadata id = {{"x-request-id", "id-7"}};
  CallEnd end = End(MethodId::kEncode, nullptr, absl::OkStatus());
  EXPECT_EQ(end.headers, id);
  EXPECT_TRUE(end.trailers.empty());
  end = End(MethodId::kEncode, nullptr, absl::InternalError("x"));
  EXPECT_TRUE(end.headers.empty());
  EXPECT_EQ(end.trailers, id);
}

}  // namespace
}  // namespace sru::server::calls
