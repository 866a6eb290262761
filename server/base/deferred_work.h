// DeferredWork: while one lives on a thread, the callbacks that are scheduled from there and the
// answers that are written from there are kept, and are run and sent on the same thread when the
// outermost one ends. So the answers of a batch leave in one piece a connection, and no other
// thread is woken for what comes after them.
//
//   DeferredWork deferred;
//   for (...) { ... write an answer ... }
//
// Who can keep work says so with SetKeeper() (transport's event engine, which not every gRPC can
// have); without one nothing is deferred.
#ifndef SRU_SERVER_BASE_DEFERRED_WORK_H_
#define SRU_SERVER_BASE_DEFERRED_WORK_H_

#include <atomic>

namespace sru::server {

class DeferredWork {
 public:
  // Thread-safe; both are called on the thread whose work it is, nested ones too.
  class Keeper {
   public:
    virtual ~Keeper() = default;
    virtual void Begin() = 0;
    virtual void End() = 0;
  };

  // For all that begin from now on. It is never destroyed.
  static void SetKeeper(Keeper* keeper) { keeper_.store(keeper, std::memory_order_release); }
  static bool has_keeper() { return keeper_.load(std::memory_order_acquire) != nullptr; }

  DeferredWork() : kept_by_(keeper_.load(std::memory_order_acquire)) {
    if (kept_by_ != nullptr) kept_by_->Begin();
  }
  ~DeferredWork() {
    if (kept_by_ != nullptr) kept_by_->End();
  }
  DeferredWork(const DeferredWork&) = delete;
  DeferredWork& operator=(const DeferredWork&) = delete;

 private:
  static inline std::atomic<Keeper*> keeper_{nullptr};

  Keeper* const kept_by_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_DEFERRED_WORK_H_
