#include "server/base/scheduling.h"

#include <sched.h>

#include <cerrno>

namespace sru::server {

absl::Status ApplyScheduling(Scheduling scheduling) {
  if (scheduling == Scheduling::kNormal || sched_getscheduler(0) != SCHED_OTHER) {
    return absl::OkStatus();
  }
  const sched_param parameters{};
  if (sched_setscheduler(0, SCHED_BATCH, &parameters) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "--scheduling=batch: the system refuses SCHED_BATCH");
}

}  // namespace sru::server
