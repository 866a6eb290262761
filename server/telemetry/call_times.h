// How long the stages of a call took: measured in its handler, told to the caller, the metrics and
// the access log.
#ifndef SRU_SERVER_TELEMETRY_CALL_TIMES_H_
#define SRU_SERVER_TELEMETRY_CALL_TIMES_H_

#include "absl/time/time.h"

namespace sru::server::telemetry {

struct CallTimes {
  absl::Duration tokenize;
  absl::Duration queue;
  absl::Duration compute;
  absl::Duration total;
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_CALL_TIMES_H_
