// The header traceparent of W3C Trace Context (https://www.w3.org/TR/trace-context/, section 3.2):
//   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
// The log lines of a call contain its parts, so that they can be found from the caller's trace.
#ifndef SRU_SERVER_TELEMETRY_TRACE_CONTEXT_H_
#define SRU_SERVER_TELEMETRY_TRACE_CONTEXT_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace sru::server::telemetry {

inline constexpr char kTraceparentHeader[] = "traceparent";

// Views into the header.
struct TraceContext {
  absl::string_view trace_id;   // 32 lower-case hexadecimal digits, not all zero
  absl::string_view parent_id;  // 16, the caller's span, not all zero
  bool sampled = false;
};

// Returns nullopt for a header that the standard calls invalid, which must be ignored. Versions
// after 00 are read like 00, as the standard requires. Pure.
std::optional<TraceContext> ParseTraceparent(absl::string_view header);

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_TRACE_CONTEXT_H_
