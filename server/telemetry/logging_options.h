// The server's options on its log.
#ifndef SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_
#define SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/log.h"
#include "server/telemetry/access_log.h"

namespace sru::server {

struct LoggingOptions {
  LogOptions lines;
  AccessLogOptions access;
};

// kInvalidArgument names the flag.
absl::StatusOr<LoggingOptions> LoggingOptionsFromFlags();

absl::Span<const char* const> LoggingFlagNames();

}  // namespace sru::server

#endif  // SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_
