#include "server/rpc/unsent_answers.h"

#include <algorithm>

namespace sru::server::rpc {

UnsentAnswers::~UnsentAnswers() { Stop(); }

void UnsentAnswers::Start() {
  if (timeout_ == absl::InfiniteDuration()) return;
  thread_ = std::thread([this] { Run(); });
}

void UnsentAnswers::Stop() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  stop_changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void UnsentAnswers::Add(UnsentAnswer* answer) {
  MutexLock lock(&mutex_);
  // Keeps the list in the order of its times even if the clock is set back.
  answer->due_ = clock_.Now() + timeout_;
  if (newest_ != nullptr) answer->due_ = std::max(answer->due_, newest_->due_);
  answer->previous_ = newest_;
  answer->next_ = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->next_) = answer;
  newest_ = answer;
  answer->listed_ = true;
  ++count_;
}

void UnsentAnswers::Unlink(UnsentAnswer* answer) {
  (answer->previous_ == nullptr ? oldest_ : answer->previous_->next_) = answer->next_;
  (answer->next_ == nullptr ? newest_ : answer->next_->previous_) = answer->previous_;
  answer->listed_ = false;
}

bool UnsentAnswers::Remove(UnsentAnswer* answer) {
  MutexLock lock(&mutex_);
  if (answer->listed_) Unlink(answer);
  if (--count_ == 0) none_.SignalAll();
  if (answer->abandoning_ && abandoner_ == std::this_thread::get_id()) {
    answer->removed_ = true;
    return false;
  }
  while (answer->abandoning_) abandoned_changed_.Wait(&mutex_);
  return true;
}

absl::Time UnsentAnswers::CloseLate() {
  const absl::Time now = clock_.Now();
  mutex_.Lock();
  while (oldest_ != nullptr && oldest_->due_ <= now) {
    UnsentAnswer* const answer = oldest_;
    Unlink(answer);
    answer->abandoning_ = true;
    abandoner_ = std::this_thread::get_id();
    mutex_.Unlock();
    abandoned_.fetch_add(1, std::memory_order_relaxed);
    answer->Abandon();
    mutex_.Lock();
    answer->abandoning_ = false;
    abandoned_changed_.SignalAll();
    if (!answer->removed_) continue;
    mutex_.Unlock();
    answer->Release();
    mutex_.Lock();
  }
  // Answers that come from now on are due later than that.
  const absl::Time next = oldest_ == nullptr ? now + timeout_ : oldest_->due_;
  mutex_.Unlock();
  return next;
}

bool UnsentAnswers::WaitUntilNone(absl::Duration timeout) {
  return WaitUntil(&mutex_, &none_, timeout,
                   [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return count_ == 0; });
}

int64_t UnsentAnswers::count() const {
  MutexLock lock(&mutex_);
  return count_;
}

void UnsentAnswers::Run() {
  for (;;) {
    const absl::Duration wait = CloseLate() - clock_.Now();
    MutexLock lock(&mutex_);
    if (!stop_) stop_changed_.WaitFor(&mutex_, wait);
    if (stop_) return;
  }
}

}  // namespace sru::server::rpc
