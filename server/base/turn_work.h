// TurnWork: what the thread of an event loop puts off until it has looked at all that has come, so
// that it is done once for all of it.
//
//   // Runs soon, on this thread.
//   if (TurnWorkList* const list = TurnWorkList::OfThisThread()) list->Add(work);
#ifndef SRU_SERVER_BASE_TURN_WORK_H_
#define SRU_SERVER_BASE_TURN_WORK_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace sru::server {

class TurnWork {
 public:
  virtual ~TurnWork() = default;
  // Called before, at the end of each turn in which it was added: what must not wait until the
  // thread has looked at all that has come.
  virtual void RunUrgent() {}
  // `in_time`: nothing that has come waits for the thread, so that it may take a moment.
  virtual void RunInTurn(bool in_time) = 0;
};

// The loop's, which runs it. Used by its thread.
class TurnWorkList {
 public:
  // Null on a thread that runs no loop.
  static TurnWorkList* OfThisThread() { return of_this_thread_; }
  // From now on the list is this thread's.
  void SetForThisThread() { of_this_thread_ = this; }

  // Runs once, however often it is added before that.
  void Add(const std::shared_ptr<TurnWork>& work) {
    if (std::find(work_.begin(), work_.end(), work) == work_.end()) work_.push_back(work);
  }
  bool empty() const { return work_.empty(); }
  void RunUrgent() {
    for (size_t i = 0; i < work_.size(); ++i) work_[i]->RunUrgent();
  }
  // Runs what was added before.
  void RunAll(bool in_time) {
    std::vector<std::shared_ptr<TurnWork>> running;
    running.swap(work_);
    for (const auto& work : running) work->RunInTurn(in_time);
  }

 private:
  static inline thread_local TurnWorkList* of_this_thread_ = nullptr;

  std::vector<std::shared_ptr<TurnWork>> work_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_TURN_WORK_H_
