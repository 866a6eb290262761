// Guard: what a handler or a reaction throws ends its request instead of being lost. gRPC and the
// HTTP server run them where nobody else catches it.
#ifndef SRU_SERVER_REST_GUARD_H_
#define SRU_SERVER_REST_GUARD_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "server/base/retry.h"
#include "server/rest/error_response.h"

namespace sru::server::rest {

// Runs `run()`; if it throws, `fail(RestError)`: kResourceExhausted for std::bad_alloc, otherwise
// kInternal. noexcept: a request that could not even fail would stay for ever.
template <typename Run, typename Fail>
void Guard(const Run& run, const Fail& fail) noexcept {
  try {
    run();
  } catch (const std::bad_alloc&) {
    fail(RestError(RetryAfter(absl::ResourceExhaustedError("memory: the server could not get "
                                                           "enough for the call; retry later"),
                              kMemoryRetryAfter)));
  } catch (const std::exception& error) {
    fail(RestError(absl::InternalError(error.what())));
  }
}

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_GUARD_H_
