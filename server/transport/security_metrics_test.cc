#include "server/transport/security_metrics.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

TEST(SecurityMetricsTest, HandshakeFailuresByOpenSslsWords) {
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

}  // namespace
}  // namespace sru::server::transport
