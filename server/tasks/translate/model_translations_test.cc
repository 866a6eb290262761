// Translations of small translators on the reference backend, end to end in process: the same
// hypotheses as one at a time, in any mix, after a lost device and with little memory. Students of
// Marian, too.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "server/base/clock.h"
#include "server/batching/engine.h"
#include "server/tasks/tasks.h"
#include "server/tasks/translate/translate_sequence.h"
#include "tests/testing/engine_call.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/plain_translator.h"
#include "tests/testing/poll.h"
#include "tests/testing/translator_files.h"

namespace sru::server::tasks {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kTranslationVocabulary = 30;
constexpr absl::Duration kTranslationPatience = absl::Seconds(60);

// What came of one call.
class Answer {
 public:
  // The request of these sentences.
  TranslateRequest Make(std::vector<TranslateTask> tasks) {
    const MutexLock lock(&mutex_);
    results_ = std::move(tasks);
    TranslateRequest request;
    request.sentences = absl::MakeSpan(results_);
    request.done = [this](const absl::Status& status, const batching::RequestTimes& times) {
      const MutexLock lock(&mutex_);
      EXPECT_FALSE(done_) << "answered twice";
      EXPECT_GE(times.queue, absl::ZeroDuration());
      done_ = true;
      status_ = status;
      times_ = times;
      changed_.SignalAll();
    };
    return request;
  }
  absl::Status Wait() {
    EXPECT_TRUE(WaitUntil(&mutex_, &changed_, kTranslationPatience,
                          [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; }));
    const MutexLock lock(&mutex_);
    return status_;
  }
  bool is_done() {
    const MutexLock lock(&mutex_);
    return done_;
  }
  std::vector<TranslateTask> results() {
    const MutexLock lock(&mutex_);
    return results_;
  }
  batching::RequestTimes times() {
    const MutexLock lock(&mutex_);
    return times_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<TranslateTask> results_ ABSL_GUARDED_BY(mutex_);
  batching::RequestTimes times_ ABSL_GUARDED_BY(mutex_);
};

void ExpectEqual(const TranslateTask& found, const TranslateTask& expected) {
  ASSERT_EQ(found.hypotheses.size(), expected.hypotheses.size());
  for (size_t i = 0; i < found.hypotheses.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("hypothesis ", i));
    EXPECT_EQ(found.hypotheses[i].tokens, expected.hypotheses[i].tokens);
    EXPECT_EQ(found.hypotheses[i].finished, expected.hypotheses[i].finished);
    EXPECT_EQ(found.hypotheses[i].log_prob, expected.hypotheses[i].log_prob);
    EXPECT_EQ(found.hypotheses[i].score, expected.hypotheses[i].score);
    EXPECT_EQ(found.hypotheses[i].alignment, expected.hypotheses[i].alignment);
  }
}

class ModelTranslationsTest : public ::testing::Test {
 protected:
  void Load(int num_devices = 1) {
    devices_ = std::make_shared<testing::FailingDevices>(num_devices);
    backend_ = std::make_unique<testing::FailingBackend>(devices_);
    model_ = models::Model::Load(MakeFiles(), "m", 1, *backend_, {}).value();
    plain_ = std::make_unique<PlainTranslator>(*model_);
    options_.instances = 2 * num_devices;
    pool_ = batching::MakePool(std::vector<int>(num_devices, 2), &clock_, &options_);
  }
  // Returns the folder of the model.
  virtual std::string MakeFiles() {
    nlohmann::json config = models::SmallTranslatorConfig();
    nlohmann::json& translator = config["translator"];
    translator["decoder_layers"] = 2;
    translator["source_vocabulary"] = translator["target_vocabulary"] = kTranslationVocabulary;
    translator["bidirectional_encoder"] = true;
    config.erase("preprocessing");
    models::WriteTranslator(directory_, "m", config, models::TranslatorTensors(config, 5));
    return directory_.path("m");
  }
  void Start() {
    if (model_ == nullptr) Load();
    engine_ =
        batching::Engine::Create(model_, RunnersOf(model_->task()), options_, &clock_, nullptr)
            .value();
    ASSERT_NE(engine_->steps(), nullptr);
  }
  batching::StepService& steps() { return *engine_->steps(); }

  static TranslateTask Task(int length, int beam, int num_hypotheses = 1, int first = 4) {
    TranslateTask task;
    for (int i = 0; i < length; ++i)
      task.token_ids.push_back((first + 7 * i) % kTranslationVocabulary);
    task.search.beam_size = beam;
    task.search.num_hypotheses = num_hypotheses;
    if (beam > 1) {
      task.search.length_penalty = models::LengthPenalty::kGnmt;
      task.search.alpha = 0.6;
    }
    task.search.max_length = 20;
    return task;
  }
  // Of all kinds.
  static std::vector<TranslateTask> Mix(int count, uint32_t seed) {
    std::minstd_rand random(seed);
    const auto upto = [&random](int most) { return static_cast<int>(random() % (most + 1)); };
    std::vector<TranslateTask> tasks;
    for (int i = 0; i < count; ++i) {
      const int beam = upto(3) == 0 ? 1 : 1 + upto(7);
      TranslateTask task = Task(upto(9) == 0 ? 0 : 1 + upto(upto(4) == 0 ? 40 : 12), beam,
                                1 + upto(beam - 1), upto(kTranslationVocabulary));
      task.search.max_length = 1 + upto(30);
      const int prefix = std::min(upto(2) == 0 ? upto(9) : 0, task.search.max_length - 1);
      for (int k = 0; k < prefix; ++k) task.prefix.push_back(upto(kTranslationVocabulary - 1));
      task.alignment = upto(2) == 0;
      tasks.push_back(std::move(task));
    }
    return tasks;
  }

  TranslateHandle Submit(std::vector<TranslateTask> tasks, Answer* answer,
                         absl::Duration timeout = absl::InfiniteDuration()) {
    TranslateRequest request = answer->Make(std::move(tasks));
    request.deadline = clock_.Now() + timeout;
    auto handle = SubmitTranslate(*model_, steps(), std::move(request));
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : nullptr;
  }
  std::vector<TranslateTask> Translate(const std::vector<TranslateTask>& tasks) {
    Answer answer;
    Submit(tasks, &answer);
    const absl::Status status = answer.Wait();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_THAT(answer.results(), SizeIs(tasks.size()));
    return answer.results();
  }
  void ExpectPlain(const std::vector<TranslateTask>& tasks,
                   const std::vector<TranslateTask>& results) {
    ASSERT_EQ(results.size(), tasks.size());
    for (size_t i = 0; i < tasks.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("sentence ", i));
      ExpectEqual(results[i], plain_->Translate(tasks[i]));
    }
  }
  // Steps of a few rows, too, so that sentences are divided and wait.
  void ExpectTheSameAloneAndInAnyMix(const std::vector<TranslateTask>& tasks) {
    for (const int most_sequences : {256, 16, 3}) {
      SCOPED_TRACE(absl::StrCat("max_batch_sequences ", most_sequences));
      options_.batcher.max_batch_sequences = most_sequences;
      options_.batcher.max_batch_tokens = most_sequences == 256 ? 4096 : 48;
      Start();
      std::vector<std::unique_ptr<Answer>> answers;
      for (size_t i = 0; i < tasks.size(); i += 3) {
        answers.push_back(std::make_unique<Answer>());
        Submit({tasks.begin() + static_cast<std::ptrdiff_t>(i),
                tasks.begin() + static_cast<std::ptrdiff_t>(i) + 3},
               answers.back().get());
      }
      std::vector<TranslateTask> results;
      for (const auto& answer : answers) {
        EXPECT_TRUE(answer->Wait().ok());
        for (TranslateTask& result : answer->results()) results.push_back(std::move(result));
      }
      ExpectPlain(tasks, results);
      ExpectNothingLeft();
      engine_.reset();
    }
  }
  // The model is loaded on two devices, and one fails.
  void ExpectALostDeviceIsReplayed(const std::vector<TranslateTask>& tasks) {
    Start();
    std::vector<std::unique_ptr<Answer>> answers;
    for (size_t i = 0; i < tasks.size(); ++i) {
      answers.push_back(std::make_unique<Answer>());
      Submit({tasks[i]}, answers.back().get());
      if (i == tasks.size() / 2) devices_->failed[0] = true;
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("sentence ", i));
      const absl::Status status = answers[i]->Wait();
      ASSERT_TRUE(status.ok()) << status;
    }
    devices_->failed[0] = false;  // for the plain ones
    for (size_t i = 0; i < tasks.size(); ++i) ExpectPlain({tasks[i]}, answers[i]->results());
    EXPECT_EQ(engine_->instances(), 2);
    ExpectNothingLeft();
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(engine_->state_stats()->slots, 0);
    const batching::StepStats stats = steps().stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.waiting_rows, 0);
  }
  std::string Refused(std::vector<TranslateTask> tasks) {
    TranslateRequest request;
    request.sentences = absl::MakeSpan(tasks);
    request.done = [](const absl::Status&, const batching::RequestTimes&) {
      ADD_FAILURE() << "answered";
    };
    auto handle = SubmitTranslate(*model_, steps(), std::move(request));
    EXPECT_FALSE(handle.ok());
    EXPECT_EQ(handle.status().code(), absl::StatusCode::kInvalidArgument) << handle.status();
    return std::string(handle.status().message());
  }

  RealClock clock_;
  models::TempDirectory directory_;
  batching::EngineOptions options_;
  std::shared_ptr<testing::FailingDevices> devices_;
  std::unique_ptr<testing::FailingBackend> backend_;
  std::shared_ptr<const models::Model> model_;
  std::unique_ptr<PlainTranslator> plain_;
  std::unique_ptr<batching::WorkerPool> pool_;
  std::unique_ptr<batching::Engine> engine_;
};

TEST_F(ModelTranslationsTest, GreedyAndBeamAsOneHypothesisAtATime) {
  Start();
  std::vector<TranslateTask> tasks = {Task(5, 1), Task(8, 3), Task(8, 5, 5), Task(1, 2, 2)};
  tasks[2].alignment = true;
  tasks[1].search.length_penalty = models::LengthPenalty::kPower;
  for (const TranslateTask& task : tasks) ExpectPlain({task}, Translate({task}));
  const TranslateTask beam = Translate({tasks[2]})[0];
  ASSERT_THAT(beam.hypotheses, SizeIs(5));
  EXPECT_EQ(beam.hypotheses[0].alignment.size(), beam.hypotheses[0].tokens.size() * 8);
  ExpectNothingLeft();
  EXPECT_GT(steps().stats().new_tokens, 0);
  int64_t aligned = 0;
  for (const TranslatedHypothesis& hypothesis : beam.hypotheses) {
    aligned += static_cast<int64_t>(hypothesis.tokens.size());
  }
  EXPECT_EQ(steps().stats().fed_rows, 5 + 8 + 8 + 1 + 8 + 2 * aligned);
}

TEST_F(ModelTranslationsTest, TheQueueIsThatOfTheSteps) {
  Start();
  const auto check = [this] {
    return steps().CheckAdmission(1, 1, batching::Priority::kNormal, absl::InfiniteFuture());
  };
  EXPECT_TRUE(check().ok());
  EXPECT_EQ(engine_->instances(), options_.instances);
  EXPECT_EQ(steps()
                .CheckAdmission(1 << 30, 1, batching::Priority::kNormal, absl::InfiniteFuture())
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_->queue_stats().rejected[batching::RejectReason::kQueueFull], 1);
  EXPECT_TRUE(engine_->Drain(clock_.Now() + kTranslationPatience));
  EXPECT_EQ(check().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ModelTranslationsTest, TheSameHypothesesAloneAndInAnyMix) {
  Load();
  ExpectTheSameAloneAndInAnyMix(Mix(60, 1));
}

TEST_F(ModelTranslationsTest, APrefixIsFedInPortionsAndCounts) {
  options_.batcher.max_batch_tokens = 4;
  Start();
  TranslateTask task = Task(4, 4, 2);
  task.prefix = {5, 6, 7, 8, 9, 10, 11, 12, 13};
  task.alignment = true;
  const TranslateTask result = Translate({task})[0];
  ExpectPlain({task}, {result});
  for (const TranslatedHypothesis& hypothesis : result.hypotheses) {
    ASSERT_GE(hypothesis.tokens.size(), task.prefix.size());
    EXPECT_TRUE(std::equal(task.prefix.begin(), task.prefix.end(), hypothesis.tokens.begin()));
  }
  // One token is left.
  task.search.max_length = 10;
  ExpectPlain({task}, Translate({task}));
  ExpectNothingLeft();
}

TEST_F(ModelTranslationsTest, ABeamOfMorePlacesThanABatchIsDivided) {
  options_.batcher.max_batch_sequences = 5;
  options_.batcher.max_batch_tokens = 40;
  Start();
  const TranslateTask task = Task(7, 64, 64);
  ExpectPlain({task}, Translate({task}));
  ExpectNothingLeft();
}

TEST_F(ModelTranslationsTest, ASentenceWithoutTokensIsNotRun) {
  Start();
  const std::vector<TranslateTask> results = Translate({Task(0, 5, 5), Task(0, 1)});
  ASSERT_THAT(results[0].hypotheses, SizeIs(1));
  EXPECT_THAT(results[0].hypotheses[0].tokens, IsEmpty());
  EXPECT_TRUE(results[0].hypotheses[0].finished);
  EXPECT_EQ(results[0].hypotheses[0].log_prob, 0);
  EXPECT_EQ(steps().stats().steps, 0);
  EXPECT_THAT(Translate({Task(0, 1), Task(3, 2), Task(0, 1)}), SizeIs(3));
  EXPECT_TRUE(engine_->Drain(clock_.Now() + kTranslationPatience));
  Answer late;
  EXPECT_EQ(SubmitTranslate(*model_, steps(), late.Make({Task(0, 1)})).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ModelTranslationsTest, WithLittleMemoryAllEndWithTheSameHypotheses) {
  Load();
  const std::vector<TranslateTask> tasks = Mix(40, 2);
  // A few sentences at a time.
  options_.state_budgets = {std::make_shared<kernels::ArenaBudget>(60000)};
  Start();
  ExpectPlain(tasks, Translate(tasks));
  EXPECT_GT(steps().stats().steps, 0);
  ExpectNothingLeft();
}

TEST_F(ModelTranslationsTest, WithoutMemoryEvenForOneTheCallFailsAndOthersGoOn) {
  Load();
  options_.state_budgets = {std::make_shared<kernels::ArenaBudget>(10000)};
  Start();
  // Its keys and values alone are more than that.
  TranslateTask large = Task(90, 8, 8);
  large.search.max_length = 90;
  Answer answer;
  Submit({Task(2, 1), large, Task(3, 2)}, &answer);
  const absl::Status status = answer.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("memory"));
  for (const TranslateTask& task : answer.results()) EXPECT_THAT(task.hypotheses, IsEmpty());
  ExpectPlain({Task(2, 1)}, Translate({Task(2, 1)}));
  ExpectNothingLeft();
}

TEST_F(ModelTranslationsTest, ALostDeviceIsReplayedOnAnother) {
  Load(2);
  ExpectALostDeviceIsReplayed(Mix(60, 3));
}

TEST_F(ModelTranslationsTest, WithoutADeviceCallsAreUnavailable) {
  Load();
  Start();
  devices_->failed[0] = true;
  Answer answer;
  Submit({Task(5, 3), Task(6, 2)}, &answer);
  EXPECT_EQ(answer.Wait().code(), absl::StatusCode::kUnavailable);
  Answer late;
  EXPECT_EQ(SubmitTranslate(*model_, steps(), late.Make({Task(1, 1)})).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ModelTranslationsTest, CancelledAndExpiredCallsGiveBackTheirRows) {
  options_.batcher.admission_by_deadline = false;
  Start();
  std::vector<TranslateTask> many(200, Task(30, 8));
  for (TranslateTask& task : many) task.search.max_length = 100;
  Answer cancelled;
  const TranslateHandle handle = Submit(many, &cancelled);
  handle->Cancel();
  EXPECT_EQ(cancelled.Wait().code(), absl::StatusCode::kCancelled);
  handle->Cancel();  // after the end
  Answer expired;
  absl::StatusOr<TranslateHandle> queued = nullptr;
  // A slow machine needs longer before they are queued, and as much longer to translate them.
  for (absl::Duration timeout = absl::Milliseconds(3); timeout < kTranslationPatience;
       timeout *= 2) {
    TranslateRequest request = expired.Make(many);
    request.deadline = clock_.Now() + timeout;
    queued = SubmitTranslate(*model_, steps(), std::move(request));
    if (!absl::IsDeadlineExceeded(queued.status())) break;
  }
  ASSERT_TRUE(queued.ok()) << queued.status();
  EXPECT_EQ(expired.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  ExpectPlain({Task(4, 2)}, Translate({Task(4, 2)}));
  EXPECT_EQ(steps().stats().cancelled, 1);
  EXPECT_EQ(steps().stats().expired, 1);
  // The last of the cancelled ones may have been in the step that has just ended.
  EXPECT_TRUE(engine_->Drain(clock_.Now() + kTranslationPatience));
  ExpectNothingLeft();
}

TEST_F(ModelTranslationsTest, WhatWasComputedForACancelledCallCounts) {
  Start();
  std::vector<TranslateTask> many(200, Task(30, 8));
  for (TranslateTask& task : many) task.search.max_length = 100;
  Answer cancelled;
  const TranslateHandle handle = Submit(many, &cancelled);
  ASSERT_TRUE(sru::testing::PollUntil([this] { return steps().stats().steps > 20; }));
  handle->Cancel();
  EXPECT_EQ(cancelled.Wait().code(), absl::StatusCode::kCancelled);
  int64_t computed = 0;
  for (const TranslateTask& task : cancelled.results()) computed += task.steps;
  EXPECT_GT(computed, 0);
}

TEST_F(ModelTranslationsTest, ADrainLetsThemEndUntilItsDeadline) {
  Start();
  std::vector<std::unique_ptr<Answer>> answers;
  for (int i = 0; i < 5; ++i) {
    answers.push_back(std::make_unique<Answer>());
    Submit({Task(5 + i, 3)}, answers.back().get());
  }
  EXPECT_TRUE(engine_->Drain(clock_.Now() + kTranslationPatience));
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(answers[i]->is_done());
    EXPECT_TRUE(answers[i]->Wait().ok());
    ExpectPlain({Task(5 + i, 3)}, answers[i]->results());
  }
}

TEST_F(ModelTranslationsTest, ADrainThatRunsOutOfTimeEndsThem) {
  Start();
  std::vector<TranslateTask> many(200, Task(40, 8));
  for (TranslateTask& task : many) task.search.max_length = 100;
  Answer answer;
  Submit(many, &answer);
  EXPECT_FALSE(engine_->Drain(clock_.Now()));
  EXPECT_EQ(answer.Wait().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ModelTranslationsTest, TimesAreThoseOfTheCall) {
  Start();
  Answer answer;
  Submit({Task(20, 5), Task(10, 5), Task(1, 1)}, &answer);
  ASSERT_TRUE(answer.Wait().ok());
  EXPECT_GT(answer.times().compute, absl::ZeroDuration());
  EXPECT_GT(answer.times().queue, absl::ZeroDuration());
}

TEST_F(ModelTranslationsTest, BoundsAreThoseOfTheQueue) {
  options_.batcher.max_queue_sequences = 3;
  options_.batcher.max_queue_tokens = 50;
  options_.batcher.max_batch_tokens = 50;
  Start();
  EXPECT_THAT(Refused(std::vector<TranslateTask>(4, Task(1, 1))),
              HasSubstr("expected at most 3 (max_queue_sequences), found 4"));
  EXPECT_THAT(Refused(std::vector<TranslateTask>(3, Task(20, 1))),
              HasSubstr("expected at most 50 tokens (max_queue_tokens), found 60"));
}

// The small students of tests/golden.
class StudentTranslationsTest : public ModelTranslationsTest,
                                public ::testing::WithParamInterface<const char*> {
 protected:
  std::string MakeFiles() override { return absl::StrCat("tests/golden/student/", GetParam()); }

  // As a call has them.
  std::vector<TranslateTask> StudentMix(int count, uint32_t seed) {
    std::vector<TranslateTask> tasks = Mix(count, seed);
    for (TranslateTask& task : tasks) {
      if (task.token_ids.empty()) continue;
      task.token_ids.push_back(model_->config().translator.source_end_id);
      task.search.narrows = true;
      task.search.length_penalty = models::LengthPenalty::kPower;
      task.search.alpha = 1;
      task.search.word_penalty = 0.25;
    }
    return tasks;
  }
};
INSTANTIATE_TEST_SUITE_P(Students, StudentTranslationsTest,
                         ::testing::Values("shared", "int8", "apart"));

TEST_P(StudentTranslationsTest, TheSameHypothesesAloneAndInAnyMix) {
  Load();
  ExpectTheSameAloneAndInAnyMix(StudentMix(60, 4));
}

TEST_P(StudentTranslationsTest, ALostDeviceIsReplayedOnAnother) {
  Load(2);
  ExpectALostDeviceIsReplayed(StudentMix(60, 5));
}

TEST_P(StudentTranslationsTest, WithLittleMemoryAllEndWithTheSameHypotheses) {
  Load();
  const std::vector<TranslateTask> tasks = StudentMix(40, 6);
  options_.state_budgets = {std::make_shared<kernels::ArenaBudget>(60000)};
  Start();
  ExpectPlain(tasks, Translate(tasks));
  ExpectNothingLeft();
}

TEST_P(StudentTranslationsTest, AnAlignmentIsOverTheSourceAndItsEnd) {
  Load();
  Start();
  TranslateTask task = StudentMix(1, 7)[0];
  task.token_ids = {20, 21, 22, model_->config().translator.source_end_id};
  task.search.beam_size = task.search.num_hypotheses = 4;
  task.search.max_length = 8;
  task.prefix.clear();
  task.alignment = true;
  const TranslateTask result = Translate({task})[0];
  // As many as the beam is wide, which narrows.
  ASSERT_THAT(result.hypotheses, SizeIs(4));
  for (const TranslatedHypothesis& hypothesis : result.hypotheses) {
    ASSERT_THAT(hypothesis.alignment, SizeIs(4 * hypothesis.tokens.size()));
    for (auto row = hypothesis.alignment.begin(); row != hypothesis.alignment.end(); row += 4) {
      EXPECT_NEAR(std::accumulate(row, row + 4, 0.0), 1, 1e-5);
    }
  }
}

TEST_P(StudentTranslationsTest, ACancelledSentenceLeavesTheOthersAsTheyAre) {
  Load();
  options_.batcher.admission_by_deadline = false;
  Start();
  const std::vector<TranslateTask> tasks = StudentMix(30, 8);
  Answer kept;
  Answer cancelled;
  std::vector<TranslateTask> many(200, Task(30, 8));
  for (TranslateTask& task : many) task.search.max_length = 100;
  const TranslateHandle handle = Submit(many, &cancelled);
  Submit(tasks, &kept);
  handle->Cancel();
  EXPECT_EQ(cancelled.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(kept.Wait().ok());
  ExpectPlain(tasks, kept.results());
}

}  // namespace
}  // namespace sru::server::tasks
