// CorePool: chooses the core that the next worker thread is pinned to (--pin_cores).
//
//   CorePool pool(AllowedCores());
//   const int core = pool.Acquire();   // the core with the fewest workers, the lowest of equals
//   absl::Status status = PinThisThread(core);
//   ...
//   pool.Release(core);
//
// With more workers than cores the cores are shared evenly, whatever models the workers belong to.
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_CORE_POOL_H_
#define SRU_SERVER_BATCHING_CORE_POOL_H_

#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace sru::server::batching {

class CorePool {
 public:
  explicit CorePool(const std::vector<int>& cores);

  // The core with the fewest workers; -1 when the pool has no cores.
  int Acquire();
  // Gives back a core that Acquire() gave.
  void Release(int core);

 private:
  Mutex mutex_;
  std::map<int, int> workers_ ABSL_GUARDED_BY(mutex_);  // by core
};

// The pool of this process. Its cores are those that the first caller's thread may run on, so the
// first call must come from a thread that is not pinned.
CorePool& ProcessCorePool();

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_CORE_POOL_H_
