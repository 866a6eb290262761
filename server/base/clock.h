// Time as an interface, so that tests decide what time it is.
//
// Deadlines and durations are told by a clock that nobody sets: whatever happens to the system's
// date (NTP steps, an operator, a virtual machine that was asleep), no call expires early and
// nothing takes a negative time. Its times look like dates, but are only good for comparing with
// each other; what people read, and what is compared with dates in certificates, is WallNow().
#ifndef SRU_SERVER_BASE_CLOCK_H_
#define SRU_SERVER_BASE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::server {

// Monotonic: the date at the first call, plus what has passed since. Thread-safe.
absl::Time SteadyNow();

// The processor time of the calling thread; the call takes half a microsecond.
absl::Duration ThreadTime();

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back.
  virtual absl::Time Now() const = 0;
  // The system's date.
  virtual absl::Time WallNow() const { return Now(); }
};

class RealClock : public Clock {
 public:
  absl::Time Now() const override { return SteadyNow(); }
  absl::Time WallNow() const override { return absl::Now(); }
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_CLOCK_H_
