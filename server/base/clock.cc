#include "server/base/clock.h"

#include <chrono>

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

}  // namespace sru::server
