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
#include "base/mutex.h"
#include "server/base/log.h"
#include "server/compat/grpc_version.h"

#if SRU_GRPC_IS_CURRENT
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "grpc/grpc.h"
#include "server/compat/protobuf_compat.h"
#else
#include "grpc/support/log.h"
#endif

namespace sru::server::transport {
namespace {

constexpr absl::string_view kHandshakeFailed = "Handshake failed with ";
// What gRPC says, to whoever debugs it, of a connection that ended before its handshake.
constexpr absl::string_view kHandshakeEnded =
    "Security handshake failed: UNKNOWN:Handshake read failed ";
constexpr absl::string_view kSocketClosed = "Socket closed";
// What a current gRPC says, when it traces handshakes, of a step that failed so.
constexpr absl::string_view kHandshakeStepFailed =
    "CallNextHandshakerLocked: error=UNAVAILABLE: Handshake read failed (Socket closed)";
constexpr absl::string_view kPeerOfStep = "endpoint_peer_address=";
constexpr absl::string_view kEndedDetail =
    "the client closed the connection, as gRPC's clients do when they do not trust the certificate";

struct Observer {
  Mutex mutex;
  HandshakeObserver observer ABSL_GUARDED_BY(mutex);
  ConnectionFinder find_connection ABSL_GUARDED_BY(mutex);
};

Observer& GetObserver() {
  static auto* const observer = new Observer;
  return *observer;
}

// False when there is no observer.
bool Observe(const FailedHandshake& failed) {
  Observer& observer = GetObserver();
  MutexLock lock(&observer.mutex);
  if (observer.observer == nullptr) return false;
  observer.observer(failed);
  return true;
}

#if SRU_GRPC_IS_CURRENT
bool HasObserver() {
  Observer& observer = GetObserver();
  MutexLock lock(&observer.mutex);
  return observer.observer != nullptr;
}
#endif

// What stands between `key` and one of the characters of `end`; empty without the key.
absl::string_view ValueAfter(absl::string_view line, absl::string_view key, absl::string_view end) {
  const size_t begin = line.find(key);
  if (begin == absl::string_view::npos) return {};
  const absl::string_view rest = line.substr(begin + key.size());
  return rest.substr(0, rest.find_first_of(end));
}

// The socket of a connection; -1 if it is not known.
int SocketOf(const EndedHandshake& ended) {
  if (ended.fd >= 0) return ended.fd;
  Observer& observer = GetObserver();
  MutexLock lock(&observer.mutex);
  return observer.find_connection == nullptr ? -1
                                             : observer.find_connection(std::string(ended.peer));
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

#if SRU_GRPC_IS_CURRENT
constexpr absl::string_view kHandshakeStep = "CallNextHandshakerLocked: error=";
constexpr absl::string_view kHandshakeStepOk = "CallNextHandshakerLocked: error=OK ";

// OpenSSL's words of a handshake that has failed on this thread. The step that ends with it, which
// names the peer, gets the next line.
thread_local std::string failure_on_this_thread;

bool ObserveFailure(absl::string_view detail) {
  if (!HasObserver()) return false;
  if (!failure_on_this_thread.empty()) {
    const std::string& earlier = failure_on_this_thread;
    Observe({ClassifyHandshakeFailure(earlier), earlier, {}});
  }
  failure_on_this_thread = std::string(detail);
  return true;
}

bool ObserveStep(absl::string_view line) {
  if (failure_on_this_thread.empty() || !absl::StartsWith(line, kHandshakeStep) ||
      absl::StartsWith(line, kHandshakeStepOk)) {
    return false;
  }
  const std::string detail = std::move(failure_on_this_thread);
  failure_on_this_thread.clear();
  return Observe({ClassifyHandshakeFailure(detail), detail, ValueAfter(line, kPeerOfStep, ",}")});
}
#else
bool ObserveFailure(absl::string_view detail) {
  return Observe({ClassifyHandshakeFailure(detail), detail, {}});
}

bool ObserveStep(absl::string_view /*line*/) { return false; }
#endif

// True when the line was about a failed handshake and somebody wanted to know of it.
bool ObserveHandshake(absl::string_view line) {
  if (ObserveStep(line)) return true;
  if (const auto ended = ParseEndedHandshake(line); ended.has_value()) {
    return HasSent(SocketOf(*ended)) &&
           Observe({HandshakeFailure::kClosedByClient, kEndedDetail, ended->peer});
  }
  if (!absl::ConsumePrefix(&line, kHandshakeFailed)) return false;
  absl::ConsumePrefix(&line, "fatal ");  // in gRPC 1.51
  return absl::ConsumePrefix(&line, "error ") && ObserveFailure(line);
}

// What people want to see of gRPC's lines, as gRPC itself reads its variable.
enum class Wanted { kNothing, kErrors, kInfo, kDebug };

Wanted WantedLines() {
  const char* verbosity = std::getenv("GRPC_VERBOSITY");
  const std::string word = absl::AsciiStrToLower(verbosity == nullptr ? "error" : verbosity);
  return word == "debug"  ? Wanted::kDebug
         : word == "info" ? Wanted::kInfo
         : word == "none" ? Wanted::kNothing
                          : Wanted::kErrors;
}

#if SRU_GRPC_IS_CURRENT

// gRPC logs through Abseil, as protobuf does.
class Sink final : public absl::LogSink {
 public:
  explicit Sink(Wanted wanted) : wanted_(wanted) {}

  void Send(const absl::LogEntry& entry) override {
    const absl::LogSeverity severity = entry.log_severity();
    if (severity == absl::LogSeverity::kFatal) return;  // Abseil writes it itself, at once
    if (absl::StrContains(entry.source_filename(), "google/protobuf/")) return;
    if (ObserveHandshake(entry.text_message())) return;
    if (wanted_ == Wanted::kNothing) return;
    if (wanted_ == Wanted::kErrors && severity < absl::LogSeverity::kError) return;
    if (wanted_ == Wanted::kInfo && entry.source_basename() == "handshaker.cc") return;
    Log(severity == absl::LogSeverity::kError     ? LogLevel::kError
        : severity == absl::LogSeverity::kWarning ? LogLevel::kWarning
                                                  : LogLevel::kInfo,
        absl::StrCat("gRPC: ", entry.text_message()));
  }

 private:
  const Wanted wanted_;
};

// Also the lines that tell of connections that ended before their handshake. They are about a
// dozen a connection.
void WantEndedHandshakes() { grpc_tracer_set_enabled("handshaker", 1); }

void TakeOver() {
  const Wanted wanted = WantedLines();
  SilenceProtobufLog();  // and all else that Abseil would write by itself
  // Once started, gRPC leaves the least severity alone, which it sets by its variable. Failed
  // handshakes are no errors to it.
  grpc_init();
  absl::SetMinLogLevel(absl::LogSeverityAtLeast::kInfo);
  absl::AddLogSink(new Sink(wanted));
}

#else  // an older gRPC, with a log of its own

// The least severe line that is wanted; beyond GPR_LOG_SEVERITY_ERROR none. Constant once OnLine()
// may be called.
int wanted_severity = GPR_LOG_SEVERITY_ERROR;

// Also the lines that tell of connections that ended before their handshake.
void WantEndedHandshakes() { gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG); }

void OnLine(gpr_log_func_args* line) {
  if (ObserveHandshake(line->message) || line->severity < wanted_severity) return;
  Log(line->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kError : LogLevel::kInfo,
      absl::StrCat("gRPC: ", line->message));
}

void TakeOver() {
  const Wanted wanted = WantedLines();
  wanted_severity = wanted == Wanted::kDebug     ? GPR_LOG_SEVERITY_DEBUG
                    : wanted == Wanted::kInfo    ? GPR_LOG_SEVERITY_INFO
                    : wanted == Wanted::kNothing ? GPR_LOG_SEVERITY_ERROR + 1
                                                 : GPR_LOG_SEVERITY_ERROR;
  // Failed handshakes are errors to gRPC.
  gpr_set_log_verbosity(
      static_cast<gpr_log_severity>(std::min<int>(wanted_severity, GPR_LOG_SEVERITY_ERROR)));
  gpr_set_log_function(OnLine);
}

#endif  // SRU_GRPC_IS_CURRENT

}  // namespace

void TakeOverGrpcLog() {
  static std::once_flag once;
  std::call_once(once, TakeOver);
}

void SetHandshakeObserver(HandshakeObserver observer, ConnectionFinder find_connection) {
  Observer& current = GetObserver();
  MutexLock lock(&current.mutex);
  // Those that the client ends are worth a line for debugging only.
  if (observer != nullptr) WantEndedHandshakes();
  current.observer = std::move(observer);
  current.find_connection = std::move(find_connection);
}

std::optional<EndedHandshake> ParseEndedHandshake(absl::string_view line) {
  const bool is_step = absl::ConsumePrefix(&line, kHandshakeStepFailed);
  if (!is_step &&
      (!absl::ConsumePrefix(&line, kHandshakeEnded) || !absl::StrContains(line, kSocketClosed))) {
    return std::nullopt;
  }
  // {target_address:"ipv4:10.0.0.1:4711", grpc_status:14, fd:10}, in any order.
  EndedHandshake ended;
  if (is_step) {
    ended.peer = ValueAfter(line, kPeerOfStep, ",}");
    return ended;
  }
  ended.peer = ValueAfter(line, "target_address:\"", "\"");
  for (const absl::string_view key : {"{fd:", " fd:"}) {
    if (absl::SimpleAtoi(ValueAfter(line, key, ",}"), &ended.fd)) return ended;
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

}  // namespace sru::server::transport
