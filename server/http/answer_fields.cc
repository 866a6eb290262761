#include "server/http/answer_fields.h"

#include <ctime>
#include <string>

#include "absl/time/time.h"
#include "server/telemetry/request_id.h"

namespace sru::server::http {

void SetRequestId(PageRequest* request) {
  std::string& id = request->headers[kRequestIdField];
  if (!telemetry::IsValidRequestId(id)) id = telemetry::MakeRequestId();
}

absl::string_view HttpDate() {
  thread_local std::time_t second = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != second || text.empty()) {
    second = now;
    text =
        absl::FormatTime("%a, %d %b %E4Y %H:%M:%S GMT", absl::FromTimeT(now), absl::UTCTimeZone());
  }
  return text;
}

}  // namespace sru::server::http
