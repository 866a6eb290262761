// Compares the batcher with a slow, obvious model of its rules: after random steps, both must have
// given the same answers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/batcher.h"
#include "tests/testing/batcher_fixture.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAreArray;

// The rules of batcher.h (without admission by deadline) on plain vectors, read off the comment.
class ObviousBatcher {
 public:
  struct Entry {
    int32_t name;
    int64_t rank;
    absl::Time deadline;
    absl::Time arrival;
    std::vector<int> lengths;  // that wait
    int running = 0;
    int passes = 0;
    bool overtaken = false;
    absl::Status status;
  };

  explicit ObviousBatcher(const BatcherOptions& options, absl::Time start)
      : options_(options), start_(start) {}

  absl::StatusCode Submit(int32_t name, const std::vector<int>& lengths, Priority priority,
                          absl::Time deadline, absl::Time now) {
    if (deadline <= now) return absl::StatusCode::kDeadlineExceeded;
    int64_t tokens = QueuedTokens();
    int64_t sequences = QueuedSequences();
    for (int length : lengths) tokens += length, ++sequences;
    if (tokens > options_.max_queue_tokens || sequences > options_.max_queue_sequences) {
      return absl::StatusCode::kResourceExhausted;
    }
    const int64_t tick = (now - start_) / options_.ageing_interval;
    entries_.push_back(
        {name, tick - static_cast<int>(priority), deadline, now, lengths, 0, 0, false, {}});
    return absl::StatusCode::kOk;
  }

  void End(int32_t name, const absl::Status& status) {
    Entry* entry = Find(name);
    if (entry == nullptr || entry->lengths.empty()) return;
    entry->lengths.clear();
    entry->status.Update(status);
    Collect();
  }

  void Expire(absl::Time now) {
    std::vector<int32_t> names;
    for (const Entry& entry : entries_) {
      if (entry.deadline <= now) names.push_back(entry.name);
    }
    for (int32_t name : names) End(name, absl::DeadlineExceededError(""));
  }

  void CancelAt(int32_t name, absl::Time now) {
    Entry* entry = Find(name);
    if (entry == nullptr) return;
    End(name, entry->deadline <= now ? absl::DeadlineExceededError("") : absl::CancelledError(""));
  }

  // Names, one per sequence; `lengths` likewise.
  std::vector<int32_t> Take(absl::Time now, std::vector<int>* taken_lengths) {
    Expire(now);
    std::vector<int32_t> names;
    if (QueuedSequences() == 0) return names;
    absl::Time oldest = absl::InfiniteFuture();
    for (const Entry& entry : entries_) {
      if (!entry.lengths.empty()) oldest = std::min(oldest, entry.arrival);
    }
    if (now < oldest + options_.max_queue_delay && QueuedTokens() < options_.max_batch_tokens &&
        QueuedSequences() < options_.max_batch_sequences) {
      return names;
    }
    std::vector<Entry*> order;
    for (Entry& entry : entries_) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
      if (a->overtaken != b->overtaken) return a->overtaken;
      if (a->overtaken) return false;  // by arrival
      return std::tie(a->rank, a->deadline) < std::tie(b->rank, b->deadline);
    });
    int budget = options_.max_batch_tokens;
    int skipped = 0;
    std::vector<Entry*> passed;
    std::vector<Entry*> overtaken;
    for (Entry* entry : order) {
      for (size_t i = 0; i < entry->lengths.size();) {
        if (budget == 0 || static_cast<int>(names.size()) == options_.max_batch_sequences) break;
        const int length = entry->lengths[i];
        if (length > budget) {
          if (skipped == (options_.max_passes == 0 ? 0 : kMaxLookPast)) {
            budget = 0;
            break;
          }
          ++skipped;
          passed.push_back(entry);
          ++i;
          continue;
        }
        for (Entry* other : passed) {
          if (other != entry) overtaken.push_back(other);
        }
        budget -= length;
        names.push_back(entry->name);
        taken_lengths->push_back(length);
        ++entry->running;
        entry->lengths.erase(entry->lengths.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    std::sort(overtaken.begin(), overtaken.end());
    overtaken.erase(std::unique(overtaken.begin(), overtaken.end()), overtaken.end());
    for (Entry* entry : overtaken) {
      if (++entry->passes == options_.max_passes) entry->overtaken = true;
    }
    return names;
  }

  void Finish(const std::vector<int32_t>& names, const absl::Status& status) {
    for (int32_t name : names) {
      Entry* entry = Find(name);
      --entry->running;
      entry->status.Update(status);
      if (!entry->status.ok()) entry->lengths.clear();
    }
    Collect();
  }

  void Abort(const absl::Status& status) {
    std::vector<int32_t> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    for (int32_t name : names) End(name, status);
  }

  int64_t QueuedTokens() const {
    int64_t tokens = 0;
    for (const Entry& entry : entries_) {
      for (int length : entry.lengths) tokens += length;
    }
    return tokens;
  }
  int64_t QueuedSequences() const {
    int64_t sequences = 0;
    for (const Entry& entry : entries_) sequences += static_cast<int64_t>(entry.lengths.size());
    return sequences;
  }

  std::map<int32_t, absl::StatusCode> answers;

 private:
  Entry* Find(int32_t name) {
    for (Entry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  void Collect() {
    for (size_t i = 0; i < entries_.size();) {
      if (entries_[i].lengths.empty() && entries_[i].running == 0) {
        answers[entries_[i].name] = entries_[i].status.code();
        entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

  const BatcherOptions options_;
  const absl::Time start_;
  std::vector<Entry> entries_;  // by arrival
};

void CompareWithObvious(uint64_t seed) {
  SCOPED_TRACE(absl::StrCat("SRU_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  FakeClock clock;
  BatcherOptions options;
  options.max_batch_tokens = 20 + below(100);
  options.max_batch_sequences = 1 + below(20);
  options.max_queue_tokens = options.max_batch_tokens * (1 + below(20));
  options.max_queue_sequences = 20 + below(200);
  options.ageing_interval = Ms(1 + below(40));
  options.max_passes = below(4);
  options.admission_by_deadline = false;
  // The delay yields to deadlines by the learnt speed, which the obvious model does not know.
  const bool deadlines = below(2) == 0;
  options.max_queue_delay = deadlines ? absl::ZeroDuration() : Ms(below(10));
  auto created = Batcher::Create(options, &clock);
  ASSERT_TRUE(created.ok()) << created.status();
  Batcher& batcher = **created;
  ObviousBatcher obvious(options, clock.Now());
  std::map<int32_t, absl::StatusCode> answers;
  std::vector<RequestHandle> handles;  // by name; null when refused
  struct Running {
    std::unique_ptr<Batch> batch;
    std::vector<int32_t> names;
  };
  std::vector<Running> running;
  const auto finish = [&](const absl::Status& status) {
    const size_t index = random() % running.size();
    Running batch = std::move(running[index]);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(index));
    batcher.Finish(std::move(batch.batch), status, Ms(1));
    obvious.Finish(batch.names, status);
  };

  for (int step = 0; step < 400; ++step) {
    const int what = below(100);
    const absl::Time now = clock.Now();
    if (what < 50) {
      const int32_t name = static_cast<int32_t>(handles.size());
      std::vector<int> lengths(below(8) == 0 ? 1 + below(12) : 1);
      for (int& length : lengths) length = 1 + below(below(3) == 0 ? options.max_batch_tokens : 20);
      BatchRequest request = MakeRequest(name, lengths);
      request.priority = static_cast<Priority>(below(3));
      if (deadlines && below(2) == 0) request.deadline = now + Ms(below(60));
      request.done = [&answers, name](const absl::Status& status, const RequestTimes&) {
        EXPECT_TRUE(answers.emplace(name, status.code()).second) << "answered twice: " << name;
      };
      const Priority priority = request.priority;
      const absl::Time deadline = request.deadline;
      int64_t tokens = 0;
      for (int length : lengths) tokens += length;
      auto handle = batcher.Submit(std::move(request));
      if (tokens > options.max_queue_tokens) {
        EXPECT_EQ(handle.status().code(), absl::StatusCode::kInvalidArgument);
      } else {
        EXPECT_EQ(handle.status().code(), obvious.Submit(name, lengths, priority, deadline, now));
      }
      handles.push_back(handle.ok() ? *handle : nullptr);
    } else if (what < 60) {
      clock.Advance(Ms(below(10)));
    } else if (what < 80) {
      std::vector<int> lengths;
      const std::vector<int32_t> names = obvious.Take(now, &lengths);
      std::unique_ptr<Batch> batch = batcher.TryTakeBatch();
      ASSERT_EQ(batch != nullptr, !names.empty());
      if (batch != nullptr) {
        std::vector<int32_t> found_names;
        std::vector<int> found_lengths;
        for (const SequenceTask* sequence : batch->sequences) {
          found_names.push_back(TaskOf(sequence).token_ids[0]);
          found_lengths.push_back(sequence->num_tokens);
        }
        EXPECT_THAT(found_names, ElementsAreArray(names));
        EXPECT_THAT(found_lengths, ElementsAreArray(lengths));
        running.push_back({std::move(batch), names});
      }
    } else if (what < 92) {
      if (!running.empty()) {
        finish(below(10) == 0 ? absl::InternalError("broken") : absl::OkStatus());
      }
    } else if (what < 97) {
      if (!handles.empty()) {
        const int32_t name = below(static_cast<int>(handles.size()));
        batcher.Cancel(handles[name]);
        if (handles[name] != nullptr) obvious.CancelAt(name, now);
      }
    } else if (what < 99) {
      AnswerExpired(batcher);
      obvious.Expire(now);
    } else if (below(5) == 0) {
      batcher.Abort(absl::UnavailableError("aborted"));
      obvious.Abort(absl::UnavailableError("aborted"));
    }
    const BatcherStats stats = batcher.stats();
    ASSERT_EQ(stats.queued_tokens, obvious.QueuedTokens()) << "step " << step;
    ASSERT_EQ(stats.queued_sequences, obvious.QueuedSequences()) << "step " << step;
    ASSERT_EQ(stats.running_batches, static_cast<int64_t>(running.size()));
    ASSERT_EQ(answers, obvious.answers) << "step " << step;
    if (::testing::Test::HasFailure()) break;
  }

  while (!running.empty()) finish(absl::OkStatus());
  batcher.Close();
  batcher.Abort(absl::UnavailableError("end"));
  obvious.Abort(absl::UnavailableError("end"));
  EXPECT_EQ(answers, obvious.answers);
  const size_t accepted = handles.size() - std::count(handles.begin(), handles.end(), nullptr);
  EXPECT_EQ(answers.size(), accepted);
  const BatcherStats stats = batcher.stats();
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.queued_sequences, 0);
}

TEST(BatcherPropertyTest, AgreesWithTheObviousModel) {
  for (uint64_t i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    CompareWithObvious(Seed() + i);
  }
}

}  // namespace
}  // namespace sru::server::batching
