#include "server/transport/grpc_log.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "grpc/support/log.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace sru::server {
namespace {

constexpr absl::string_view kHandshakeFailed = "Handshake failed with fatal error ";
// What gRPC says, to whoever debugs it, of a connection that ended before its handshake.
constexpr absl::string_view kHandshakeEnded =
    "Security handshake failed: UNKNOWN:Handshake read failed ";
constexpr absl::string_view kSocketClosed = "Socket closed";
constexpr absl::string_view kEndedDetail =
    "the client closed the connection, as gRPC's clients do when they do not trust the certificate";

struct Observer {
  Mutex mutex;
  HandshakeObserver observer ABSL_GUARDED_BY(mutex);
};

Observer& GetObserver() {
  static auto* const observer = new Observer;
  return *observer;
}

// The least severe line of gRPC's that people want to see; beyond GPR_LOG_SEVERITY_ERROR none.
int wanted_severity = GPR_LOG_SEVERITY_ERROR;

// False when there is no observer.
bool Observe(const FailedHandshake& failed) {
  Observer& observer = GetObserver();
  MutexLock lock(&observer.mutex);
  if (observer.observer == nullptr) return false;
  observer.observer(failed);
  return true;
}

// Whether the client of this connection has sent anything. A FIN counts as a byte to Linux.
bool HasSent(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received))
    return true;
  return info.tcpi_bytes_received > 1;
}

void OnLine(gpr_log_func_args* line) {
  absl::string_view text(line->message);
  if (absl::ConsumePrefix(&text, kHandshakeFailed) &&
      Observe({ClassifyHandshakeFailure(text), text, {}})) {
    return;
  }
  if (const auto ended = ParseEndedHandshake(line->message);
      ended.has_value() && HasSent(ended->fd)) {
    Observe({HandshakeFailure::kClosedByClient, kEndedDetail, ended->peer});
  }
  if (line->severity < wanted_severity) return;
  Log(line->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kError : LogLevel::kInfo,
      absl::StrCat("gRPC: ", line->message));
}

}  // namespace

void TakeOverGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* verbosity = std::getenv("GRPC_VERBOSITY");
    const std::string word = absl::AsciiStrToLower(verbosity == nullptr ? "error" : verbosity);
    wanted_severity = word == "debug"  ? GPR_LOG_SEVERITY_DEBUG
                      : word == "info" ? GPR_LOG_SEVERITY_INFO
                      : word == "none" ? GPR_LOG_SEVERITY_ERROR + 1
                                       : GPR_LOG_SEVERITY_ERROR;
    // Most failed handshakes are errors to gRPC.
    gpr_set_log_verbosity(
        static_cast<gpr_log_severity>(std::min<int>(wanted_severity, GPR_LOG_SEVERITY_ERROR)));
    gpr_set_log_function(OnLine);
  });
}

void SetHandshakeObserver(HandshakeObserver observer) {
  Observer& current = GetObserver();
  MutexLock lock(&current.mutex);
  // Those that the client ends are worth a line for debugging only.
  if (observer != nullptr) gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  current.observer = std::move(observer);
}

std::optional<EndedHandshake> ParseEndedHandshake(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, kHandshakeEnded) || !absl::StrContains(line, kSocketClosed)) {
    return std::nullopt;
  }
  // {target_address:"ipv4:10.0.0.1:4711", grpc_status:14, fd:10}, in any order.
  const auto after = [line](absl::string_view key, absl::string_view end) {
    const size_t begin = line.find(key);
    if (begin == absl::string_view::npos) return absl::string_view();
    const absl::string_view rest = line.substr(begin + key.size());
    return rest.substr(0, rest.find_first_of(end));
  };
  EndedHandshake ended;
  ended.peer = after("target_address:\"", "\"");
  for (const absl::string_view key : {"{fd:", " fd:"}) {
    if (absl::SimpleAtoi(after(key, ",}"), &ended.fd)) return ended;
  }
  ended.fd = -1;
  return ended;
}

HandshakeFailure ClassifyHandshakeFailure(absl::string_view detail) {
  if (absl::StrContains(detail, "peer did not return a certificate")) {
    return HandshakeFailure::kNoClientCertificate;
  }
  if (absl::StrContains(detail, "certificate verify failed")) {
    return HandshakeFailure::kBadClientCertificate;
  }
  if (absl::StrContains(detail, "alert") || absl::StrContains(detail, "unsupported protocol") ||
      absl::StrContains(detail, "no shared cipher")) {
    return HandshakeFailure::kRefusedByClient;
  }
  if (absl::StrContains(detail, "http request") ||
      absl::StrContains(detail, "wrong version number") ||
      absl::StrContains(detail, "packet length too long") ||
      absl::StrContains(detail, "https proxy request")) {
    return HandshakeFailure::kNotTls;
  }
  return HandshakeFailure::kOther;
}

}  // namespace sru::server
