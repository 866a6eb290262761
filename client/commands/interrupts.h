// Interrupts: Ctrl-C ends what runs, and not the program.
#ifndef SRU_CLIENT_COMMANDS_INTERRUPTS_H_
#define SRU_CLIENT_COMMANDS_INTERRUPTS_H_

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace sru::client {

// While it lives, SIGINT calls a function. Make it before any other thread: a thread that has been
// started earlier would take the signal, which ends the program.
class Interrupts {
 public:
  Interrupts() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
    thread_ = std::thread([this] { Wait(); });
  }
  ~Interrupts() {
    {
      MutexLock lock(&mu_);
      closed_ = true;
    }
    pthread_kill(thread_.native_handle(), SIGINT);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Called from a thread of this object at each SIGINT from now on; null = nothing. When this
  // returns, the function before it is no longer in use.
  void SetHandler(std::function<void()> handler) {
    MutexLock lock(&mu_);
    handler_ = std::move(handler);
  }

 private:
  void Wait() {
    for (int signal_number = 0; sigwait(&signals_, &signal_number) == 0;) {
      MutexLock lock(&mu_);
      if (closed_) return;
      if (handler_ != nullptr) handler_();
    }
  }

  // Constant once the thread runs.
  sigset_t signals_;
  sigset_t previous_;
  Mutex mu_;
  std::function<void()> handler_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_INTERRUPTS_H_
