// BatchSizes: how many batches of each size a model has computed, and how long they took. Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_BATCH_SIZES_H_
#define SRU_SERVER_TELEMETRY_BATCH_SIZES_H_

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server::telemetry {

class BatchSizes {
 public:
  struct Sum {
    int64_t batches = 0;
    absl::Duration compute;
  };

  void Add(int sequences, absl::Duration compute) {
    MutexLock lock(&mutex_);
    Sum& sum = sums_[sequences];
    ++sum.batches;
    sum.compute += compute;
  }

  // By the number of sequences.
  std::map<int, Sum> sums() const {
    MutexLock lock(&mutex_);
    return sums_;
  }

 private:
  mutable Mutex mutex_;
  std::map<int, Sum> sums_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_BATCH_SIZES_H_
