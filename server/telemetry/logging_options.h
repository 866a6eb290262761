// The server's options on its log.
#ifndef SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_
#define SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_

#include "base/flags.h"
#include "server/base/log.h"
#include "server/telemetry/access_log.h"

namespace sru::server::telemetry {

struct LoggingOptions {
  LogOptions lines;
  AccessLogOptions access;
};

void AddFlags(LoggingOptions* options, Flags* flags);

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_
