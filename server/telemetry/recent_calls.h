// RecentCalls: the last calls of a kind, such as slow ones, for the status page. It keeps nothing
// of what they sent. Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_RECENT_CALLS_H_
#define SRU_SERVER_TELEMETRY_RECENT_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server::telemetry {

struct RecentCall {
  absl::Time time;  // of its end, by the date
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string line;  // of the log, as JSON
};

class RecentCalls {
 public:
  // Of each call it keeps at most about a kilobyte.
  explicit RecentCalls(size_t most) : most_(most) {}
  RecentCalls(const RecentCalls&) = delete;
  RecentCalls& operator=(const RecentCalls&) = delete;

  // The call takes the place of the oldest one of the code that has most of the places, so that a
  // flood of refusals leaves the rare error on the page.
  void Add(RecentCall call) {
    const MutexLock lock(&mutex_);
    if (calls_.size() >= most_) {
      std::map<absl::StatusCode, int> counts;
      int highest = ++counts[call.code];
      for (const RecentCall& one : calls_) highest = std::max(highest, ++counts[one.code]);
      calls_.erase(std::find_if(calls_.begin(), calls_.end(), [&](const RecentCall& one) {
        return counts[one.code] == highest;
      }));
    }
    calls_.push_back(std::move(call));
  }

  // The newest one first.
  std::vector<RecentCall> List() const {
    const MutexLock lock(&mutex_);
    return {calls_.rbegin(), calls_.rend()};
  }

 private:
  const size_t most_;
  mutable Mutex mutex_;
  std::vector<RecentCall> calls_ ABSL_GUARDED_BY(mutex_);  // by their arrival here
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_RECENT_CALLS_H_
