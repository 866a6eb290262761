// How long the stages of a call took, and the batch that it met: measured in its handler, told to
// the caller, the metrics and the access log.
#ifndef SRU_SERVER_TELEMETRY_CALL_TIMES_H_
#define SRU_SERVER_TELEMETRY_CALL_TIMES_H_

#include <algorithm>

#include "absl/time/time.h"
#include "server/batching/queue/batcher.h"

namespace sru::server::telemetry {

struct CallTimes {
  absl::Duration tokenize;
  absl::Duration queue;
  absl::Duration compute;
  absl::Duration total;
  batching::RequestTimes met = {};             // not told to the caller
  absl::Time computed = absl::InfinitePast();  // that time: never

  // What the queue says once the call is computed.
  void Take(const batching::RequestTimes& times, absl::Time now) {
    queue = times.queue;
    compute = times.compute;
    met = times;
    computed = now;
  }
  // What is left of the total: to write the answer, and between the steps of Generate and
  // Translate.
  absl::Duration rest() const {
    return std::max(absl::ZeroDuration(), total - tokenize - queue - compute);
  }
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_CALL_TIMES_H_
