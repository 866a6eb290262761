// The fields that every answer over HTTP has: Date, and X-Request-Id, by which a request can be
// found in the logs of every program that handled it. Thread-safe.
#ifndef SRU_SERVER_HTTP_ANSWER_FIELDS_H_
#define SRU_SERVER_HTTP_ANSWER_FIELDS_H_

#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/calls/exchange.h"
#include "server/http/page_message.h"
#include "server/telemetry/request_id.h"

namespace sru::server::http {

inline constexpr char kRequestIdField[] = "x-request-id";

// Gives the request an id of this server unless the caller has sent a valid one.
inline void SetRequestId(PageRequest* request) {
  std::string& id = request->headers[kRequestIdField];
  if (!telemetry::IsValidRequestId(id)) id = telemetry::MakeRequestId();
}

// The time as RFC 9110 wants it: "Mon, 30 Nov 2026 10:40:38 GMT". A thread makes the text once a
// second; it is valid until that thread's next call.
inline absl::string_view HttpDate() {
  thread_local std::time_t second = -1;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now == second) return text;
  second = now;
  return text = absl::FormatTime("%a, %d %b %E4Y %H:%M:%S GMT", absl::FromTimeT(now),
                                 absl::UTCTimeZone());
}

// The fields of an answer to the request with this id. Without `has_length` it comes in parts.
inline calls::Metadata FieldsOf(const PageResponse& answer, const std::string& id,
                                bool has_length = true) {
  calls::Metadata fields = {{"Date", std::string(HttpDate())}, {"X-Request-Id", id}};
  if (answer.has_body()) {
    fields.emplace_back("Content-Type", answer.content_type);
    if (has_length) fields.emplace_back("Content-Length", absl::StrCat(answer.body.size()));
  }
  fields.insert(fields.end(), answer.headers.begin(), answer.headers.end());
  return fields;
}

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_ANSWER_FIELDS_H_
