// The server's options on its log.
#ifndef SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_
#define SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_

#include "server/base/flag_table.h"
#include "server/base/log.h"
#include "server/telemetry/access_log.h"

namespace sru::server::telemetry {

struct LoggingOptions {
  LogOptions lines;
  AccessLogOptions access;
};

void AddFlags(LoggingOptions* options, FlagTable* flags);

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_LOGGING_OPTIONS_H_
