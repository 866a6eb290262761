#include "server/batching/model_translations.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace sru::server::batching {
namespace {

// Of the newest translation, in how long translations are.
constexpr double kNewestWeight = 1.0 / 16;

absl::Status DrainStatus() {
  return absl::UnavailableError("the server is shutting down; send the request to another replica");
}

// How many steps a sentence takes by its source. Thread-safe.
class LengthModel {
 public:
  int Steps(int source_tokens, int most) const {
    const MutexLock lock(&mutex_);
    const double steps = std::ceil(ratio_ * source_tokens);
    return static_cast<int>(std::clamp(steps, 1.0, static_cast<double>(std::max(most, 1))));
  }
  void Add(int source_tokens, int steps) {
    const double ratio = static_cast<double>(steps) / source_tokens;
    const MutexLock lock(&mutex_);
    ratio_ = ratio_ == 0 ? ratio : ratio_ + kNewestWeight * (ratio - ratio_);
  }

 private:
  mutable Mutex mutex_;
  double ratio_ ABSL_GUARDED_BY(mutex_) = 0;  // nothing is known yet
};

class ModelTranslationsImpl : public ModelTranslations, private StepListener {
 public:
  ModelTranslationsImpl(const ModelTranslationsOptions& options, const Clock* clock,
                        TranslateObserver* observer)
      : options_(options), clock_(clock), observer_(observer) {}

  // Before anything else.
  absl::Status MakeWorkers(std::vector<std::unique_ptr<StepRunner>> runners) {
    StepWorkersOptions options = options_;
    options.workers = "workers that translate";
    options.drain_status = DrainStatus();
    options.scheduler.max_streams = std::numeric_limits<int>::max();
    options.scheduler.result_at_end = true;
    options.scheduler.words.fed = "sequences";
    options.scheduler.words.before_result = "before the translation was complete";
    std::vector<int64_t> workers(options_.num_devices);
    for (const auto& runner : runners) ++workers[runner->device()];
    options.scheduler.max_begun_branches =
        std::max<int64_t>(1, *std::max_element(workers.begin(), workers.end())) *
        options_.scheduler.max_step_sequences;
    auto made = StepWorkers::Create(std::move(runners), options, clock_, this);
    if (!made.ok()) return made.status();
    workers_ = *std::move(made);
    return absl::OkStatus();
  }

  StepWorkers& workers() override { return *workers_; }

  absl::StatusOr<TranslateHandle> Submit(TranslationRequest&& request,
                                         absl::Duration* retry_after) override {
    if (absl::Status status = Check(request); !status.ok()) return status;
    auto call = std::make_shared<PendingTranslation>(std::move(request), &scheduler(), &counts_,
                                                     clock_->Now());
    if (absl::Status status = Submit(call, retry_after); !status.ok()) return status;
    return call;
  }

  absl::Status CheckAdmission(int64_t source_tokens, int64_t sentences, Priority priority,
                              absl::Time deadline, absl::Duration* retry_after) override {
    return scheduler().CheckAdmission(source_tokens, sentences, priority, deadline, retry_after);
  }

  void Cancel(const TranslateHandle& handle) override {
    if (handle != nullptr) handle->Cancel();
  }

  bool Drain(absl::Time deadline) override { return workers_->Drain(deadline); }

  TranslationStats stats() const override {
    const SchedulerStats scheduled = workers_->scheduler().stats();
    TranslationStats stats;
    stats.running = scheduled.running;
    stats.waiting = scheduled.waiting;
    stats.waiting_tokens = scheduled.waiting_rows;
    stats.steps = steps_.load(std::memory_order_relaxed);
    stats.source_tokens = source_tokens_.load(std::memory_order_relaxed);
    stats.new_tokens = new_tokens_.load(std::memory_order_relaxed);
    stats.expired = counts_.expired.load(std::memory_order_relaxed);
    stats.cancelled = counts_.cancelled.load(std::memory_order_relaxed);
    stats.replayed = scheduled.replayed;
    stats.rejected = scheduled.rejected;
    return stats;
  }

 private:
  SequenceScheduler& scheduler() { return workers_->scheduler(); }

  absl::Status Submit(const std::shared_ptr<PendingTranslation>& call,
                      absl::Duration* retry_after) {
    std::vector<SequenceRequest> sentences;
    sentences.reserve(call->size());
    for (size_t i = 0; i < call->size(); ++i) {
      const TranslateTask& task = call->task(i);
      if (task.source.empty()) continue;
      SequenceRequest sentence;
      sentence.sequence = std::make_unique<TranslateSequence>(call, i, options_.model);
      sentence.priority = call->request().priority;
      sentence.deadline = call->request().deadline;
      sentence.least_steps =
          lengths_.Steps(static_cast<int>(task.source.size()),
                         task.search.max_length - static_cast<int>(task.prefix.size()));
      sentence.branches = task.search.beam_size;
      sentences.push_back(std::move(sentence));
    }
    if (sentences.empty()) {
      absl::Status status =
          CheckAdmission(0, 0, call->request().priority, call->request().deadline, retry_after);
      if (status.ok()) call->AnswerEmpty();
      return status;
    }
    auto handles = scheduler().SubmitTogether(std::move(sentences), retry_after);
    if (!handles.ok()) return handles.status();
    call->SetHandles(*std::move(handles));
    return absl::OkStatus();
  }

  absl::Status Check(const TranslationRequest& request) const {
    if (request.sentences.empty()) {
      return absl::InvalidArgumentError("sequences: expected at least one, found none");
    }
    for (size_t i = 0; i < request.sentences.size(); ++i) {
      if (absl::Status status = CheckTask(request.sentences[i], i); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTask(const TranslateTask& task, size_t index) const {
    const auto bad = [](const auto& field, const auto& expected, const auto& found) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": expected ", expected, ", found ", found));
    };
    const auto check_ids = [&](const char* field, const std::vector<int32_t>& ids, int vocabulary) {
      for (const int32_t id : ids) {
        if (id < 0 || id >= vocabulary) {
          return bad(absl::StrCat(field, "[", index, "]"),
                     absl::StrCat("token ids from 0 to ", vocabulary - 1), id);
        }
      }
      return absl::OkStatus();
    };
    const auto longest =
        static_cast<size_t>(std::min(options_.max_positions, options_.scheduler.max_step_tokens));
    if (task.source.size() > longest) {
      return bad(absl::StrCat("sequences[", index, "]"),
                 absl::StrCat("at most ", longest, " tokens"), task.source.size());
    }
    absl::Status status = check_ids("sequences", task.source, options_.source_vocabulary);
    status.Update(check_ids("target_prefixes", task.prefix, options_.target_vocabulary));
    status.Update(
        models::ValidateSearch(task.search, options_.max_positions, "max_positions of the model"));
    if (!status.ok()) return status;
    if (task.prefix.size() >= static_cast<size_t>(task.search.max_length)) {
      return bad(
          absl::StrCat("target_prefixes[", index, "]"),
          absl::StrCat("fewer tokens than max_new_tokens, which is ", task.search.max_length),
          task.prefix.size());
    }
    return absl::OkStatus();
  }

  void OnStep(Step& step, const absl::Status& status, absl::Time start, absl::Time end) override {
    const int64_t number = steps_.fetch_add(1, std::memory_order_relaxed);
    int source_tokens = 0;
    int new_tokens = 0;
    for (StepShare& share : step.shares()) {
      auto& sequence = static_cast<TranslateSequence&>(*share.sequence);
      sequence.call().OnStep(number, start, end);
      source_tokens += sequence.TakeSourceTokens();
      if (!sequence.done()) continue;
      new_tokens += sequence.new_tokens();
      lengths_.Add(sequence.source_tokens(), sequence.steps());
    }
    source_tokens_.fetch_add(source_tokens, std::memory_order_relaxed);
    new_tokens_.fetch_add(new_tokens, std::memory_order_relaxed);
    if (observer_ != nullptr) {
      observer_->OnTranslationStep(static_cast<int>(step.shares().size()), end - start, status);
    }
  }

  const ModelTranslationsOptions options_;
  const Clock* const clock_;
  TranslateObserver* const observer_;
  TranslationCounts counts_;
  LengthModel lengths_;
  std::atomic<int64_t> steps_{0};
  std::atomic<int64_t> source_tokens_{0};
  std::atomic<int64_t> new_tokens_{0};
  std::unique_ptr<StepWorkers> workers_;  // last: they use what is above
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelTranslations>> ModelTranslations::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const ModelTranslationsOptions& options,
    const Clock* clock, TranslateObserver* observer) {
  auto translations = std::make_unique<ModelTranslationsImpl>(options, clock, observer);
  if (absl::Status status = translations->MakeWorkers(std::move(runners)); !status.ok()) {
    return status;
  }
  return translations;
}

}  // namespace sru::server::batching
