#include "server/transport/grpc_log.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "grpc/support/log.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace sru::server {
namespace {

constexpr absl::string_view kHandshakeFailed = "Handshake failed with fatal error ";

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

void OnLine(gpr_log_func_args* line) {
  absl::string_view text(line->message);
  if (absl::ConsumePrefix(&text, kHandshakeFailed)) {
    Observer& observer = GetObserver();
    MutexLock lock(&observer.mutex);
    if (observer.observer != nullptr) {
      observer.observer(ClassifyHandshakeFailure(text), text);
      return;
    }
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
    // Failed handshakes are errors to gRPC.
    gpr_set_log_verbosity(
        static_cast<gpr_log_severity>(std::min<int>(wanted_severity, GPR_LOG_SEVERITY_ERROR)));
    gpr_set_log_function(OnLine);
  });
}

void SetHandshakeObserver(HandshakeObserver observer) {
  Observer& current = GetObserver();
  MutexLock lock(&current.mutex);
  current.observer = std::move(observer);
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
