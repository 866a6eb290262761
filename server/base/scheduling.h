// How the system's scheduler treats the threads of the server (--scheduling).
//
//   kBatch   SCHED_BATCH: a thread that wakes does not interrupt one that runs. A busy server then
//            switches between its threads less often and works off more calls at a time.
//   kNormal  the system's default: threads that wake may interrupt, which is fairer to them when
//            programs compete for the same cores
#ifndef SRU_SERVER_BASE_SCHEDULING_H_
#define SRU_SERVER_BASE_SCHEDULING_H_

#include "absl/status/status.h"

namespace sru::server {

enum class Scheduling { kBatch, kNormal };

// For the calling thread and those that it starts from now on. A policy that whoever started the
// process chose (chrt) is left as it is.
absl::Status ApplyScheduling(Scheduling scheduling);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_SCHEDULING_H_
