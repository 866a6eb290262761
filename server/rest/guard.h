// Guard: what a handler or a reaction throws ends its request instead of being lost. gRPC and the HTTP server run them where
// nobody else catches it.
#ifndef SRU_SERVER_REST_GUARD_H_
#define SRU_SERVER_REST_GUARD_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "server/base/out_of_memory.h"
#include "server/rest/error_response.h"

namespace sru::server {

// Runs `run()`; if it throws, `fail(RestError)`: kResourceExhausted for std::bad_alloc, otherwise kInternal.
template <typename Run, typename Fail>
void Guard(const Run& run, const Fail& fail) {
  try {
    run();
  } catch (const std::bad_alloc&) {
    fail(RestError(OutOfMemoryStatus()));
  } catch (const std::exception& error) {
    fail(RestError(absl::InternalError(error.what())));
  }
}

}  // namespace sru::server

#endif  // SRU_SERVER_REST_GUARD_H_
