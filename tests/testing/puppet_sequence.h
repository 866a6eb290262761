// PuppetSequence: a sequence of steps that is fed a prompt and then makes tokens, each a function
// of all rows before it, so that one that is fed wrongly, such as after a replay, is found by its
// tokens. Advance() is the run of its part of a step.
#ifndef SRU_TESTS_TESTING_PUPPET_SEQUENCE_H_
#define SRU_TESTS_TESTING_PUPPET_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "server/batching/steps/step_runner.h"

namespace sru::server {

// What a sequence has come to. Outlives it.
class PuppetOutcome {
 public:
  void Deliver(std::vector<uint64_t> tokens) {
    MutexLock lock(&mutex_);
    EXPECT_EQ(ends_, 0) << "delivered after the end";
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  void End(const absl::Status& status, const batching::RequestTimes& times, bool has_state) {
    {
      MutexLock lock(&mutex_);
      ++ends_;
      status_ = status;
      times_ = times;
      has_state_ = has_state;
    }
    if (on_end) on_end();
  }

  int ends() const {
    MutexLock lock(&mutex_);
    return ends_;
  }
  absl::Status status() const {
    MutexLock lock(&mutex_);
    return status_;
  }
  batching::RequestTimes times() const {
    MutexLock lock(&mutex_);
    return times_;
  }
  // Whether it could be gone on from when it ended.
  bool has_state() const {
    MutexLock lock(&mutex_);
    return has_state_;
  }
  std::vector<uint64_t> tokens() const {
    MutexLock lock(&mutex_);
    return tokens_;
  }

  std::function<void()> on_end;

 private:
  mutable Mutex mutex_;
  int ends_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  batching::RequestTimes times_ ABSL_GUARDED_BY(mutex_);
  bool has_state_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> tokens_ ABSL_GUARDED_BY(mutex_);
};

class PuppetSequence : public batching::StepSequence {
 public:
  struct Plan {
    uint64_t name = 0;
    int64_t prompt = 1;
    int tokens = 1;      // after which it ends
    int branches = 1;    // rows of a step once it decodes; they all make the same tokens
    bool whole = false;  // the prompt, in one step
  };

  PuppetSequence(const Plan& plan, PuppetOutcome* outcome) : plan_(plan), outcome_(outcome) {}

  // The tokens of a run without any disturbance.
  static std::vector<uint64_t> Expected(const Plan& plan) {
    std::vector<uint64_t> tokens;
    uint64_t state = 0;
    for (int64_t i = 0; i < plan.prompt; ++i) state = Next(state, plan.name);
    while (tokens.size() < static_cast<size_t>(plan.tokens)) {
      tokens.push_back(state);
      state = Next(state, tokens.back());
    }
    return tokens;
  }

  const Plan& plan() const { return plan_; }
  int rewinds() const { return rewinds_; }

  // Runs `rows` rows.
  void Advance(int rows) {
    const int64_t pending = Pending();
    if (need().decoding) {
      EXPECT_EQ(rows, plan_.branches);
      rows = 1;
    }
    ASSERT_GE(rows, 1);
    ASSERT_LE(rows, pending);
    if (need().whole) {
      ASSERT_EQ(rows, pending);
    }
    holds_ = true;
    for (int i = 0; i < rows; ++i, ++fed_) {
      state_ = Next(state_, fed_ < plan_.prompt ? plan_.name : tokens_[fed_ - plan_.prompt]);
    }
    if (rows < pending || suspended_) return;
    tokens_.push_back(state_);
    MutexLock lock(&mutex_);
    undelivered_.push_back(state_);
  }

  batching::StepNeed need() const override {
    batching::StepNeed need;
    need.has_result = !tokens_.empty();
    if (tokens_.size() >= static_cast<size_t>(plan_.tokens)) {
      need.done = true;
      return need;
    }
    const int64_t pending = Pending();
    if (suspended_ && (pending == 0 || tokens_.empty())) {
      need.done = need.cut_off = true;
      return need;
    }
    need.decoding = pending == 1 && !tokens_.empty();
    need.whole = plan_.whole && !need.decoding;
    need.rows = need.decoding ? plan_.branches : pending;
    need.branches = need.decoding ? plan_.branches : 1;
    return need;
  }
  bool holds_state() const override { return holds_; }
  void Rewind() override {
    ++rewinds_;
    holds_ = false;
    fed_ = 0;
    state_ = 0;
  }
  void Suspend() override { suspended_ = true; }
  void Deliver() override {
    MutexLock lock(&mutex_);
    if (ended_ || undelivered_.empty()) return;
    outcome_->Deliver(std::move(undelivered_));
    undelivered_.clear();
  }
  void End(const absl::Status& status, const batching::RequestTimes& times) override {
    Deliver();
    PuppetOutcome* outcome = nullptr;
    {
      MutexLock lock(&mutex_);
      ended_ = true;
      outcome = outcome_;
    }
    outcome->End(status, times, suspended_ && !tokens_.empty());
  }

 private:
  static uint64_t Next(uint64_t state, uint64_t row) {
    uint64_t x = (state ^ row) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 27);
  }

  int64_t Pending() const { return plan_.prompt + static_cast<int64_t>(tokens_.size()) - fed_; }

  const Plan plan_;
  PuppetOutcome* const outcome_;
  int64_t fed_ = 0;
  uint64_t state_ = 0;
  std::vector<uint64_t> tokens_;
  bool holds_ = false;
  bool suspended_ = false;
  int rewinds_ = 0;
  Mutex mutex_;
  std::vector<uint64_t> undelivered_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_PUPPET_SEQUENCE_H_
