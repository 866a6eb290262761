// PuppetGenerator: a generator that does only what a test tells it to: send this chunk to that call's
// sink, end that call. It has no threads and no model.
//
//   PuppetGenerator generator;
//   ... something calls generator.Submit() ...
//   generator.Send(0, {.text = "a"});
//   generator.Finish(0, absl::OkStatus());
#ifndef SRU_TESTS_TESTING_PUPPET_GENERATOR_H_
#define SRU_TESTS_TESTING_PUPPET_GENERATOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/batching/generator.h"

namespace sru::server {

// Thread-safe; the functions of the test's side refer to calls by the order in which they came.
class PuppetGenerator : public batching::Generator {
 public:
  absl::StatusOr<batching::GenerateHandle> Submit(batching::GenerateTask&& task,
                                                  absl::Duration* retry_after) override {
    MutexLock lock(&mutex_);
    if (!refusal_.ok()) {
      if (retry_after != nullptr) *retry_after = retry_after_;
      return refusal_;
    }
    calls_.emplace_back();
    calls_.back().task = std::move(task);
    // The handle owns nothing and points at the call, which lives as long as the puppet.
    return batching::GenerateHandle(std::shared_ptr<void>(),
                                    reinterpret_cast<batching::ScheduledSequence*>(&calls_.back()));
  }
  absl::Status CheckAdmission(int64_t /*prompt_tokens*/, batching::Priority /*priority*/,
                              absl::Time /*deadline*/, absl::Duration* retry_after) override {
    MutexLock lock(&mutex_);
    if (!refusal_.ok() && retry_after != nullptr) *retry_after = retry_after_;
    return refusal_;
  }
  void Cancel(const batching::GenerateHandle& handle) override {
    batching::GenerateSink* sink = nullptr;
    {
      MutexLock lock(&mutex_);
      Call& call = *reinterpret_cast<Call*>(handle.get());
      ++call.cancels;
      if (!cancel_ends_ || call.done) return;
      call.done = true;
      sink = call.task.sink;
    }
    sink->OnDone(absl::CancelledError("the caller cancelled the call"), batching::GenerateTimes());
  }
  void Pause(const batching::GenerateHandle& handle) override { SetPaused(handle, true); }
  void Resume(const batching::GenerateHandle& handle) override { SetPaused(handle, false); }
  bool Drain(absl::Time /*deadline*/) override {
    Refuse(absl::UnavailableError("the server is shutting down"));
    return true;
  }
  batching::GeneratorStats stats() const override {
    MutexLock lock(&mutex_);
    batching::GeneratorStats stats;
    for (const Call& call : calls_) {
      if (!call.done) ++(call.paused ? stats.paused : stats.running);
    }
    return stats;
  }

  // What the next calls of Submit() and CheckAdmission() return; OK = they are admitted again.
  void Refuse(const absl::Status& status, absl::Duration retry_after = absl::ZeroDuration()) {
    MutexLock lock(&mutex_);
    refusal_ = status;
    retry_after_ = retry_after;
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
  const batching::GenerateTask& task(size_t index) const {
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
  void Send(size_t index, batching::GeneratedChunk chunk) {
    batching::GenerateSink* sink = nullptr;
    {
      MutexLock lock(&mutex_);
      if (calls_[index].done) return;
      sink = calls_[index].task.sink;
    }
    sink->OnChunk(std::move(chunk));
  }
  void Finish(size_t index, const absl::Status& status, const batching::GenerateTimes& times = {}) {
    batching::GenerateSink* sink = nullptr;
    {
      MutexLock lock(&mutex_);
      if (calls_[index].done) return;
      calls_[index].done = true;
      sink = calls_[index].task.sink;
    }
    sink->OnDone(status, times);
  }

 private:
  struct Call {
    batching::GenerateTask task;
    bool paused = false;
    bool done = false;
    int cancels = 0;
  };

  void SetPaused(const batching::GenerateHandle& handle, bool paused) {
    MutexLock lock(&mutex_);
    reinterpret_cast<Call*>(handle.get())->paused = paused;
  }

  mutable Mutex mutex_;
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  absl::Duration retry_after_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  bool cancel_ends_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_PUPPET_GENERATOR_H_
