#include "client/ordered_jobs.h"

#include <utility>

namespace sru::client {

OrderedJobs::OrderedJobs(int threads) : max_open_(2 * static_cast<size_t>(threads)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { RunJobs(); });
  threads_.emplace_back([this] { HandOver(); });
}

OrderedJobs::~OrderedJobs() { Drain(); }

bool OrderedJobs::Add(Job job) {
  MutexLock lock(&mu_);
  while (open_.size() >= max_open_ && !stopped_) changed_.Wait(&mu_);
  if (stopped_ || closed_) return false;
  auto slot = std::make_shared<Slot>();
  slot->job = std::move(job);
  waiting_.push_back(slot);
  open_.push_back(std::move(slot));
  changed_.SignalAll();
  return true;
}

bool OrderedJobs::Drain() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  MutexLock lock(&mu_);
  return !stopped_;
}

void OrderedJobs::RunJobs() {
  for (;;) {
    std::shared_ptr<Slot> slot;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !closed_ && !stopped_) changed_.Wait(&mu_);
      if (waiting_.empty() || stopped_) return;
      slot = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Finish finish = slot->job();
    MutexLock lock(&mu_);
    slot->finish = std::move(finish);
    changed_.SignalAll();
  }
}

void OrderedJobs::HandOver() {
  for (;;) {
    Finish finish;
    {
      MutexLock lock(&mu_);
      while (open_.empty() ? !closed_ : !open_.front()->finish) changed_.Wait(&mu_);
      if (open_.empty()) return;
      finish = std::move(open_.front()->finish);
    }
    const bool go_on = finish();
    MutexLock lock(&mu_);
    open_.pop_front();
    stopped_ = !go_on;
    changed_.SignalAll();
    if (stopped_) return;
  }
}

}  // namespace sru::client
