#include "server/transport/grpc_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/compat/grpc_version.h"
#include "tests/testing/tcp_pair.h"

#if SRU_GRPC_IS_CURRENT
#include "absl/log/log.h"
#else
#include "grpc/support/log.h"
#endif

namespace sru::server::transport {
namespace {

using ::sru::testing::TcpPair;

// As gRPC writes its lines.
void GrpcLogs(const std::string& line) {
#if SRU_GRPC_IS_CURRENT
  LOG(INFO) << line;
#else
  gpr_log(GPR_ERROR, "%s", line.c_str());
#endif
}

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
  std::vector<std::string> seen;
  SetHandshakeObserver([&](const FailedHandshake& failed) {
    EXPECT_EQ(failed.failure, HandshakeFailure::kNotTls);
    EXPECT_EQ(failed.detail.substr(0, 27), "SSL_ERROR_SSL: http request");
    seen.emplace_back(failed.peer);
  });
#if SRU_GRPC_IS_CURRENT
  // The peer stands in the line of the step that ends with it, on the same thread.
  const std::vector<std::string> lines = {
      "Handshake failed with error SSL_ERROR_SSL: http request",
      "CallNextHandshakerLocked: error=OK shutdown=false index=1, args={endpoint=0x1, "
      "args={grpc.internal.endpoint_peer_address=ipv4:127.0.0.1:1, x=1}}",
      "CallNextHandshakerLocked: error=UNKNOWN: Ssl handshake failed (TSI_PROTOCOL_FAILURE): "
      "SSL_ERROR_SSL: http request\n shutdown=false index=2, args={endpoint=0x1, "
      "args={grpc.internal.endpoint_peer_address=ipv4:127.0.0.1:2, x=1}}",
      "CallNextHandshakerLocked: error=UNKNOWN: Handshaker shutdown"};
  const std::string peer = "ipv4:127.0.0.1:2";
#else
  const std::vector<std::string> lines = {
      "Handshake failed with fatal error SSL_ERROR_SSL: http request."};
  const std::string peer;
#endif
  for (const std::string& line : lines) GrpcLogs(line);
  GrpcLogs("something else");
  SetHandshakeObserver(nullptr);
  for (const std::string& line : lines) GrpcLogs(line);
  EXPECT_EQ(seen, std::vector<std::string>{peer});
}

// Lines of gRPC 1.51; the order of what stands in braces varies.
std::string EndedLine(const std::string& fd, const std::string& peer = "ipv4:127.0.0.1:37650") {
  return "Security handshake failed: UNKNOWN:Handshake read failed {created_time:\"2026\", "
         "file_line:487, children:[INTERNAL:Socket closed {target_address:\"" +
         peer + "\", grpc_status:14" + fd + "}]}";
}

TEST(GrpcLogTest, HandshakesThatEnd) {
  // What is parsed points into the line.
  const std::string with_fd = EndedLine(", fd:10");
  auto ended = ParseEndedHandshake(with_fd);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->peer, "ipv4:127.0.0.1:37650");
  EXPECT_EQ(ended->fd, 10);
  ended = ParseEndedHandshake(
      "Security handshake failed: UNKNOWN:Handshake read failed {file_line:487, "
      "children:[INTERNAL:Socket closed {fd:7, grpc_status:14, "
      "target_address:\"ipv6:%5B::1%5D:4711\"}]}");
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->peer, "ipv6:%5B::1%5D:4711");
  EXPECT_EQ(ended->fd, 7);
  const std::string without_fd = EndedLine("");
  ended = ParseEndedHandshake(without_fd);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->fd, -1);
  // A line of gRPC 1.83.
  ended = ParseEndedHandshake(
      "CallNextHandshakerLocked: error=UNAVAILABLE: Handshake read failed (Socket closed) === "
      "Source Location Trace: === ./src/core/util/status_helper.cc:142  shutdown=false index=2, "
      "args={endpoint=0x7fc5, args={grpc.internal.endpoint_local_address=ipv4:127.0.0.1:44337, "
      "grpc.internal.endpoint_peer_address=ipv6:%5B::1%5D:45590, grpc.max_metadata_size=8192}, "
      "read_buffer.Length()=0, exit_early=0}");
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->peer, "ipv6:%5B::1%5D:45590");
  EXPECT_EQ(ended->fd, -1);
  for (const char* other :
       {"", "CallNextHandshakerLocked: error=OK shutdown=false index=2, args={}",
        "CallNextHandshakerLocked: error=UNAVAILABLE: Handshake read failed (recvmsg)",
        "Handshaking failed: UNKNOWN:Handshake read failed {children:[INTERNAL:Socket closed]}",
        "Security handshake failed: UNKNOWN:Handshake read failed {children:[UNKNOWN:Timeout]}",
        "Security handshake failed: UNKNOWN:Ssl handshake failed: Socket closed"}) {
    EXPECT_FALSE(ParseEndedHandshake(other).has_value()) << other;
  }
}

// A probe that connects and goes is none; who had begun to speak is.
TEST(GrpcLogTest, OnlyClientsThatSpokeEndHandshakes) {
  TakeOverGrpcLog();
  std::vector<std::string> peers;
  int found = -1;
  SetHandshakeObserver(
      [&](const FailedHandshake& failed) {
        EXPECT_EQ(failed.failure, HandshakeFailure::kClosedByClient);
        peers.emplace_back(failed.peer);
      },
      [&](const std::string& peer) { return peer == "found" ? found : -1; });
  for (const std::string& sent : {std::string(), std::string("\x16\x03\x01\x02\x00", 5)}) {
    const TcpPair pair;
    if (!sent.empty()) {
      ASSERT_TRUE(TcpPair::Write(pair.client(), sent));
      EXPECT_EQ(TcpPair::Read(pair.server()), sent);
    }
    shutdown(pair.client(), SHUT_WR);
    EXPECT_EQ(TcpPair::Read(pair.server()), "");  // the end has arrived, as gRPC has seen it
    GrpcLogs(EndedLine(absl::StrCat(", fd:", pair.server()), absl::StrCat("after ", sent.size())));
    found = pair.server();
    GrpcLogs(EndedLine("", "found"));
  }
  SetHandshakeObserver(nullptr);
  EXPECT_EQ(peers, (std::vector<std::string>{"after 5", "found"}));
}

}  // namespace
}  // namespace sru::server::transport
