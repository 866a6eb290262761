// When this process was started, from /proc: for the metric process_start_time_seconds, by which
// dashboards tell how long a server has been up and notice that it was started anew. Thread-safe.
#ifndef SRU_SERVER_BASE_PROCESS_START_H_
#define SRU_SERVER_BASE_PROCESS_START_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sru::server {

// By the wall clock, to within a tick of the kernel (10 ms); worked out by the first call, so that
// it stays the same when the clock is set. Where /proc does not say, the time of the first call.
absl::Time ProcessStartTime();

// From the text of /proc/<pid>/stat: how long after the machine's boot the process was started.
// Nothing when the text has another form.
std::optional<absl::Duration> ParseStartAfterBoot(absl::string_view stat, int64_t ticks_per_second);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_PROCESS_START_H_
