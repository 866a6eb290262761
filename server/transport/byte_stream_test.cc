#include "server/transport/byte_stream.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"

namespace sru::server::transport {
namespace {

// The first message of a client's handshake, a byte a record.
std::string HelloInCrumbs() {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  SSL_connect(ssl.get());
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(out, &data));
  std::string crumbs;
  for (size_t i = 5; i < size; ++i) crumbs += std::string("\x16\x03\x01\0\x01", 5) + data[i];
  return crumbs;
}

// Others come first, whatever the socket holds.
TEST(ByteStreamTest, OneCallOfTlsReadsAPartOfWhatTheSocketHolds) {
  const sru::testing::Certificate own({"localhost"});
  const auto made = CheckTlsCertificates({own.pem(), own.key_pem(), ""}, absl::Now());
  ASSERT_TRUE(made.ok()) << made.status();
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const std::string crumbs = HelloInCrumbs();
  ASSERT_GT(crumbs.size(), 100 * 6U);
  ASSERT_EQ(write(ends[0], crumbs.data(), crumbs.size()), static_cast<ssize_t>(crumbs.size()));
  const auto stream = MakeTlsStream(ends[1], made->context.get(), AlpnOffer::kHttp2);
  int left = static_cast<int>(crumbs.size());
  while (left > 0) {
    ASSERT_EQ(stream->Handshake(), ByteStream::Outcome::kWantsRead);
    const int before = left;
    ASSERT_EQ(ioctl(ends[1], FIONREAD, &left), 0);
    ASSERT_LT(left, before);
    ASSERT_LE(before - left, 20 * 6);
  }
  char byte = 0;
  EXPECT_EQ(recv(ends[0], &byte, 1, 0), 1) << "the server has answered";
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace sru::server::transport
