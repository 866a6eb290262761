// TokenTask: a sequence that came as text, words, ids or features, as requests are parsed into it.
#ifndef SRU_SERVER_CALLS_MESSAGES_TOKEN_TASK_H_
#define SRU_SERVER_CALLS_MESSAGES_TOKEN_TASK_H_

#include <cstdint>
#include <vector>

#include "server/batching/queue/batcher.h"

namespace sru::server::calls {

struct TokenTask : batching::SequenceTask {
  std::vector<int32_t> token_ids;  // exactly one of these two is filled
  std::vector<float> features;     // [num_tokens][input_size]
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_TOKEN_TASK_H_
