// When an alarm of gRPC's goes off, by the clock that nobody sets. By the system's date, an alarm
// would go off at once after the date was set: absl::Now() sees that up to seconds later than gRPC
// does.
#ifndef SRU_SERVER_REST_ALARM_TIME_H_
#define SRU_SERVER_REST_ALARM_TIME_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace sru::server::rest {

// For grpc::Alarm::Set(). `delay` is finite.
inline gpr_timespec AlarmTime(absl::Duration delay) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(delay), GPR_TIMESPAN));
}

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_ALARM_TIME_H_
