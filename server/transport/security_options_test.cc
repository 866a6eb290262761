#include "server/transport/security_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const SecurityOptions& options) {
  const absl::Status status = ValidateSecurityOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(SecurityOptionsTest, FilesThatBelongTogetherAreAskedFor) {
  SecurityOptions options;
  EXPECT_TRUE(ValidateSecurityOptions(options).ok());
  options.tls_cert = "cert.pem";
  EXPECT_THAT(ErrorOf(options), HasSubstr("--tls_key"));
  options.tls_key = "key.pem";
  EXPECT_TRUE(ValidateSecurityOptions(options).ok());
  options.tls_cert.clear();
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--tls_cert"), HasSubstr("--tls_key")));
  options.tls_key.clear();
  options.tls_client_ca = "ca.pem";
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--tls_cert"), HasSubstr("--tls_client_ca")));
  options = SecurityOptions();
  options.auth_health = true;
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--auth_tokens_file"), HasSubstr("--auth_health")));
  options = SecurityOptions();
  options.poll_interval = absl::ZeroDuration();
  EXPECT_THAT(ErrorOf(options), HasSubstr("--credentials_poll_interval_s"));
  options = SecurityOptions();
  options.auth_without_tls = true;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--auth_without_tls"));
}

TEST(SecurityOptionsTest, TokensDoNotCrossTheNetworkInTheClear) {
  SecurityOptions options;
  EXPECT_TRUE(CheckListenHost(options, "listen", "0.0.0.0").ok());
  options.auth_tokens_file = "tokens";
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "1270.example.org"}) {
    const absl::Status status = CheckListenHost(options, "listen", host);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--auth_tokens_file"), HasSubstr("--tls_cert"),
                      HasSubstr("--listen"), HasSubstr("--auth_without_tls")));
  }
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(CheckListenHost(options, "listen", host).ok()) << host;
  }
  options.auth_without_tls = true;
  EXPECT_TRUE(CheckListenHost(options, "listen", "0.0.0.0").ok());
  options.auth_without_tls = false;
  options.tls_cert = "cert.pem";
  options.tls_key = "key.pem";
  EXPECT_TRUE(CheckListenHost(options, "listen", "0.0.0.0").ok());
}

TEST(ConnectionLimitsTest, ErrorsNameTheFlag) {
  const auto error_of = [](const ConnectionLimits& limits) {
    const absl::Status status = ValidateConnectionLimits(limits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(ValidateConnectionLimits({}).ok());
  ConnectionLimits limits;
  limits.max_connections = -1;
  EXPECT_THAT(error_of(limits), HasSubstr("--max_connections"));
  limits = ConnectionLimits();
  limits.max_metadata_bytes = 10;
  EXPECT_THAT(error_of(limits), HasSubstr("--max_metadata_bytes"));
  limits = ConnectionLimits();
  limits.max_age = absl::Seconds(-1);
  EXPECT_THAT(error_of(limits), HasSubstr("--max_connection_age_s"));
  limits = ConnectionLimits();
  limits.max_age_grace = absl::InfiniteDuration();
  EXPECT_THAT(error_of(limits), HasSubstr("--max_connection_age_grace_s"));
  limits = ConnectionLimits();
  limits.max_idle = absl::Seconds(-1);
  EXPECT_THAT(error_of(limits), HasSubstr("--max_connection_idle_s"));
  limits = ConnectionLimits();
  limits.min_ping_interval = absl::Seconds(-1);
  EXPECT_THAT(error_of(limits), HasSubstr("--min_ping_interval_s"));
}

TEST(SecurityOptionsTest, FlagsAndStructsHaveTheSameDefaults) {
  const auto security = SecurityOptionsFromFlags();
  ASSERT_TRUE(security.ok());
  EXPECT_FALSE(security->has_tls());
  EXPECT_FALSE(security->has_tokens());
  EXPECT_EQ(security->poll_interval, SecurityOptions().poll_interval);
  const auto limits = ConnectionLimitsFromFlags();
  ASSERT_TRUE(limits.ok());
  const ConnectionLimits defaults;
  EXPECT_EQ(limits->max_connections, defaults.max_connections);
  EXPECT_EQ(limits->max_metadata_bytes, defaults.max_metadata_bytes);
  EXPECT_EQ(limits->max_age, defaults.max_age);
  EXPECT_EQ(limits->max_age_grace, defaults.max_age_grace);
  EXPECT_EQ(limits->max_idle, defaults.max_idle);
  EXPECT_EQ(limits->min_ping_interval, defaults.min_ping_interval);
}

}  // namespace
}  // namespace sru::server
