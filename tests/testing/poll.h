// Waits for something that another process or a socket does, of which nothing notifies us.
#ifndef SRU_TESTS_TESTING_POLL_H_
#define SRU_TESTS_TESTING_POLL_H_

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::testing {

// True as soon as `condition` is; false if it is not within `timeout`.
inline bool PollUntil(absl::FunctionRef<bool()> condition,
                      absl::Duration timeout = absl::Seconds(30)) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_POLL_H_
