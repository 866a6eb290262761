// Bounds on one request.
#ifndef SRU_SERVER_CALLS_BOUNDS_REQUEST_LIMITS_H_
#define SRU_SERVER_CALLS_BOUNDS_REQUEST_LIMITS_H_

#include <cstdint>

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

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BOUNDS_REQUEST_LIMITS_H_
