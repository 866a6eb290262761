#include "server/transport/tls_certificates.h"

#include <openssl/evp.h>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"

namespace sru::server::transport {
namespace {

using ::sru::testing::Certificate;
using ::sru::testing::CertificateOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

CertificateOptions Named(const std::string& name, int rsa_bits = 0, bool authority = false) {
  CertificateOptions options;
  options.name = name;
  options.rsa_bits = rsa_bits;
  options.authority = authority;
  return options;
}

TlsPem Files(const Certificate& server, const std::string& client_ca = "") {
  return {server.pem(), server.key_pem(), client_ca};
}

absl::Status StatusOf(TlsPem pem, absl::Time now = absl::Now()) {
  return CheckTlsCertificates(std::move(pem), now).status();
}

std::string ErrorOf(TlsPem pem, absl::Time now = absl::Now()) {
  const absl::Status status = StatusOf(std::move(pem), now);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TlsCertificatesTest, KeysThatOpenSslTakesAreTaken) {
  const Certificate authority(Named("ca", 2048, true));
  for (const int bits : {0, 2048}) {
    const Certificate server(Named("server", bits), &authority);
    TlsPem files = Files(server, authority.pem());
    files.certificate += authority.pem();
    const absl::StatusOr<TlsCertificates> checked = CheckTlsCertificates(files, absl::Now());
    ASSERT_TRUE(checked.ok()) << bits << ": " << checked.status();
    EXPECT_EQ(checked->subject, "/CN=server");
  }
}

// The security level that distributions set takes no RSA key under 2048 bits. gRPC learns of it at
// each handshake and lets the connection hang.
TEST(TlsCertificatesTest, AKeyUnderTheSecurityLevelIsRefused) {
  EXPECT_THAT(ErrorOf(Files(Certificate(Named("weak", 1024)))),
              AllOf(HasSubstr("--tls_cert: "), HasSubstr("security level"), HasSubstr("/CN=weak"),
                    HasSubstr("RSA, 1024 bits"), HasSubstr("key too small")));
}

// A handshake would fail of it, for each client.
TEST(TlsCertificatesTest, AWeakKeyFurtherUpTheChainIsRefused) {
  const Certificate authority(Named("weak ca", 1024, true));
  const Certificate server(Named("server"), &authority);
  TlsPem files = Files(server);
  EXPECT_TRUE(StatusOf(files).ok());
  files.certificate += authority.pem();
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("--tls_cert: "), HasSubstr("security level"),
                                    HasSubstr("key too small")));
}

TEST(TlsCertificatesTest, AnAuthorityThatNoClientCouldUseIsRefused) {
  const Certificate server(Named("server"));
  const Certificate weak(Named("weak ca", 1024, true));
  EXPECT_THAT(ErrorOf(Files(server, weak.pem())),
              AllOf(HasSubstr("--tls_client_ca: "), HasSubstr("/CN=weak ca"),
                    HasSubstr("RSA, 1024 bits"), HasSubstr("security level")));
  CertificateOptions past = Named("old ca", 0, true);
  past.until = absl::Now() - absl::Minutes(1);
  const Certificate old(past);
  EXPECT_THAT(ErrorOf(Files(server, old.pem())),
              AllOf(HasSubstr("--tls_client_ca: "), HasSubstr("/CN=old ca that expired at")));
  // Beside one that can be used they do no harm.
  const Certificate good(Named("ca", 0, true));
  for (const std::string& bundle :
       {weak.pem() + old.pem() + good.pem(), good.pem() + weak.pem() + old.pem()}) {
    EXPECT_TRUE(StatusOf(Files(server, bundle)).ok()) << StatusOf(Files(server, bundle));
  }
}

TEST(TlsCertificatesTest, TheFirstOfTheChainToExpireCounts) {
  CertificateOptions authority_options = Named("ca", 0, true);
  authority_options.until = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 3600);
  const Certificate authority(authority_options);
  const Certificate server(Named("server"), &authority);
  TlsPem files = Files(server);
  files.certificate += authority.pem();
  const absl::StatusOr<TlsCertificates> checked = CheckTlsCertificates(files, absl::Now());
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->not_after, authority_options.until);
  EXPECT_THAT(ErrorOf(files, authority_options.until + absl::Seconds(1)),
              AllOf(HasSubstr("/CN=ca"), HasSubstr("expired at")));
}

TEST(TlsCertificatesTest, AnotherKeyIsRefused) {
  const Certificate server(Named("server"));
  TlsPem files = Files(server);
  files.key = Certificate(Named("other")).key_pem();
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("--tls_key"), HasSubstr("another key")));
}

// As where the configuration names a FIPS module that is not there.
TEST(TlsCertificatesTest, TheOwnerIsTheWholeSubject) {
  CertificateOptions options = Named("web");
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "web");
  EXPECT_EQ(OwnerOf(Certificate(Named("web,O=Ours")).pem()), "CN=web\\,O=Ours");
  EXPECT_EQ(OwnerOf(Certificate(Named("web, the first")).pem()), "web, the first");
  options.organization = "Ours, Ltd";
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "CN=web,O=Ours\\, Ltd");
  options.organization = "Theirs";
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "CN=web,O=Theirs");
  options.name.clear();
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "O=Theirs");
}

// Who is named is told by characters, whatever bytes stand for them.
TEST(TlsCertificatesTest, ANameIsItsCharacters) {
  const auto owner = [](const std::string& bytes, int encoding) {
    CertificateOptions options = Named(bytes);
    options.encoding = encoding;
    return OwnerOf(Certificate(options).pem());
  };
  EXPECT_EQ(owner("search", V_ASN1_UTF8STRING), "search");
  EXPECT_EQ(owner("search", V_ASN1_PRINTABLESTRING), "search");
  EXPECT_EQ(owner("search", V_ASN1_BMPSTRING), "\xe7\x8d\xa5\xe6\x85\xb2\xe6\x8d\xa8");
  EXPECT_EQ(owner(std::string("\0w\0e\0b", 6), V_ASN1_BMPSTRING), "web");
  EXPECT_EQ(owner(std::string("\0\0\0w\0\0\0e\0\0\0b", 12), V_ASN1_UNIVERSALSTRING), "web");
  EXPECT_EQ(owner("M\xfcller", V_ASN1_T61STRING), "M\xc3\xbcller");
  EXPECT_EQ(owner("M\xc3\xbcller", V_ASN1_UTF8STRING), "M\xc3\xbcller");
  // None of these is another's name.
  for (const std::string& bytes : {std::string("web\0", 4), std::string("web\0x", 5),
                                   std::string("we\nb"), std::string("web\x7f")}) {
    const std::string found = owner(bytes, V_ASN1_UTF8STRING);
    EXPECT_TRUE(found.empty() || found.rfind("CN=web\\", 0) == 0 || found == "CN=we\\0Ab") << found;
    EXPECT_NE(owner(std::string("\0w\0e\0b\0\0", 8), V_ASN1_BMPSTRING), "web");
  }
  EXPECT_NE(owner("web\xff", V_ASN1_UTF8STRING), "web");
}

TEST(TlsCertificatesTest, WithoutASubjectTheOwnerIsAnAlternativeName) {
  CertificateOptions options;
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "DNS=localhost");
  options.alternative_names = "IP:127.0.0.1,URI:spiffe://ours/web";
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "URI=spiffe://ours/web");
  options.alternative_names = "IP:127.0.0.1";
  EXPECT_EQ(OwnerOf(Certificate(options).pem()), "");
  EXPECT_EQ(OwnerOf("no certificate"), "");
}

TEST(TlsCertificatesTest, AnOpenSslWithoutAlgorithmsIsNamed) {
  const TlsPem files = Files(Certificate(Named("server")));
  ASSERT_EQ(EVP_set_default_properties(nullptr, "provider=none"), 1);
  const absl::Status status = StatusOf(files);
  ASSERT_EQ(EVP_set_default_properties(nullptr, ""), 1);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--tls_cert: "), HasSubstr("OpenSSL cannot do TLS here"),
                    HasSubstr("OPENSSL_CONF")));
  EXPECT_TRUE(StatusOf(files).ok());
}

}  // namespace
}  // namespace sru::server::transport
