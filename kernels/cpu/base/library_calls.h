// What a call through the backend's interface needs around oneDNN.
#ifndef SRU_KERNELS_CPU_BASE_LIBRARY_CALLS_H_
#define SRU_KERNELS_CPU_BASE_LIBRARY_CALLS_H_

#include <omp.h>

#include <exception>
#include <string>
#include <system_error>

#include "kernels/status.h"

namespace sru::kernels::cpu {

// Batches run in parallel on the callers' threads; a product must not start threads of its own.
inline void UseOneThread() { omp_set_num_threads(1); }

// The status that `body` returns, or one for what oneDNN, the allocator and std::thread throw.
template <typename Body>
Status CatchErrors(const char* action, Body body) {
  try {
    return CatchBadAlloc(action, body);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) {
      return Internal(action, ": ", e.what());
    }
    return Status(StatusCode::kResourceExhausted, action, ": a thread cannot be started (",
                  e.what(),
                  "): the limit of threads (ulimit -u, pids.max of the control group) or of "
                  "memory (ulimit -v) is reached");
  } catch (const std::exception& e) {
    return Internal(action, ": ", e.what());
  }
}

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_LIBRARY_CALLS_H_
