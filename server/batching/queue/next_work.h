// What a queue of batches or a scheduler of steps would give a worker next.
#ifndef SRU_SERVER_BATCHING_QUEUE_NEXT_WORK_H_
#define SRU_SERVER_BATCHING_QUEUE_NEXT_WORK_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/batching/queue/flow.h"

namespace sru::server::batching {

struct NextWork {
  // When: at once if it has passed. InfiniteFuture(): not before it has said that it has work.
  absl::Time at = absl::InfiniteFuture();
  const Flow* flow = nullptr;  // whose work goes first; only to compare
  int64_t tokens = 0;          // of a batch: those of its first sequence
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_NEXT_WORK_H_
