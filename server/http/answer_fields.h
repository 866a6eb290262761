// The fields that every answer over HTTP has: Date, and X-Request-Id, by which a request can be
// found in the logs of every program that handled it. Thread-safe.
#ifndef SRU_SERVER_HTTP_ANSWER_FIELDS_H_
#define SRU_SERVER_HTTP_ANSWER_FIELDS_H_

#include "absl/strings/string_view.h"
#include "server/http/page_message.h"

namespace sru::server::http {

inline constexpr char kRequestIdField[] = "x-request-id";

// Gives the request an id of this server unless the caller has sent a valid one.
void SetRequestId(PageRequest* request);

// The time as RFC 9110 wants it: "Mon, 30 Nov 2026 10:40:38 GMT". A thread makes the text once a
// second; it is valid until that thread's next call.
absl::string_view HttpDate();

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_ANSWER_FIELDS_H_
