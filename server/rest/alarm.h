// SetAlarm(): an alarm of gRPC's by the clock that nobody sets. By the system's date, an alarm
// would go off at once after the date was set: absl::Now() sees that up to seconds later than gRPC
// does.
#ifndef SRU_SERVER_REST_ALARM_H_
#define SRU_SERVER_REST_ALARM_H_

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"

namespace sru::server::rest {

// Calls `run` of the alarm's owner after `delay`, which is finite. The alarm keeps the owner alive
// only meanwhile.
template <typename Owner>
void SetAlarm(grpc::Alarm* alarm, absl::Duration delay, std::weak_ptr<Owner> owner,
              void (Owner::*run)()) {
  const gpr_timespec time =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(delay), GPR_TIMESPAN));
  alarm->Set(time, [owner = std::move(owner), run](bool expired) {
    const std::shared_ptr<Owner> self = expired ? owner.lock() : nullptr;
    if (self != nullptr) ((*self).*run)();
  });
}

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_ALARM_H_
