// RecentCalls: the last calls of a kind, such as slow ones, for the status page. It keeps nothing
// of what they sent. Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_RECENT_CALLS_H_
#define SRU_SERVER_TELEMETRY_RECENT_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/telemetry/call_times.h"

namespace sru::server::telemetry {

struct RecentCall {
  absl::Time time;     // of its end, by the date
  std::string method;  // or the path of a request that reached none
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string error;  // as in the log
  std::string model;  // empty: none was found
  int64_t version = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
  std::optional<CallTimes> times;
  std::string request_id;  // may be empty, like trace_id
  std::string trace_id;
};

class RecentCalls {
 public:
  // Of each call it keeps at most about a kilobyte.
  explicit RecentCalls(size_t most) : most_(most) {}
  RecentCalls(const RecentCalls&) = delete;
  RecentCalls& operator=(const RecentCalls&) = delete;

  // The call takes the place of the oldest one of the code that has most of the places, so that a
  // flood of refusals leaves the rare error on the page.
  void Add(RecentCall call);

  // The newest one first.
  std::vector<RecentCall> List() const;

 private:
  const size_t most_;
  mutable Mutex mutex_;
  std::vector<RecentCall> calls_ ABSL_GUARDED_BY(mutex_);  // by their arrival here
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_RECENT_CALLS_H_
