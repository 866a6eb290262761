#include "server/calls/grpc_text.h"

#include <utility>

#include "google/rpc/retry.pb.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"

namespace sru::server::calls {
namespace {

TEST(GrpcTextTest, TimeoutsAreReadAsTheLibraryReadsThem) {
  EXPECT_EQ(ParseGrpcTimeout("5H"), absl::Hours(5));
  EXPECT_EQ(ParseGrpcTimeout("5M"), absl::Minutes(5));
  EXPECT_EQ(ParseGrpcTimeout("05S"), absl::Seconds(5));
  EXPECT_EQ(ParseGrpcTimeout("99999999m"), absl::Milliseconds(99999999));
  EXPECT_EQ(ParseGrpcTimeout("7u"), absl::Microseconds(7));
  EXPECT_EQ(ParseGrpcTimeout("0n"), absl::ZeroDuration());
  for (const char* wrong : {"", "S", "5", "5s", "-5S", "5 S", "123456789S", "5SS", "0x5S"}) {
    EXPECT_EQ(ParseGrpcTimeout(wrong), absl::InfiniteDuration()) << wrong;
  }
}

TEST(GrpcTextTest, MessagesArePercentEncoded) {
  EXPECT_EQ(PercentEncode("plain ~"), "plain ~");
  EXPECT_EQ(PercentEncode("%\n\x7f\xC3\xA4"), "%25%0A%7F%C3%A4");
}

TEST(GrpcTextTest, BinaryValuesHaveNoPadding) {
  EXPECT_EQ(UnpaddedBase64("a"), "YQ");
  EXPECT_EQ(UnpaddedBase64("abc"), "YWJj");
  EXPECT_EQ(UnpaddedBase64(""), "");
}

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
