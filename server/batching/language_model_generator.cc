#include "server/batching/language_model_generator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"

namespace sru::server::batching {
namespace {

absl::Status DrainStatus() {
  return absl::UnavailableError(
      "the server is shutting down; go on from the state on another replica");
}

class LanguageModelGeneratorImpl : public LanguageModelGenerator, private StepListener {
 public:
  LanguageModelGeneratorImpl(const LanguageModelGeneratorOptions& options, const Clock* clock,
                             GenerateObserver* observer)
      : options_(options), clock_(clock), observer_(observer) {}

  // Before anything else.
  absl::Status MakeWorkers(std::vector<std::unique_ptr<StepRunner>> runners) {
    StepWorkersOptions options = options_;
    options.workers = "workers that generate";
    options.drain_status = DrainStatus();
    auto workers = StepWorkers::Create(std::move(runners), options, clock_, this);
    if (!workers.ok()) return workers.status();
    workers_ = *std::move(workers);
    return absl::OkStatus();
  }

  StepWorkers& workers() override { return *workers_; }

  absl::StatusOr<GenerateHandle> Submit(GenerateTask&& task, absl::Duration* retry_after) override {
    if (absl::Status status = Check(task); !status.ok()) return status;
    SequenceRequest request;
    request.priority = task.priority;
    request.deadline = task.deadline;
    request.least_steps = std::max(1, task.min_new_tokens);
    request.sequence =
        std::make_unique<GenerateSequence>(std::move(task), options_.model, clock_->Now());
    return workers_->scheduler().Submit(std::move(request), retry_after);
  }

  absl::Status CheckAdmission(int64_t prompt_tokens, Priority priority, absl::Time deadline,
                              absl::Duration* retry_after) override {
    return workers_->scheduler().CheckAdmission(prompt_tokens, priority, deadline, retry_after);
  }
  void Cancel(const GenerateHandle& handle) override { workers_->scheduler().Cancel(handle); }
  void Pause(const GenerateHandle& handle) override { workers_->scheduler().Pause(handle); }
  void Resume(const GenerateHandle& handle) override { workers_->scheduler().Resume(handle); }

  bool Drain(absl::Time deadline) override { return workers_->Drain(deadline); }

  GeneratorStats stats() const override {
    const SchedulerStats scheduled = workers_->scheduler().stats();
    GeneratorStats stats;
    stats.running = scheduled.running;
    stats.waiting = scheduled.waiting;
    stats.paused = scheduled.paused;
    stats.waiting_tokens = scheduled.waiting_rows;
    stats.steps = steps_.load(std::memory_order_relaxed);
    stats.prompt_tokens = prompt_tokens_.load(std::memory_order_relaxed);
    stats.new_tokens = new_tokens_.load(std::memory_order_relaxed);
    stats.expired = scheduled.expired;
    stats.cancelled = scheduled.cancelled;
    stats.replayed = scheduled.replayed;
    stats.rejected = scheduled.rejected;
    return stats;
  }

 private:
  absl::Status Check(const GenerateTask& task) const {
    const auto bad = [](const char* field, const auto& expected, const auto& found) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": expected ", expected, ", found ", found));
    };
    if (task.prompt.empty() && task.state == nullptr) {
      return bad("prompt", "at least one token, or a state", "none");
    }
    for (const int32_t id : task.prompt) {
      if (id < 0 || id >= options_.vocabulary_size) {
        return bad("prompt", absl::StrCat("token ids from 0 to ", options_.vocabulary_size - 1),
                   id);
      }
    }
    if (task.num_samples < 1 || task.num_samples > kMaxSamples) {
      return bad("num_samples", absl::StrCat("1 to ", kMaxSamples), task.num_samples);
    }
    if (task.max_new_tokens < 1) return bad("max_new_tokens", "at least 1", task.max_new_tokens);
    if (task.min_new_tokens < 0 || task.min_new_tokens > task.max_new_tokens) {
      return bad("min_new_tokens",
                 absl::StrCat("0 to max_new_tokens, which is ", task.max_new_tokens),
                 task.min_new_tokens);
    }
    for (const int32_t id : task.stop_token_ids) {
      if (id < 0 || id >= options_.vocabulary_size) {
        return bad("stop_token_ids",
                   absl::StrCat("token ids from 0 to ", options_.vocabulary_size - 1), id);
      }
    }
    return models::ValidateSampling(task.sampling, options_.vocabulary_size);
  }

  void OnStep(Step& step, const absl::Status& status, absl::Time start, absl::Time now) override {
    int new_tokens = 0;
    int prompt_tokens = step.fed_rows();
    for (StepShare& share : step.shares()) {
      prompt_tokens -= share.unused;
      auto& sequence = static_cast<GenerateSequence&>(*share.sequence);
      const int tokens = sequence.TakeNewTokens();
      if (tokens == 0) continue;
      new_tokens += tokens;
      if (observer_ != nullptr) {
        if (sequence.last_tokens == absl::InfinitePast()) {
          observer_->OnFirstToken(now - sequence.submitted());
        } else {
          observer_->OnNextToken(now - sequence.last_tokens, tokens);
        }
      }
      sequence.last_tokens = now;
    }
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (status.ok()) prompt_tokens_.fetch_add(prompt_tokens, std::memory_order_relaxed);
    new_tokens_.fetch_add(new_tokens, std::memory_order_relaxed);
    if (observer_ != nullptr) {
      observer_->OnStep(static_cast<int>(step.shares().size()), prompt_tokens, new_tokens,
                        now - start, status);
    }
  }

  const LanguageModelGeneratorOptions options_;
  const Clock* const clock_;
  GenerateObserver* const observer_;
  std::atomic<int64_t> steps_{0};
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> new_tokens_{0};
  std::unique_ptr<StepWorkers> workers_;  // last: they use what is above
};

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModelGenerator>> LanguageModelGenerator::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const LanguageModelGeneratorOptions& options,
    const Clock* clock, GenerateObserver* observer) {
  auto generator = std::make_unique<LanguageModelGeneratorImpl>(options, clock, observer);
  if (absl::Status status = generator->MakeWorkers(std::move(runners)); !status.ok()) return status;
  return generator;
}

}  // namespace sru::server::batching
