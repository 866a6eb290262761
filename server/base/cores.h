// The processor's cores: which ones this process may use, how to keep a thread on one of them, and
// names of threads. Thread-safe.
#ifndef SRU_SERVER_BASE_CORES_H_
#define SRU_SERVER_BASE_CORES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sru::server {

// The cores that the calling thread may run on (taskset, cpuset of a container), ascending. Empty
// when the system does not say.
std::vector<int> AllowedCores();

// How many threads can run at a time, at least 1: as many as those cores (where the system does not
// say, all of the machine), and no more than the control groups' quotas of processor time (`docker
// run --cpus`, limits.cpu) pay for, rounded up. `root` is where proc and sys are looked for: tests
// give a directory of their own. Reads a few small files.
int NumCores(const std::string& root = "/");

// From now on the calling thread runs on `core` only, and so do threads that it starts. Fails when
// the core is not one that the process may use.
absl::Status PinThisThread(int core);

// For a thread that works for a short time whenever it wakes: from now on the system gives it its
// core sooner, and for less long at a time, than threads that compute. Its share stays the same.
// Linux 6.12 and later can do so; elsewhere it changes nothing.
void TakeShortSlices();

// For the start of each thread: gives it the name that `top -H`, perf and debuggers show, at most
// 15 characters, and what a report of its crash needs (crash_report.h).
void NameThisThread(const char* name);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_CORES_H_
