// Around the bodies of calls through the backends' interfaces: a lack of memory becomes a status.
#ifndef SRU_KERNELS_OUT_OF_MEMORY_H_
#define SRU_KERNELS_OUT_OF_MEMORY_H_

#include <new>

#include "kernels/status.h"

namespace sru::kernels {

// The status that `body` returns, or kResourceExhausted if it throws std::bad_alloc.
template <typename Body>
Status CatchBadAlloc(const char* action, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, action, ": out of memory");
  }
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_OUT_OF_MEMORY_H_
