// The access log: a line per call, or per call that failed, and the request id that goes with it.
//
// Request ids. A call's x-request-id goes back with the answer and stands in the call's line; one
// that is not valid (request_id.h) is replaced by a new one. A call without any gets a new one
// where something refers to it: when it fails or is logged. It goes back as initial metadata, with
// an error as trailing metadata: a client takes an error that comes with initial metadata for one
// that must not be retried.
//
// Privacy. A line holds no part of what is to be classified or encoded: of an INVALID_ARGUMENT it
// names the field only. `content` adds the request.
//
// Cost. A call that gives no id and is not logged costs the reading of its metadata. Lines are
// limited to so many per second; the next line that passes says how many were left out.
//
// Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_ACCESS_LOG_H_
#define SRU_SERVER_TELEMETRY_ACCESS_LOG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/rate_limit.h"
#include "server/telemetry/call_times.h"

namespace sru::server {

enum class LogRequests { kNone, kErrors, kAll };

struct AccessLogOptions {
  LogRequests requests = LogRequests::kErrors;
  int max_lines_per_second = 100;  // 0 = no limit
  bool content = false;
};

// What is known of a call when it is answered. Only `method` and `status` are always known.
struct CallRecord {
  absl::string_view method;
  const absl::Status* status = nullptr;
  absl::string_view model;
  int64_t version = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  std::optional<CallTimes> times;
  const google::protobuf::Message* request = nullptr;
};

// What a call says of itself, for a line that is written where there is no grpc::ServerContext.
struct CallHeaders {
  absl::string_view request_id;
  absl::string_view traceparent;
  absl::string_view authorization;
  absl::string_view user_agent;
};

class AccessLog {
 public:
  AccessLog(const AccessLogOptions& options, const Clock* clock)
      : options_(options), clock_(*clock), limit_(options.max_lines_per_second) {}
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Gives the name of the caller, by the header authorization; empty when there is none. Set it
  // before the first call.
  void set_caller_names(std::function<std::string(absl::string_view)> caller_names) {
    caller_names_ = std::move(caller_names);
  }

  // In the handler of a call: its x-request-id, or a new one in place of one that is not valid.
  // Empty when it has none.
  static std::string Begin(const grpc::ServerContextBase& call);

  // Whether End() has anything to do for such a call, so that no record need be made.
  bool Wants(const absl::Status& status, const std::string& request_id) const {
    return IsLogged(status) || !request_id.empty();
  }

  // Just before the call is answered; `request_id` is what Begin() gave.
  void End(grpc::ServerContextBase* call, std::string request_id, const CallRecord& record);

  // A call that was turned away before it reached a handler. `certificate` is the name in that of
  // its client, "" without one.
  void OnAuthenticationFailure(absl::string_view method, absl::string_view reason,
                               const CallHeaders& headers, absl::string_view certificate);

  // A connection that got no further than its TLS handshake.
  void OnHandshakeFailure(absl::string_view reason, absl::string_view detail,
                          absl::string_view peer);

  // The connection of a call is closed because nobody took its answer.
  void OnAnswerNotTaken(absl::string_view method, absl::string_view peer, absl::Duration waited);

  // Whether lines hold requests, so that they must be kept until End().
  bool content() const { return options_.content; }

  int64_t suppressed_lines() const { return limit_.total_refused(); }

 private:
  bool IsLogged(const absl::Status& status) const {
    return !status.ok() || options_.requests == LogRequests::kAll;
  }

  // Whether a line of this level may be written now; `*suppressed` lines were left out before it.
  bool Take(LogLevel level, int64_t* suppressed) {
    return options_.requests != LogRequests::kNone && level >= GetLogOptions().level &&
           limit_.Take(clock_.Now(), suppressed);
  }

  const AccessLogOptions options_;
  const Clock& clock_;
  RateLimit limit_;
  std::function<std::string(absl::string_view)> caller_names_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_TELEMETRY_ACCESS_LOG_H_
