// PuppetEngine: takes the place of a batcher's workers and does only what a test tells it to: take
// a batch now, finish that batch in this way. It has no threads. The first token id of each
// sequence of a request is the request's name, so that a batch can be compared with a list of
// numbers. Besides, what real threads need that do the same (Bell).
#ifndef SRU_TESTS_TESTING_PUPPET_ENGINE_H_
#define SRU_TESTS_TESTING_PUPPET_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/batching/queue/batcher.h"
#include "tests/testing/fake_clock.h"

namespace sru::server {

// A sequence in which all token ids are the request's name.
struct NamedTask : batching::SequenceTask {
  std::vector<int32_t> token_ids;
  float* result = nullptr;  // gets the name, unless it is null
};
inline const NamedTask& TaskOf(const batching::SequenceTask* sequence) {
  return static_cast<const NamedTask&>(*sequence);
}

// A request with sequences of these lengths, whose results go to `results`, unless that is null.
// Its tasks live until the process ends.
inline batching::BatchRequest MakeRequest(int32_t name, const std::vector<int>& lengths,
                                          float* results = nullptr) {
  static Mutex* const mutex = new Mutex;
  static auto* const tasks = new std::deque<NamedTask>;
  const MutexLock lock(mutex);
  batching::BatchRequest request;
  for (int length : lengths) {
    NamedTask& task = tasks->emplace_back();
    task.token_ids.assign(length > 0 ? length : 0, name);
    task.num_tokens = length;
    if (results != nullptr) task.result = results++;
    request.sequences.push_back(&task);
  }
  return request;
}

// Wakes threads of a test that look for batches or steps by themselves. Thread-safe.
class Bell {
 public:
  void Ring() {
    MutexLock lock(&mutex_);
    ++rings_;
    rang_.SignalAll();
  }
  int64_t rings() {
    MutexLock lock(&mutex_);
    return rings_;
  }
  // Waits until it has rung more than `rings` times, or until the time `until`.
  void WaitBeyond(int64_t rings, absl::Time until) {
    MutexLock lock(&mutex_);
    for (absl::Time now = absl::Now(); rings_ == rings && now < until; now = absl::Now()) {
      rang_.WaitFor(&mutex_, until - now);
    }
  }

 private:
  Mutex mutex_;
  CondVar rang_;
  int64_t rings_ ABSL_GUARDED_BY(mutex_) = 0;
};

class PuppetEngine {
 public:
  PuppetEngine(batching::Batcher* batcher, FakeClock* clock) : batcher_(*batcher), clock_(*clock) {}

  // Takes a batch if one may start, and returns whether it did.
  bool Take() {
    std::unique_ptr<batching::Batch> batch = batcher_.TryTakeBatch();
    if (batch == nullptr) return false;
    running_.push_back(std::move(batch));
    return true;
  }

  size_t num_running() const { return running_.size(); }
  batching::Batch& running(size_t index) { return *running_[index]; }

  // The names in a running batch, by default the one taken last.
  std::vector<int32_t> names() const { return names(running_.size() - 1); }
  std::vector<int32_t> names(size_t index) const {
    std::vector<int32_t> names;
    for (const batching::SequenceTask* sequence : running_[index]->sequences) {
      names.push_back(TaskOf(sequence).token_ids[0]);
    }
    return names;
  }

  // Takes a batch and returns its names; empty if none may start.
  std::vector<int32_t> TakeNames() { return Take() ? names() : std::vector<int32_t>(); }

  // Finishes a running batch, by default the first, after `compute` of fake time.
  void Finish(const absl::Status& status = absl::OkStatus(),
              absl::Duration compute = absl::ZeroDuration(), size_t index = 0) {
    clock_.Advance(compute);
    std::unique_ptr<batching::Batch> batch = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    batcher_.Finish(std::move(batch), status, compute);
  }

  // Runs everything that may start now, one batch after the other.
  void RunAll(absl::Duration compute = absl::ZeroDuration()) {
    while (!running_.empty()) Finish(absl::OkStatus(), compute);
    while (Take()) Finish(absl::OkStatus(), compute);
  }

 private:
  batching::Batcher& batcher_;
  FakeClock& clock_;
  std::vector<std::unique_ptr<batching::Batch>> running_;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_PUPPET_ENGINE_H_
