// Time as an interface, so that tests decide what time it is.
#ifndef SRU_SERVER_BASE_CLOCK_H_
#define SRU_SERVER_BASE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::server {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class RealClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_CLOCK_H_
