#include "server/calls/status_details.h"

#include <utility>

#include "google/rpc/retry.pb.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"

namespace sru::server::calls {
namespace {

TEST(StatusDetailsTest, ResourceExhaustedCarriesRetryInfo) {
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(StatusDetails(
      RetryAfter(absl::ResourceExhaustedError("queue full"), absl::Milliseconds(2500)))));
  EXPECT_EQ(details.code(), 8);
  EXPECT_EQ(details.message(), "queue full");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  google::rpc::RetryInfo retry_info;
  ASSERT_TRUE(details.details(0).UnpackTo(&retry_info));
  EXPECT_EQ(retry_info.retry_delay().seconds(), 2);
  EXPECT_EQ(retry_info.retry_delay().nanos(), 500000000);
}

TEST(StatusDetailsTest, RetryDelayIsBounded) {
  for (const auto& [delay, seconds] :
       {std::pair{absl::InfiniteDuration(), 86400}, std::pair{-absl::Seconds(5), 0}}) {
    google::rpc::Status details;
    google::rpc::RetryInfo retry_info;
    ASSERT_TRUE(details.ParseFromString(
        StatusDetails(RetryAfter(absl::ResourceExhaustedError("x"), delay))));
    ASSERT_TRUE(details.details(0).UnpackTo(&retry_info));
    EXPECT_EQ(retry_info.retry_delay().seconds(), seconds);
  }
}

TEST(StatusDetailsTest, OthersHaveNone) {
  EXPECT_EQ(StatusDetails(absl::ResourceExhaustedError("x")), "");
  EXPECT_EQ(StatusDetails(RetryAfter(absl::OkStatus(), absl::Seconds(1))), "");
}

}  // namespace
}  // namespace sru::server::calls
