// Request ids: the header x-request-id, by which a call can be found in the logs of every program
// that handled it.
#ifndef SRU_SERVER_TELEMETRY_REQUEST_ID_H_
#define SRU_SERVER_TELEMETRY_REQUEST_ID_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sru::server::telemetry {

inline constexpr char kRequestIdHeader[] = "x-request-id";
inline constexpr size_t kMaxRequestIdLength = 128;

// Whether a caller's id may be repeated in logs and answers: 1 to 128 characters of visible ASCII
// (no space). Pure.
bool IsValidRequestId(absl::string_view id);

// A new id: 32 hexadecimal digits, unpredictable from one process to the next and never the same
// twice in one. Thread-safe.
std::string MakeRequestId();

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_REQUEST_ID_H_
