// How much memory this process may take: what the control groups that it runs in allow and what the
// machine has. Bytes. Thread-safe; reads a few small files at each call, so not for every request.
#ifndef SRU_SERVER_BASE_MEMORY_LIMIT_H_
#define SRU_SERVER_BASE_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

namespace sru::server {

// All zero when nothing could be read.
struct MemoryLimits {
  // The smallest limit among the process's control group, the groups above it and the machine.
  int64_t limit_bytes = 0;
  // What is in use of that limit, without the page cache that the system drops when it needs memory
  // (inactive_file). A group's use includes all its processes.
  int64_t used_bytes = 0;
  // The least that any of the groups, or the machine, has left; never negative. Less than the
  // difference of the two above where a group higher up is the fuller one.
  int64_t available_bytes = 0;
};

// Both versions of control groups are understood, also where a container sees its group under a
// path of the host's. `root` is where proc and sys are looked for: tests give a directory of their
// own.
MemoryLimits ReadMemoryLimits(const std::string& root = "/");

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_MEMORY_LIMIT_H_
