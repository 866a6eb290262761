#include "server/transport/grpc_log.h"

#include <vector>

#include "grpc/support/log.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

// What OpenSSL 3 says; seen at real handshakes.
TEST(GrpcLogTest, HandshakeFailuresByOpenSslsWords) {
  const auto classify = [](const char* reason) {
    return ClassifyHandshakeFailure(std::string("SSL_ERROR_SSL: error:0A000000:SSL routines::") +
                                    reason + ".");
  };
  EXPECT_EQ(classify("peer did not return a certificate"), HandshakeFailure::kNoClientCertificate);
  EXPECT_EQ(classify("certificate verify failed"), HandshakeFailure::kBadClientCertificate);
  EXPECT_EQ(classify("tlsv1 alert unknown ca"), HandshakeFailure::kRefusedByClient);
  EXPECT_EQ(classify("unsupported protocol"), HandshakeFailure::kRefusedByClient);
  EXPECT_EQ(classify("wrong version number"), HandshakeFailure::kNotTls);
  EXPECT_EQ(classify("http request"), HandshakeFailure::kNotTls);
  EXPECT_EQ(classify("something new"), HandshakeFailure::kOther);
}

TEST(GrpcLogTest, HandshakesGoToTheObserver) {
  TakeOverGrpcLog();
  std::vector<HandshakeFailure> seen;
  SetHandshakeObserver(
      [&](HandshakeFailure failure, absl::string_view) { seen.push_back(failure); });
  gpr_log(GPR_ERROR, "Handshake failed with fatal error %s: %s.", "SSL_ERROR_SSL", "http request");
  gpr_log(GPR_ERROR, "something else");
  SetHandshakeObserver(nullptr);
  gpr_log(GPR_ERROR, "Handshake failed with fatal error %s: %s.", "SSL_ERROR_SSL", "http request");
  EXPECT_EQ(seen, std::vector<HandshakeFailure>{HandshakeFailure::kNotTls});
}

}  // namespace
}  // namespace sru::server
