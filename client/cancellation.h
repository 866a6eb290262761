// Cancellation: ends a call from another thread than the one that waits for it.
//
//   Cancellation cancellation;
//   CallOptions options;
//   options.cancellation = &cancellation;
//   client->Generate(request, on_response, options);   // kCancelled once another thread has called
//                                                      // cancellation.Cancel()
#ifndef SRU_CLIENT_CANCELLATION_H_
#define SRU_CLIENT_CANCELLATION_H_

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace sru::client {

// Thread-safe, but not async-signal-safe: a program that ends calls at a signal waits for it in a
// thread (sigwait). Serves one call at a time and must outlive it.
class Cancellation {
 public:
  // Ends the call that runs, and every later one at its start.
  void Cancel() {
    MutexLock lock(&mu_);
    cancelled_ = true;
    if (end_call_ != nullptr) end_call_();
  }

  bool cancelled() const {
    MutexLock lock(&mu_);
    return cancelled_;
  }

  // While it lives, Cancel() calls `end_call`. Does nothing if `cancellation` is null.
  class Scope {
   public:
    Scope(Cancellation* cancellation, std::function<void()> end_call)
        : cancellation_(cancellation) {
      if (cancellation_ == nullptr) return;
      MutexLock lock(&cancellation_->mu_);
      if (cancellation_->cancelled_) end_call();
      cancellation_->end_call_ = std::move(end_call);
    }
    ~Scope() {
      if (cancellation_ == nullptr) return;
      MutexLock lock(&cancellation_->mu_);
      cancellation_->end_call_ = nullptr;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation* const cancellation_;
  };

 private:
  mutable Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> end_call_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sru::client

#endif  // SRU_CLIENT_CANCELLATION_H_
