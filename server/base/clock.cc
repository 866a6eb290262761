#include "server/base/clock.h"

#include <chrono>
#include <ctime>

namespace sru::server {

absl::Time SteadyNow() {
  using Steady = std::chrono::steady_clock;
  struct Origin {
    absl::Time date = absl::Now();
    Steady::time_point steady = Steady::now();
  };
  static const Origin kOrigin;
  return kOrigin.date + absl::FromChrono(Steady::now() - kOrigin.steady);
}

absl::Duration ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace sru::server
