#include "server/calls/grpc_text.h"

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace sru::server::calls
