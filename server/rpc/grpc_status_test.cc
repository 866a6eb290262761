#include "server/rpc/grpc_status.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "google/rpc/retry.pb.h"
#include "gtest/gtest.h"

namespace sru::server::rpc {
namespace {

TEST(GrpcStatusTest, EveryCodeKeepsItsNumberAndMessage) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(status.error_message(), "why");
    EXPECT_TRUE(status.error_details().empty());
  }
}

TEST(GrpcStatusTest, ResourceExhaustedCarriesRetryInfo) {
  const grpc::Status status =
      ToGrpcStatus(absl::ResourceExhaustedError("queue full"), absl::Milliseconds(2500));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 8);
  EXPECT_EQ(details.message(), "queue full");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  google::rpc::RetryInfo retry_info;
  ASSERT_TRUE(details.details(0).UnpackTo(&retry_info));
  EXPECT_EQ(retry_info.retry_delay().seconds(), 2);
  EXPECT_EQ(retry_info.retry_delay().nanos(), 500000000);
}

TEST(GrpcStatusTest, RetryDelayIsBounded) {
  for (const auto& [delay, seconds] :
       {std::pair{absl::InfiniteDuration(), 86400}, std::pair{-absl::Seconds(5), 0}}) {
    const grpc::Status status = ToGrpcStatus(absl::ResourceExhaustedError("x"), delay);
    google::rpc::Status details;
    google::rpc::RetryInfo retry_info;
    ASSERT_TRUE(details.ParseFromString(status.error_details()));
    ASSERT_TRUE(details.details(0).UnpackTo(&retry_info));
    EXPECT_EQ(retry_info.retry_delay().seconds(), seconds);
  }
}

TEST(GrpcStatusTest, OtherCodesCarryNoRetryInfo) {
  EXPECT_TRUE(ToGrpcStatus(absl::UnavailableError("x"), absl::Seconds(1)).error_details().empty());
}

}  // namespace
}  // namespace sru::server::rpc
