// An allocation that fails ends a call, not the process: what works for a call is run within
// CatchOutOfMemory().
#ifndef SRU_SERVER_BASE_OUT_OF_MEMORY_H_
#define SRU_SERVER_BASE_OUT_OF_MEMORY_H_

#include <new>

#include "absl/status/status.h"

namespace sru::server {

// kResourceExhausted. Made once, at the first use, which should be while there is memory (at the
// start); a copy takes none.
inline const absl::Status& OutOfMemoryStatus() {
  static const auto* const kStatus =
      new absl::Status(absl::StatusCode::kResourceExhausted,
                       "memory: the server could not get enough for the call; retry later");
  return *kStatus;
}

// What `run` gives, or OutOfMemoryStatus() when it throws std::bad_alloc.
template <typename Run>
absl::Status CatchOutOfMemory(const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return OutOfMemoryStatus();
  }
}

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_OUT_OF_MEMORY_H_
