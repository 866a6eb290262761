#include "server/transport/credentials.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "server/base/log.h"
#include "tests/testing/certificates.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/test_files.h"

namespace sru::server::transport {
namespace {

using ::sru::testing::Certificate;
using ::sru::testing::CertificateOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CredentialsTest : public ::testing::Test {
 protected:
  // Certificates end at whole seconds; half a second of the first day has passed wherever the clock
  // of the machine stands.
  CredentialsTest() { clock_.Set(start_ + absl::Milliseconds(500)); }

  CertificateOptions Named(const std::string& name, absl::Duration left) const {
    CertificateOptions options;
    options.name = name;
    options.until = start_ + left;
    return options;
  }

  void WriteServer(const Certificate& certificate) {
    directory_.Write("cert.pem", certificate.pem());
    directory_.Write("key.pem", certificate.key_pem());
  }
  void WriteAuthority(const std::string& name) {
    CertificateOptions options = Named(name, absl::Hours(24 * 365));
    options.authority = true;
    directory_.Write("ca.pem", Certificate(options).pem());
  }

  // What was logged meanwhile.
  template <typename Action>
  static std::string LogOf(const Action& action) {
    EXPECT_TRUE(FlushLog(absl::Seconds(10)));
    ::testing::internal::CaptureStderr();
    action();
    EXPECT_TRUE(FlushLog(absl::Seconds(10)));
    return ::testing::internal::GetCapturedStderr();
  }

  std::string Start(bool mutual = false) {
    SecurityOptions options;
    options.tls_cert = directory_.path("cert.pem");
    options.tls_key = directory_.path("key.pem");
    if (mutual) options.tls_client_ca = directory_.path("ca.pem");
    options.poll_interval = absl::Hours(1);
    return LogOf([&] {
      auto credentials = Credentials::Create(options, &callers_, &metrics_, &access_log_, &clock_,
                                             [this] { ++changes_; });
      ASSERT_TRUE(credentials.ok()) << credentials.status();
      credentials_ = *std::move(credentials);
    });
  }
  // The second look takes up what the first one has seen.
  std::string Poll() {
    return LogOf([&] {
      credentials_->Poll();
      credentials_->Poll();
    });
  }

  models::TempDirectory directory_;
  const absl::Time start_ = absl::FromTimeT(absl::ToTimeT(absl::Now()));
  FakeClock clock_;
  prometheus::Registry registry_;
  SecurityMetrics metrics_{&registry_};
  telemetry::AccessLog access_log_{{}, &clock_};
  callers::Callers callers_{{}, &clock_};
  int changes_ = 0;
  std::unique_ptr<Credentials> credentials_;
};

TEST_F(CredentialsTest, SaysThatTheCertificateExpires) {
  WriteServer(Certificate(Named("server", absl::Hours(24 * 30))));
  EXPECT_THAT(Start(), AllOf(HasSubstr("/CN=server"), Not(HasSubstr("expires in"))));
  EXPECT_THAT(Poll(), IsEmpty());
  clock_.Advance(absl::Hours(24 * 17));
  EXPECT_THAT(Poll(), AllOf(HasSubstr("WARN"), HasSubstr("/CN=server expires in 1")));
  EXPECT_THAT(Poll(), IsEmpty());
  clock_.Advance(absl::Hours(24 * 12 + 1));
  EXPECT_THAT(Poll(), AllOf(HasSubstr("WARN"), HasSubstr("expires in 2")));
  clock_.Advance(absl::Hours(24));
  EXPECT_THAT(Poll(), AllOf(HasSubstr("ERROR"), HasSubstr("/CN=server has expired at")));
  EXPECT_THAT(Poll(), IsEmpty());
}

TEST_F(CredentialsTest, SaysAtTheStartThatItExpiresSoon) {
  WriteServer(Certificate(Named("server", absl::Minutes(50))));
  EXPECT_THAT(Start(), AllOf(HasSubstr("/CN=server expires in 49 minutes"), HasSubstr("WARN")));
  // Of a new one that ends as soon, too.
  WriteServer(Certificate(Named("next", absl::Hours(24 * 3))));
  EXPECT_THAT(Poll(), AllOf(HasSubstr("new certificate of /CN=next"),
                            HasSubstr("/CN=next expires in 2 days")));
}

TEST_F(CredentialsTest, SaysWhatChanged) {
  const Certificate first(Named("first", absl::Hours(24 * 90)));
  const Certificate second(Named("second", absl::Hours(24 * 90)));
  WriteServer(first);
  WriteAuthority("ours");
  EXPECT_THAT(Start(/*mutual=*/true),
              AllOf(HasSubstr("certificate of /CN=first"), HasSubstr("of /CN=ours")));
  WriteAuthority("theirs");
  EXPECT_THAT(Poll(), AllOf(HasSubstr("TLS: new authorities of clients: /CN=theirs"),
                            Not(HasSubstr("certificate of"))));
  WriteServer(second);
  EXPECT_THAT(Poll(), AllOf(HasSubstr("TLS: new certificate of /CN=second, valid until"),
                            Not(HasSubstr("authorities"))));
  WriteServer(first);
  WriteAuthority("ours");
  EXPECT_THAT(Poll(), HasSubstr("TLS: new certificate of /CN=first"));
  // The same key, written another way.
  directory_.Write("key.pem", "# the key\n" + first.key_pem());
  EXPECT_THAT(Poll(), AllOf(HasSubstr("TLS: the key of /CN=first was written anew"),
                            Not(HasSubstr("new certificate"))));
  // What is bad, and then as it was.
  directory_.Write("cert.pem", second.pem());
  EXPECT_EQ(changes_, 4);
  EXPECT_THAT(Poll(), HasSubstr("earlier ones stay in use"));
  EXPECT_EQ(changes_, 4) << "nobody is shown out";
  directory_.Write("cert.pem", first.pem());
  EXPECT_THAT(Poll(), HasSubstr("TLS: the files are again those in use"));
}

}  // namespace
}  // namespace sru::server::transport
