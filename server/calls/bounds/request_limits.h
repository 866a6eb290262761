// Bounds on one request, and the errors for one that is too large in some respect, which the
// outline and the parser share.
#ifndef SRU_SERVER_CALLS_BOUNDS_REQUEST_LIMITS_H_
#define SRU_SERVER_CALLS_BOUNDS_REQUEST_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace sru::server::calls {

struct RequestLimits {
  int max_sequences = 1024;
  int max_sequence_tokens = 2048;
  // The tokens of all sequences of a request: the queue's bound, since a larger request could never
  // be accepted. Also applies before sequences are cut: tokens that are cut off must not take
  // memory first.
  int64_t max_request_tokens = 65536;
  int max_new_tokens = 4096;  // of one sample of a Generate
  // Tokens that are computed at a time: those of a question and one of its passages.
  int max_batch_tokens = 4096;
};

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

#endif  // SRU_SERVER_CALLS_BOUNDS_REQUEST_LIMITS_H_
