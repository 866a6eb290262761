// PuppetGenerator: a service of steps that does only what a test tells it to: send this chunk to
// that call's sink, end that call. It has no threads and no model.
//
//   PuppetGenerator generator;
//   ... something calls SubmitGenerate(model, generator, task) ...
//   generator.Send(0, {.text = "a"});
//   generator.Finish(0, absl::OkStatus());
#ifndef SRU_TESTS_TESTING_PUPPET_GENERATOR_H_
#define SRU_TESTS_TESTING_PUPPET_GENERATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/batching/steps/step_service.h"
#include "server/tasks/generate/generate_sequence.h"

namespace sru::server {

// Thread-safe; the functions of the test's side refer to calls by the order in which they came.
class PuppetGenerator : public batching::StepService {
 public:
  absl::StatusOr<std::vector<batching::SequenceHandle>> Submit(
      std::vector<batching::SequenceRequest>&& requests) override {
    MutexLock lock(&mutex_);
    if (!refusal_.ok()) return refusal_;
    Call& call = calls_.emplace_back();
    call.handle = std::make_shared<batching::ScheduledSequence>();
    call.handle->sequence = std::move(requests.at(0).sequence);
    call.task = static_cast<tasks::GenerateSequence&>(*call.handle->sequence).task();
    return std::vector<batching::SequenceHandle>{call.handle};
  }
  absl::Status CheckAdmission(int64_t /*rows*/, int64_t /*sequences*/,
                              batching::Priority /*priority*/, absl::Time /*deadline*/,
                              const batching::Flow* /*flow*/) override {
    MutexLock lock(&mutex_);
    return refusal_;
  }
  void Cancel(const batching::SequenceHandle& handle) override {
    tasks::GenerateSink* sink = nullptr;
    {
      MutexLock lock(&mutex_);
      Call& call = CallOf(handle);
      ++call.cancels;
      if (!cancel_ends_ || call.done) return;
      call.done = true;
      sink = call.task.sink;
    }
    sink->OnEnd(absl::CancelledError("the caller cancelled the call"), batching::RequestTimes(), 0);
  }
  void Pause(const batching::SequenceHandle& handle) override { SetPaused(handle, true); }
  void Resume(const batching::SequenceHandle& handle) override { SetPaused(handle, false); }
  batching::StepStats stats() const override {
    MutexLock lock(&mutex_);
    batching::StepStats stats;
    for (const Call& call : calls_) {
      if (!call.done) ++(call.paused ? stats.paused : stats.running);
    }
    return stats;
  }

  // What the next calls of Submit() and CheckAdmission() return; OK = they are admitted again.
  void Refuse(const absl::Status& status) {
    MutexLock lock(&mutex_);
    refusal_ = status;
  }
  // Whether Cancel() ends a call at once, as it does for one that is not in a step. True at first.
  void set_cancel_ends(bool value) {
    MutexLock lock(&mutex_);
    cancel_ends_ = value;
  }

  size_t num_calls() const {
    MutexLock lock(&mutex_);
    return calls_.size();
  }
  // Valid as long as the puppet.
  const tasks::GenerateTask& task(size_t index) const {
    MutexLock lock(&mutex_);
    return calls_[index].task;
  }
  bool paused(size_t index) const {
    MutexLock lock(&mutex_);
    return calls_[index].paused;
  }
  int cancels(size_t index) const {
    MutexLock lock(&mutex_);
    return calls_[index].cancels;
  }
  bool done(size_t index) const {
    MutexLock lock(&mutex_);
    return calls_[index].done;
  }

  // Nothing once the call is done.
  void Send(size_t index, tasks::GeneratedChunk chunk) {
    tasks::GenerateSink* sink = nullptr;
    {
      MutexLock lock(&mutex_);
      if (calls_[index].done) return;
      calls_[index].generated_tokens += chunk.generated_tokens;
      sink = calls_[index].task.sink;
    }
    sink->OnChunk(std::move(chunk));
  }
  void Finish(size_t index, const absl::Status& status, const batching::RequestTimes& times = {}) {
    tasks::GenerateSink* sink = nullptr;
    int64_t tokens = 0;
    {
      MutexLock lock(&mutex_);
      if (calls_[index].done) return;
      calls_[index].done = true;
      tokens = calls_[index].generated_tokens;
      sink = calls_[index].task.sink;
    }
    sink->OnEnd(status, times, tokens);
  }

 private:
  struct Call {
    batching::SequenceHandle handle;
    tasks::GenerateTask task;
    int64_t generated_tokens = 0;
    bool paused = false;
    bool done = false;
    int cancels = 0;
  };

  Call& CallOf(const batching::SequenceHandle& handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return *std::find_if(calls_.begin(), calls_.end(),
                         [&](const Call& call) { return call.handle == handle; });
  }
  void SetPaused(const batching::SequenceHandle& handle, bool paused) {
    MutexLock lock(&mutex_);
    CallOf(handle).paused = paused;
  }

  mutable Mutex mutex_;
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool cancel_ends_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_PUPPET_GENERATOR_H_
