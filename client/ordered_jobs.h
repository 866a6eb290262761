// OrderedJobs: runs jobs on several threads and hands their results over in the order in which the
// jobs were added, so that many calls are in flight and their answers still come in order.
//
//   OrderedJobs jobs(4);
//   while (...) {
//     if (!jobs.Add([=] { auto answer = Call(x); return [=] { return Print(answer); }; })) break;
//   }
//   const bool ok = jobs.Drain();
#ifndef SRU_CLIENT_ORDERED_JOBS_H_
#define SRU_CLIENT_ORDERED_JOBS_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace sru::client {

// One thread adds and drains. Jobs run at the same time as each other; what they return is called
// by one thread, in the order of the jobs.
class OrderedJobs {
 public:
  // Hands a result over; false stops everything: what was not handed over yet is dropped.
  using Finish = std::function<bool()>;
  using Job = std::function<Finish()>;

  // `threads` is at least 1.
  explicit OrderedJobs(int threads);
  // Waits for the jobs, as Drain() does.
  ~OrderedJobs();
  OrderedJobs(const OrderedJobs&) = delete;
  OrderedJobs& operator=(const OrderedJobs&) = delete;

  // Waits while twice as many jobs as threads are not handed over. False, without taking the job,
  // once a Finish has returned false.
  bool Add(Job job);

  // Waits until every job is handed over, or until a Finish returns false; then returns whether all
  // returned true. Nothing can be added afterwards.
  bool Drain();

 private:
  struct Slot {
    Job job;        // of the thread that took it from waiting_
    Finish finish;  // set when the job has run; guarded by mu_
  };

  void RunJobs();
  void HandOver();

  const size_t max_open_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<Slot>> waiting_ ABSL_GUARDED_BY(mu_);  // jobs that no thread has begun
  std::deque<std::shared_ptr<Slot>> open_ ABSL_GUARDED_BY(mu_);     // not handed over, in order
  bool closed_ ABSL_GUARDED_BY(mu_) = false;                        // nothing more will be added
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;                       // a Finish returned false
  std::vector<std::thread> threads_;  // of the thread that adds and drains
};

}  // namespace sru::client

#endif  // SRU_CLIENT_ORDERED_JOBS_H_
