// The access log: a line per call, or per call that failed, and the request id that goes with it.
//
// Request ids. A call's x-request-id is sent back with the answer and appears in the call's line;
// an id that is not valid (request_id.h) is replaced by a new one. A call without an id gets a new
// one if a line has it: what is not logged, or over the limit of lines, has none.
//
// Privacy. A line holds no part of the text or data of a request; for an INVALID_ARGUMENT it names
// only the field. `content` adds the request.
//
// Cost. For a call that has no id and is not logged, the cost is one look at its metadata. The
// number of lines per second is limited; the next line that passes says how many were left out. One
// address has half of them at most, and refusals of those who are no callers together a quarter.
//
// Slow calls and errors. A call that takes `slow` or longer has a line whatever `requests` says,
// with the batch that it met: at INFO, since one slow call asks nobody to act. The last such calls
// and the last errors are kept for the status page, never with content. A fast call that succeeds
// pays a comparison for it.
//
// Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_ACCESS_LOG_H_
#define SRU_SERVER_TELEMETRY_ACCESS_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "server/base/call_origin.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/rate_limit.h"
#include "server/telemetry/call_times.h"
#include "server/telemetry/recent_calls.h"

namespace sru::server::telemetry {

enum class LogRequests { kNone, kErrors, kAll };

struct AccessLogOptions {
  LogRequests requests = LogRequests::kErrors;
  int max_lines_per_second = 100;  // 0 = no limit
  bool content = false;
  absl::Duration slow = absl::ZeroDuration();  // 0: no call is slow
};

// What is known about a call when it is answered. Only `method` and `status` are always known.
struct CallRecord {
  absl::string_view method;
  const absl::Status* status = nullptr;
  absl::string_view caller;  // its name
  absl::string_view model;
  int64_t version = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  std::optional<CallTimes> times;
  absl::string_view trace_id;  // of the call's own span; empty: it has none
  absl::string_view span_id;
  const google::protobuf::Message* request = nullptr;
  bool lasts_as_its_caller_wants = false;  // and so is never slow
};

// The headers of a call, for a line that is written where there is no CallOrigin.
struct CallHeaders {
  absl::string_view request_id;
  absl::string_view traceparent;
  absl::string_view authorization;
  absl::string_view user_agent;
};

class AccessLog {
 public:
  AccessLog(const AccessLogOptions& options, const Clock* clock)
      : options_(options),
        clock_(*clock),
        limit_(options.max_lines_per_second),
        strangers_((options.max_lines_per_second + 3) / 4) {}
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // For the handler of a call: returns the call's x-request-id, or a new one if that is not valid.
  // Empty if the call has none.
  static std::string Begin(const CallOrigin& call);

  // Call it just before the call is answered, with the `request_id` that Begin() gave. Returns the
  // id to send back: that one, or a new one if a line was written; empty: none.
  std::string End(const CallOrigin& call, std::string request_id, const CallRecord& record);

  // Logs a call that was rejected before it reached a handler. `peer` is "" where gRPC does not
  // tell it; `certificate` is the name in the client's certificate, "" if it has none.
  void OnAuthenticationFailure(absl::string_view method, absl::string_view reason,
                               const CallHeaders& headers, absl::string_view peer,
                               absl::string_view certificate);

  // Logs a request over HTTP that was refused before a service had seen it; `caller` is "" if
  // nobody knows. Of an INVALID_ARGUMENT the line has only what stands before the first quotation,
  // as `reason` may quote the request.
  void OnHttpRefusal(absl::string_view path, int http_status, const absl::Status& reason,
                     const CallHeaders& headers, absl::string_view peer, absl::string_view caller);

  // Logs a connection that failed in its TLS handshake; without `detail`, its client has hung up.
  void OnHandshakeFailure(absl::string_view reason, absl::string_view detail,
                          absl::string_view peer);

  // Logs that the connection of a call is closed because its answer was not taken.
  void OnAnswerNotTaken(absl::string_view method, absl::string_view peer, absl::Duration waited);

  // A peer without its port, of which it has many.
  static absl::string_view AddressOf(absl::string_view peer) {
    return peer.substr(0, peer.substr(0, 3) == "ipv" ? peer.rfind(':') : peer.size());
  }

  // Whether lines hold requests, which must then be kept until End().
  bool content() const { return options_.content; }

  // For the status page.
  absl::Duration slow() const { return options_.slow; }
  std::vector<RecentCall> slow_calls() const { return slow_calls_.List(); }
  std::vector<RecentCall> errors() const { return errors_.List(); }

  int64_t suppressed_lines() const { return limit_.total_refused() + strangers_.total_refused(); }

 private:
  bool IsSlow(const CallRecord& record) const {
    return options_.slow > absl::ZeroDuration() && record.times.has_value() &&
           record.times->total >= options_.slow && !record.lasts_as_its_caller_wants;
  }
  // Whether one more error of this code may be kept in this second.
  bool MayKeepError(absl::StatusCode code);
  // A call that did not reach a handler. With `content` the line has the whole error.
  void OnRefusal(absl::string_view message, absl::StatusCode code, std::vector<LogField> fields,
                 const CallHeaders& headers, absl::string_view peer, absl::string_view whole_error);
  void Keep(absl::StatusCode code, absl::Span<const LogField> fields, RecentCalls* calls);

  // Returns whether a line of this level on this peer may be written now; `*suppressed` lines were
  // left out before it.
  bool Take(LogLevel level, absl::string_view peer, int64_t* suppressed, bool slow = false) {
    return (slow || options_.requests != LogRequests::kNone) && level >= GetLogOptions().level &&
           limit_.Take(clock_.Now(), AddressOf(peer), suppressed);
  }
  // Does the same for a line on somebody who has not proved to be a caller.
  bool TakeOfStranger(LogLevel level, absl::string_view peer, int64_t* suppressed);

  const AccessLogOptions options_;
  const Clock& clock_;
  RateLimit limit_;
  RateLimit strangers_;  // of their lines, which count in limit_ as well
  RecentCalls slow_calls_{100};
  RecentCalls errors_{20};
  RateLimit kept_errors_{40};  // a second, half of them of one code: a flood must stay cheap
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_ACCESS_LOG_H_
