// BatcherTest: a batcher in fake time with a puppet for its workers, and the answers that its
// requests got, by name (puppet_engine.h).
#ifndef SRU_TESTS_TESTING_BATCHER_FIXTURE_H_
#define SRU_TESTS_TESTING_BATCHER_FIXTURE_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"
#include "server/batching/queue/batcher.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server {

inline absl::Duration Ms(double ms) { return absl::Milliseconds(ms); }

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

// The seed of the random tests; the environment variable repeats a run.
inline uint64_t Seed() {
  const char* seed = std::getenv("SRU_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 20180901;
}

// Makes the batcher answer expired requests, as it does for a worker that looks for work, without
// taking any work.
inline void AnswerExpired(batching::Batcher& batcher) {
  EXPECT_EQ(batcher.TryTakeBatchWithin({0, 0}, /*strictly=*/true), nullptr);
}

class BatcherTest : public ::testing::Test {
 protected:
  struct Answer {
    absl::Status status;
    batching::RequestTimes times;
  };

  BatcherTest() {
    options_.max_batch_tokens = 100;
    options_.max_batch_sequences = 10;
    options_.max_queue_tokens = 1000;
    options_.max_queue_sequences = 100;
    options_.ageing_interval = Ms(500);
  }

  // Serves everything that waits and runs, and checks that the counts then balance.
  void TearDown() override {
    if (batcher_ == nullptr) return;
    batcher_->Close();
    puppet_->RunAll();
    const batching::BatcherStats stats = batcher_->stats();
    EXPECT_EQ(stats.queued_sequences, 0);
    EXPECT_EQ(stats.queued_tokens, 0);
    EXPECT_EQ(stats.running_batches, 0);
    EXPECT_EQ(stats.oldest_age, absl::ZeroDuration());
    EXPECT_TRUE(batcher_->IsDone());
    EXPECT_EQ(batcher_->Next(clock_.Now()).at, absl::InfiniteFuture());
    for (const auto& [name, handle] : handles_) {
      EXPECT_EQ(answers_[name].size(), 1u) << "request " << name;
    }
  }

  void Start() {
    auto batcher = batching::Batcher::Create(options_, &clock_);
    ASSERT_TRUE(batcher.ok()) << batcher.status();
    batcher_ = *std::move(batcher);
    puppet_ = std::make_unique<PuppetEngine>(batcher_.get(), &clock_);
  }

  absl::Status Submit(int32_t name, const std::vector<int>& lengths,
                      batching::Priority priority = batching::Priority::kNormal,
                      absl::Duration timeout = absl::InfiniteDuration()) {
    batching::BatchRequest request = MakeRequest(name, lengths);
    request.priority = priority;
    request.deadline = clock_.Now() + timeout;
    request.done = [this, name](const absl::Status& status, const batching::RequestTimes& times) {
      answers_[name].push_back({status, times});
    };
    absl::StatusOr<batching::RequestHandle> handle = batcher_->Submit(std::move(request));
    retry_after_ = RetryAfterOf(handle.status()).value_or(absl::ZeroDuration());
    if (handle.ok()) {
      EXPECT_NE(*handle, nullptr);
      EXPECT_TRUE(request.sequences.empty());  // NOLINT: consumed
      handles_[name] = *handle;
    } else {  // not consumed
      EXPECT_EQ(request.sequences.size(), lengths.size());
      EXPECT_TRUE(request.done);
      EXPECT_THAT(answers_[name], ::testing::IsEmpty());
    }
    return handle.status();
  }

  void Sweep() { AnswerExpired(*batcher_); }

  void Accept(int32_t name, const std::vector<int>& lengths,
              batching::Priority priority = batching::Priority::kNormal,
              absl::Duration timeout = absl::InfiniteDuration()) {
    const absl::Status status = Submit(name, lengths, priority, timeout);
    EXPECT_TRUE(status.ok()) << status;
  }

  bool answered(int32_t name) { return !answers_[name].empty(); }
  absl::StatusCode code(int32_t name) {
    EXPECT_EQ(answers_[name].size(), 1u) << "request " << name;
    return answers_[name].empty() ? absl::StatusCode::kUnknown : answers_[name][0].status.code();
  }

  // Runs `count` batches of one sequence each.
  void Learn(int tokens, absl::Duration compute, int count) {
    for (int i = 0; i < count; ++i) {
      Accept(next_learn_, {tokens});
      ASSERT_TRUE(puppet_->Take());
      puppet_->Finish(absl::OkStatus(), compute);
      EXPECT_EQ(code(next_learn_), absl::StatusCode::kOk);
      ++next_learn_;
    }
  }

  batching::BatcherOptions options_;
  FakeClock clock_;
  std::unique_ptr<batching::Batcher> batcher_;
  std::unique_ptr<PuppetEngine> puppet_;
  std::map<int32_t, std::vector<Answer>> answers_;
  std::map<int32_t, batching::RequestHandle> handles_;
  absl::Duration retry_after_;
  int32_t next_learn_ = 1000000;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_BATCHER_FIXTURE_H_
