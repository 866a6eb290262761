#include "server/transport/security_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::transport {
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
  options.auth_without_tls = true;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--auth_without_tls"));
}

TEST(SecurityOptionsTest, TokensDoNotCrossTheNetworkInTheClear) {
  SecurityOptions options;
  EXPECT_TRUE(CheckListenHost(options, "listen", "0.0.0.0").ok());
  options.auth_tokens_file = "tokens";
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "1270.example.org",
                           "127.evil.example", "localhost.evil.example", "::ffff:10.0.0.1"}) {
    const absl::Status status = CheckListenHost(options, "listen", host);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--auth_tokens_file"), HasSubstr("--tls_cert"),
                      HasSubstr("--listen"), HasSubstr("--auth_without_tls")));
  }
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "localhost"}) {
    EXPECT_TRUE(CheckListenHost(options, "listen", host).ok()) << host;
  }
  options.auth_without_tls = true;
  EXPECT_TRUE(CheckListenHost(options, "listen", "0.0.0.0").ok());
  options.auth_without_tls = false;
  options.tls_cert = "cert.pem";
  options.tls_key = "key.pem";
  EXPECT_TRUE(CheckListenHost(options, "listen", "0.0.0.0").ok());
}

TEST(SecurityOptionsTest, TheAdminPortIsNotOpenByAccident) {
  const auto error_of = [](const SecurityOptions& options, const std::string& host) {
    const absl::Status status = CheckAdminListenHost(options, host);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << host;
    return std::string(status.message());
  };
  SecurityOptions options;
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    EXPECT_TRUE(CheckAdminListenHost(options, host).ok()) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example"}) {
    EXPECT_THAT(
        error_of(options, host),
        AllOf(HasSubstr("--admin_listen: "), HasSubstr(host), HasSubstr("--admin_tokens_file"),
              HasSubstr("--auth_tokens_file"), HasSubstr("--tls_client_ca")));
  }
  // TLS alone keeps nobody out.
  options.tls_cert = "cert.pem";
  options.tls_key = "key.pem";
  EXPECT_THAT(error_of(options, "0.0.0.0"), HasSubstr("--admin_listen"));
  options.tls_client_ca = "ca.pem";
  EXPECT_TRUE(CheckAdminListenHost(options, "0.0.0.0").ok());
  // Tokens, which must not cross the network in the clear either.
  options = SecurityOptions();
  options.admin_tokens_file = "tokens";
  EXPECT_TRUE(CheckAdminListenHost(options, "127.0.0.1").ok());
  EXPECT_THAT(error_of(options, "0.0.0.0"),
              AllOf(HasSubstr("--admin_tokens_file: "), HasSubstr("in the clear"),
                    HasSubstr("--admin_listen on 127.0.0.1"), HasSubstr("--auth_without_tls")));
  options.auth_without_tls = true;
  EXPECT_TRUE(ValidateSecurityOptions(options).ok());
  EXPECT_TRUE(CheckAdminListenHost(options, "0.0.0.0").ok());
  options = SecurityOptions();
  options.auth_tokens_file = "tokens";
  EXPECT_THAT(error_of(options, "0.0.0.0"), HasSubstr("--auth_tokens_file: "));
  // Its flags without it.
  options = SecurityOptions();
  EXPECT_TRUE(CheckAdminListenHost(options, std::nullopt).ok());
  options.admin_tokens_file = "tokens";
  EXPECT_THAT(std::string(CheckAdminListenHost(options, std::nullopt).message()),
              AllOf(HasSubstr("--admin_listen: expected"), HasSubstr("--admin_tokens_file")));
}

TEST(SecurityOptionsTest, NothingIsOnByDefault) {
  const SecurityOptions options;
  EXPECT_FALSE(options.has_tls());
  EXPECT_FALSE(options.has_tokens());
  EXPECT_FALSE(options.has_admin_tokens());
}

}  // namespace
}  // namespace sru::server::transport
