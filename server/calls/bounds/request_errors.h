// The errors for a request that is too large in some respect, shared by the outline and the parser.
#ifndef SRU_SERVER_CALLS_BOUNDS_REQUEST_ERRORS_H_
#define SRU_SERVER_CALLS_BOUNDS_REQUEST_ERRORS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "server/calls/bounds/request_limits.h"

namespace sru::server::calls {

// How many fields that protobuf cannot use but keeps a message may have.
inline constexpr int kMaxExtraFields = 64;

inline absl::Status TooManySequences(int64_t found, const RequestLimits& limits) {
  return InvalidArgument("sequences: ", found, " are too many, expected at most ",
                         limits.max_sequences,
                         " (--max_sequences_per_request); send several calls");
}

// `unit` is empty for the queries themselves, or " passages".
inline absl::Status TooManyQueries(int64_t found, absl::string_view unit,
                                   const RequestLimits& limits) {
  return InvalidArgument("queries: ", found, unit, " are too many, expected at most ",
                         limits.max_sequences,
                         " (--max_sequences_per_request); send several calls");
}

// `field` is that of what the request asks about.
inline absl::Status TooManyTokens(const RequestLimits& limits,
                                  absl::string_view field = "sequences") {
  return InvalidArgument(field, ": more than ", limits.max_request_tokens,
                         " tokens in all, expected at most that (--max_queue_tokens); send several "
                         "calls");
}

inline absl::Status TooManyFields() {
  return InvalidArgument("message: more than ", kMaxExtraFields,
                         " fields that are unknown or replaced by later ones, expected none");
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BOUNDS_REQUEST_ERRORS_H_
