#include "server/transport/expiry_notices.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Time kEnd = absl::FromUnixSeconds(1800000000);

TEST(ExpiryNoticesTest, SaysEachOnce) {
  ExpiryNotices notices;
  EXPECT_FALSE(notices.Look(kEnd).has_value());  // there is no certificate
  notices.Watch("/CN=server", kEnd);
  EXPECT_FALSE(notices.Look(kEnd - absl::Hours(14 * 24) - absl::Seconds(1)).has_value());
  struct Expected {
    absl::Duration before;
    LogLevel level;
    const char* text;
  };
  for (const Expected& expected :
       {Expected{absl::Hours(14 * 24), LogLevel::kWarning,
                 "expires in 14 days, at 2027-01-15T08:00:00+00:00"},
        Expected{absl::Hours(23), LogLevel::kWarning, "expires in 23 hours"},
        Expected{absl::ZeroDuration(), LogLevel::kError, "has expired at 2027-01-15T08:00:00"}}) {
    const auto notice = notices.Look(kEnd - expected.before);
    ASSERT_TRUE(notice.has_value()) << expected.text;
    EXPECT_EQ(notice->level, expected.level);
    EXPECT_THAT(notice->text,
                AllOf(HasSubstr("/CN=server"), HasSubstr(expected.text), HasSubstr("--tls_cert")));
    EXPECT_FALSE(notices.Look(kEnd - expected.before + absl::Seconds(1)).has_value());
  }
  EXPECT_FALSE(notices.Look(kEnd - absl::Hours(48)).has_value());  // a clock that was set back
  EXPECT_FALSE(notices.Look(kEnd + absl::Hours(1000)).has_value());
}

TEST(ExpiryNoticesTest, SaysAtOnceWhatIsDue) {
  ExpiryNotices notices;
  notices.Watch("/CN=server", kEnd);
  const auto late = notices.Look(kEnd - absl::Seconds(50));
  ASSERT_TRUE(late.has_value());
  EXPECT_THAT(late->text, HasSubstr("expires in 50 seconds"));
  EXPECT_TRUE(notices.Look(kEnd + absl::Seconds(1)).has_value());
}

TEST(ExpiryNoticesTest, ANewCertificateBeginsAnew) {
  ExpiryNotices notices;
  notices.Watch("/CN=old", kEnd);
  EXPECT_TRUE(notices.Look(kEnd).has_value());
  notices.Watch("/CN=new", kEnd + absl::Hours(30 * 24));
  EXPECT_FALSE(notices.Look(kEnd).has_value());
  const auto notice = notices.Look(kEnd + absl::Hours(20 * 24));
  ASSERT_TRUE(notice.has_value());
  EXPECT_THAT(notice->text, AllOf(HasSubstr("/CN=new"), HasSubstr("10 days")));
}

}  // namespace
}  // namespace sru::server::transport
