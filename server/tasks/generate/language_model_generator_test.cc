// Texts of a small language model on the reference backend, end to end in process: the same call
// gives the same tokens alone, in any mix, from a state, after a lost device and with little
// memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "server/base/clock.h"
#include "server/batching/engine.h"
#include "server/tasks/generate/generate_sequence.h"
#include "server/tasks/tasks.h"
#include "tests/testing/checked.h"
#include "tests/testing/engine_call.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/test_files.h"

namespace sru::server::tasks {
namespace {

using ::sru::testing::Checked;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kModel = "tests/golden/language_model/fresh";
constexpr int kVocabulary = 17;  // the bytes from 32 on
constexpr absl::Duration kPatience = absl::Seconds(60);

// What came of one sample.
struct Sample {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
  std::vector<kernels::Candidate> candidates;
  bool last = false;
  FinishReason finish = FinishReason::kNone;
  std::string state;
  int prompt_tokens = 0;
  int generated_tokens = 0;
};

class Sink : public GenerateSink {
 public:
  explicit Sink(int num_samples = 1) : samples_(num_samples) {}

  void OnChunk(GeneratedChunk&& chunk) override {
    const MutexLock lock(&mutex_);
    EXPECT_FALSE(done_);
    ASSERT_LT(static_cast<size_t>(chunk.sample), samples_.size());
    Sample& sample = samples_[chunk.sample];
    EXPECT_FALSE(sample.last) << "a chunk after the last";
    sample.text += chunk.text;
    sample.ids.insert(sample.ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    sample.log_probs.insert(sample.log_probs.end(), chunk.log_probs.begin(), chunk.log_probs.end());
    sample.candidates.insert(sample.candidates.end(), chunk.candidates.begin(),
                             chunk.candidates.end());
    sample.last = chunk.last;
    sample.finish = chunk.finish;
    sample.state = chunk.state;
    sample.prompt_tokens = chunk.prompt_tokens;
    sample.generated_tokens = chunk.generated_tokens;
    ++chunks_;
    changed_.SignalAll();
  }
  void OnEnd(const absl::Status& status, const batching::RequestTimes& times,
             int64_t generated_tokens) override {
    const MutexLock lock(&mutex_);
    EXPECT_FALSE(done_) << "done twice";
    generated_tokens_ = generated_tokens;
    EXPECT_GE(times.queue, absl::ZeroDuration());
    done_ = true;
    status_ = status;
    changed_.SignalAll();
  }

  absl::Status Wait() {
    EXPECT_TRUE(WaitUntil(&mutex_, &changed_, kPatience,
                          [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_; }));
    const MutexLock lock(&mutex_);
    return status_;
  }
  void WaitForChunks(int count) {
    EXPECT_TRUE(WaitUntil(
        &mutex_, &changed_, kPatience,
        [this, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_ || chunks_ >= count; }));
  }
  GenerateTask task;

  Sample sample(int index = 0) {
    const MutexLock lock(&mutex_);
    return samples_[index];
  }
  int64_t generated_tokens() {
    const MutexLock lock(&mutex_);
    return generated_tokens_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<Sample> samples_ ABSL_GUARDED_BY(mutex_);
  int chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  int64_t generated_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LanguageModelGeneratorTest : public ::testing::Test {
 protected:
  void Load(int num_devices = 1) {
    devices_ = std::make_shared<testing::FailingDevices>(num_devices);
    backend_ = std::make_unique<testing::FailingBackend>(devices_);
    model_ = models::Model::Load(kModel, "lm", 1, *backend_, {}).value();
    options_.instances = 2 * num_devices;
  }
  void Start() {
    if (model_ == nullptr) Load();
    engine_.reset();
    const auto num_devices = static_cast<size_t>(model_->compiled().num_devices());
    pool_ = batching::MakePool(std::vector<int>(num_devices, 2), &clock_, &options_);
    engine_ =
        batching::Engine::Create(model_, RunnersOf(model_->task()), options_, &clock_, nullptr)
            .value();
    ASSERT_NE(engine_->steps(), nullptr);
  }
  batching::StepService& steps() { return *engine_->steps(); }

  static GenerateTask Task(const std::vector<int32_t>& prompt, int max_new_tokens) {
    GenerateTask task;
    task.prompt = prompt;
    task.max_new_tokens = max_new_tokens;
    return task;
  }
  static GenerateTask Sampled(const std::vector<int32_t>& prompt, int max_new_tokens,
                              uint64_t seed) {
    GenerateTask task = Task(prompt, max_new_tokens);
    task.sampling.temperature = 1.5f;
    task.sampling.frequency_penalty = 0.3f;
    task.seed = seed;
    return task;
  }
  batching::SequenceHandle Submit(GenerateTask task, Sink* sink) {
    sink->task = std::move(task);
    sink->task.sink = sink;
    auto handle = Checked(SubmitGenerate(*model_, steps(), sink->task));
    return handle.ok() ? *handle : nullptr;
  }
  // All samples of a call that ends well.
  std::vector<Sample> Run(const GenerateTask& task) {
    Sink sink(task.num_samples);
    Submit(task, &sink);
    const absl::Status status = sink.Wait();
    EXPECT_TRUE(status.ok()) << status;
    std::vector<Sample> samples;
    for (int i = 0; i < task.num_samples; ++i) samples.push_back(sink.sample(i));
    return samples;
  }
  std::vector<std::vector<Sample>> RunAlone(const std::vector<GenerateTask>& tasks) {
    std::vector<std::vector<Sample>> alone;
    for (const GenerateTask& task : tasks) alone.push_back(Run(task));
    return alone;
  }
  std::vector<std::unique_ptr<Sink>> SubmitAll(const std::vector<GenerateTask>& tasks) {
    std::vector<std::unique_ptr<Sink>> sinks;
    for (const GenerateTask& task : tasks) {
      sinks.push_back(std::make_unique<Sink>(task.num_samples));
      Submit(task, sinks.back().get());
    }
    return sinks;
  }
  // All calls end well, with the samples that they have alone.
  static void ExpectAsAlone(const std::vector<std::unique_ptr<Sink>>& sinks,
                            const std::vector<std::vector<Sample>>& alone) {
    for (size_t i = 0; i < sinks.size(); ++i) {
      SCOPED_TRACE(i);
      const absl::Status status = sinks[i]->Wait();
      EXPECT_TRUE(status.ok()) << status;
      for (size_t k = 0; k < alone[i].size(); ++k) {
        const Sample sample = sinks[i]->sample(static_cast<int>(k));
        EXPECT_EQ(sample.ids, alone[i][k].ids);
        EXPECT_EQ(sample.text, alone[i][k].text);
        EXPECT_EQ(sample.log_probs, alone[i][k].log_probs);
        ASSERT_EQ(sample.candidates.size(), alone[i][k].candidates.size());
        for (size_t c = 0; c < sample.candidates.size(); ++c) {
          EXPECT_EQ(sample.candidates[c].id, alone[i][k].candidates[c].id);
          EXPECT_EQ(sample.candidates[c].log_prob, alone[i][k].candidates[c].log_prob);
        }
      }
    }
  }
  std::shared_ptr<const models::SequenceState> Decode(const std::string& bytes) {
    auto state = std::make_shared<models::SequenceState>();
    const absl::Status status = model_->state_codec().Decode(bytes, state.get());
    EXPECT_TRUE(status.ok()) << status;
    return state;
  }
  absl::Status Refused(GenerateTask task) {
    Sink sink;
    task.sink = &sink;
    auto handle = SubmitGenerate(*model_, steps(), task);
    EXPECT_FALSE(handle.ok());
    return handle.status();
  }

  RealClock clock_;
  batching::EngineOptions options_;
  std::shared_ptr<testing::FailingDevices> devices_;
  std::unique_ptr<testing::FailingBackend> backend_;
  std::shared_ptr<const models::Model> model_;
  std::unique_ptr<batching::WorkerPool> pool_;
  std::unique_ptr<batching::Engine> engine_;
};

std::string TextOf(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text.push_back(static_cast<char>(32 + id));
  return text;
}

TEST_F(LanguageModelGeneratorTest, MakesAsManyTokensAsAskedForWithTheirText) {
  Start();
  const Sample sample = Run(Sampled({1, 2, 3}, 20, 7))[0];
  EXPECT_THAT(sample.ids, SizeIs(20));
  EXPECT_EQ(sample.text, TextOf(sample.ids));
  EXPECT_TRUE(sample.last);
  EXPECT_EQ(sample.finish, FinishReason::kLength);
  EXPECT_EQ(sample.prompt_tokens, 3);
  EXPECT_EQ(sample.generated_tokens, 20);
  EXPECT_THAT(sample.state, IsEmpty());
  const batching::StepStats stats = steps().stats();
  EXPECT_EQ(stats.new_tokens, 20);
  EXPECT_EQ(stats.fed_rows, 3);
  EXPECT_EQ(engine_->state_stats()->slots, 0);
}

TEST_F(LanguageModelGeneratorTest, GreedyTokensAreTheMostProbableWhateverTheSeed) {
  Start();
  GenerateTask task = Task({5, 6}, 10);
  task.num_candidates = 3;
  task.token_log_probs = true;
  const Sample sample = Run(task)[0];
  ASSERT_THAT(sample.candidates, SizeIs(30));
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    EXPECT_EQ(sample.candidates[3 * i].id, sample.ids[i]);
    EXPECT_EQ(sample.candidates[3 * i].log_prob, sample.log_probs[i]);
    EXPECT_GE(sample.candidates[3 * i].log_prob, sample.candidates[3 * i + 1].log_prob);
  }
  task.seed = 99;
  EXPECT_EQ(Run(task)[0].ids, sample.ids);
}

TEST_F(LanguageModelGeneratorTest, TheSameTokensAloneAndInAnyMix) {
  Load();
  std::vector<GenerateTask> tasks;
  for (int i = 0; i < 40; ++i) {
    std::vector<int32_t> prompt;
    for (int j = 0; j < 1 + i * i % 70; ++j) prompt.push_back((i + 3 * j) % kVocabulary);
    tasks.push_back(Sampled(prompt, 1 + i % 30, i));
    tasks.back().num_samples = 1 + i % 3;
    tasks.back().echo = i % 4 == 0;
    tasks.back().token_log_probs = i % 2 == 0;
    tasks.back().num_candidates = i % 5;
  }
  options_.instances = 1;
  Start();
  const std::vector<std::vector<Sample>> alone = RunAlone(tasks);
  // Small steps, small batches, portions of prompts.
  options_.instances = 2;
  options_.batcher.max_batch_tokens = 24;
  options_.batcher.max_batch_sequences = 9;
  engine_ = nullptr;
  Start();
  ExpectAsAlone(SubmitAll(tasks), alone);
  EXPECT_EQ(engine_->state_stats()->slots, 0);
}

TEST_F(LanguageModelGeneratorTest, SamplesDifferAndTheFirstOnesAreThoseOfFewer) {
  Start();
  GenerateTask task = Sampled({1, 2, 3}, 12, 5);
  task.num_samples = 64;
  const std::vector<Sample> many = Run(task);
  task.num_samples = 2;
  const std::vector<Sample> few = Run(task);
  EXPECT_EQ(few[0].ids, many[0].ids);
  EXPECT_EQ(few[1].ids, many[1].ids);
  EXPECT_NE(many[0].ids, many[1].ids);
}

TEST_F(LanguageModelGeneratorTest, ATextThatIsCutAnywhereGoesOnWithTheSameTokens) {
  Start();
  const Sample whole = Run(Sampled({4, 5, 6, 7}, 24, 11))[0];
  for (int cut = 1; cut < 24; cut += 5) {
    GenerateTask first = Sampled({4, 5, 6, 7}, cut, 11);
    first.return_state = true;
    const Sample begin = Run(first)[0];
    ASSERT_FALSE(begin.state.empty());
    GenerateTask second = Sampled({}, 24 - cut, 11);
    second.state = Decode(begin.state);
    const Sample rest = Run(second)[0];
    std::vector<int32_t> ids = begin.ids;
    ids.insert(ids.end(), rest.ids.begin(), rest.ids.end());
    EXPECT_EQ(ids, whole.ids) << "cut after " << cut;
    EXPECT_EQ(begin.text + rest.text, whole.text);
    EXPECT_EQ(rest.prompt_tokens, 0);
  }
}

TEST_F(LanguageModelGeneratorTest, EchoBeginsWithThePromptAndItsLogProbabilities) {
  options_.batcher.max_batch_tokens = 4;  // the prompt comes in portions
  Start();
  GenerateTask task = Task({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3);
  task.echo = true;
  task.token_log_probs = true;
  task.num_candidates = 2;
  task.num_samples = 2;
  const std::vector<Sample> samples = Run(task);
  for (const Sample& sample : samples) {
    ASSERT_THAT(sample.ids, SizeIs(12));
    EXPECT_TRUE(std::equal(task.prompt.begin(), task.prompt.end(), sample.ids.begin()));
    EXPECT_EQ(sample.text, TextOf(sample.ids));
    ASSERT_THAT(sample.log_probs, SizeIs(12));
    EXPECT_EQ(sample.log_probs[0], 0);
    EXPECT_LT(sample.log_probs[1], 0);
    EXPECT_THAT(sample.candidates, SizeIs(11 * 2));
    EXPECT_EQ(sample.log_probs, samples[0].log_probs);
  }
  // The log-probability of a prompt's token is that of the same token when it is picked.
  GenerateTask again = Task(std::vector<int32_t>(samples[0].ids.begin(), samples[0].ids.end()), 1);
  again.echo = true;
  again.token_log_probs = true;
  const Sample longer = Run(again)[0];
  EXPECT_TRUE(std::equal(samples[0].log_probs.begin(), samples[0].log_probs.end(),
                         longer.log_probs.begin()));
}

TEST_F(LanguageModelGeneratorTest, StopStringsAndTokensEndATextBeforeThem) {
  Start();
  const Sample whole = Run(Sampled({1, 2, 3}, 20, 3))[0];
  GenerateTask task = Sampled({1, 2, 3}, 20, 3);
  task.stop = {whole.text.substr(5, 3)};
  const size_t at = whole.text.find(task.stop[0]);
  Sample stopped = Run(task)[0];
  EXPECT_EQ(stopped.text, whole.text.substr(0, at));
  EXPECT_EQ(stopped.ids.size(), at + 3);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);

  task.stop.clear();
  task.stop_token_ids = {whole.ids[6]};
  const size_t first =
      std::find(whole.ids.begin(), whole.ids.end(), whole.ids[6]) - whole.ids.begin();
  stopped = Run(task)[0];
  EXPECT_EQ(stopped.text, whole.text.substr(0, first));
  EXPECT_EQ(stopped.ids.size(), first + 1);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);

  // Not before min_new_tokens: the token is not picked until then.
  task.min_new_tokens = 20;
  const Sample longest = Run(task)[0];
  EXPECT_THAT(longest.ids, SizeIs(20));
  EXPECT_EQ(std::count(longest.ids.begin(), longest.ids.end(), whole.ids[6]), 0);
}

TEST_F(LanguageModelGeneratorTest, PausedTextsTakeNoStepAndGoOnUnchanged) {
  Start();
  const Sample whole = Run(Sampled({1, 2}, 200, 9))[0];
  Sink sink;
  const batching::SequenceHandle handle = Submit(Sampled({1, 2}, 200, 9), &sink);
  for (int i = 1; i <= 5; ++i) {
    sink.WaitForChunks(10 * i);
    steps().Pause(handle);
    steps().Resume(handle);
  }
  EXPECT_TRUE(sink.Wait().ok());
  EXPECT_EQ(sink.sample().ids, whole.ids);
}

TEST_F(LanguageModelGeneratorTest, CancelFreesTheSlot) {
  Start();
  Sink sink;
  const batching::SequenceHandle handle = Submit(Sampled({1, 2}, 1000000, 9), &sink);
  sink.WaitForChunks(3);
  steps().Cancel(handle);
  EXPECT_EQ(sink.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_GE(sink.generated_tokens(), 3) << "what was computed is counted";
  EXPECT_EQ(engine_->state_stats()->slots, 0);
  EXPECT_EQ(steps().stats().cancelled, 1);
}

TEST_F(LanguageModelGeneratorTest, ALostDeviceChangesNoToken) {
  Load(2);
  Start();
  std::vector<GenerateTask> tasks;
  for (int i = 0; i < 20; ++i) {
    tasks.push_back(Sampled({i % kVocabulary, 3, 4}, 300, i));
    tasks.back().num_samples = 1 + i % 3;
    tasks.back().echo = i % 2 == 0;
    tasks.back().token_log_probs = true;
  }
  const std::vector<std::vector<Sample>> alone = RunAlone(tasks);
  const auto sinks = SubmitAll(tasks);
  for (const auto& sink : sinks) sink->WaitForChunks(5);
  devices_->failed[0] = true;
  ExpectAsAlone(sinks, alone);
  EXPECT_GT(steps().stats().replayed, 0);
  EXPECT_EQ(engine_->instances(), 2);
}

TEST_F(LanguageModelGeneratorTest, WithoutADeviceEveryCallEndsUnavailable) {
  Start();
  Sink sink;
  Submit(Sampled({1, 2}, 1000000, 9), &sink);
  sink.WaitForChunks(3);
  devices_->failed[0] = true;
  EXPECT_EQ(sink.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(sink.sample().last);
  EXPECT_EQ(sink.sample().finish, FinishReason::kNone);
  EXPECT_EQ(Refused(Task({1}, 1)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LanguageModelGeneratorTest, ADrainDoesNotWaitForWhoDoesNotRead) {
  Start();
  Sink sink;
  const batching::SequenceHandle handle = Submit(Sampled({1, 2, 3}, 20000, 21), &sink);
  sink.WaitForChunks(2);
  steps().Pause(handle);
  EXPECT_TRUE(engine_->Drain(clock_.Now() + absl::Hours(1)));
  EXPECT_EQ(sink.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(sink.sample().state.empty());
}

TEST_F(LanguageModelGeneratorTest, ADrainHandsOutStatesThatGoOnElsewhere) {
  Start();
  constexpr int kTokens = 20000;
  const Sample whole = Run(Sampled({1, 2, 3}, kTokens, 21))[0];
  GenerateTask paused = Sampled({1, 2, 3}, kTokens, 21);
  Sink sinks[2];
  Submit(Sampled({1, 2, 3}, kTokens, 21), &sinks[0]);
  const batching::SequenceHandle handle = Submit(paused, &sinks[1]);
  for (Sink& sink : sinks) sink.WaitForChunks(2);
  steps().Pause(handle);
  EXPECT_FALSE(engine_->Drain(clock_.Now()));
  for (Sink& sink : sinks) {
    EXPECT_EQ(sink.Wait().code(), absl::StatusCode::kUnavailable);
    const Sample begin = sink.sample();
    ASSERT_TRUE(begin.last);
    EXPECT_EQ(begin.finish, FinishReason::kNone);
    ASSERT_FALSE(begin.state.empty());
    ASSERT_LT(begin.ids.size(), whole.ids.size());
    engine_ = nullptr;
    Start();
    GenerateTask rest = Sampled({}, kTokens - static_cast<int>(begin.ids.size()), 21);
    rest.state = Decode(begin.state);
    const Sample end = Run(rest)[0];
    std::vector<int32_t> ids = begin.ids;
    ids.insert(ids.end(), end.ids.begin(), end.ids.end());
    EXPECT_TRUE(ids == whole.ids);
    EXPECT_TRUE(begin.text + end.text == whole.text);
  }
}

TEST_F(LanguageModelGeneratorTest, WithMemoryForFewStatesAllTextsAreMade) {
  Load();
  Start();
  std::vector<GenerateTask> tasks;
  for (int i = 0; i < 20; ++i) tasks.push_back(Sampled({i % kVocabulary, 2}, 50, i));
  const std::vector<std::vector<Sample>> alone = RunAlone(tasks);
  // A state has 128 + 64 bytes, and a step needs that once more.
  for (const size_t states : {2, 5}) {
    options_.state_budgets = {std::make_shared<kernels::ArenaBudget>(states * (128 + 64))};
    engine_ = nullptr;
    Start();
    ExpectAsAlone(SubmitAll(tasks), alone);
  }
}

TEST_F(LanguageModelGeneratorTest, ATextWithoutAnyTokenLeftEndsWithAnError) {
  Start();
  GenerateTask task = Task({1}, 5);
  for (int id = 0; id < kVocabulary; ++id) task.sampling.logit_bias.emplace_back(id, -100.0f);
  Sink sink;
  Submit(task, &sink);
  const absl::Status status = sink.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sampling.logit_bias"));
}

// Weights that overflow leave no token either, which is not the caller's fault.
TEST_F(LanguageModelGeneratorTest, LogitsThatAreNotFiniteAreTheModelsFault) {
  models::TempDirectory directory;
  models::TestTensors tensors = models::SmallLanguageModelTensors();
  for (const char* name : {"embedding.weight", "encoder.rnn_lst.0.weight"}) {
    for (float& value : tensors[name].values) value = 3e38f;
  }
  models::WriteModel(directory, "lm", models::SmallLanguageModelConfig(), tensors);
  std::unique_ptr<kernels::Backend> cpu;
  ASSERT_TRUE(kernels::CreateBackend("cpu", &cpu).ok());
  auto model = models::Model::Load(directory.path("lm"), "lm", 1, *cpu, {}).value();
  model_ = std::move(model);
  Start();
  Sink sink;
  Submit(Task({1}, 5), &sink);
  const absl::Status status = sink.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(status.message(), "the model's logits are not finite");
  engine_.reset();
  model_.reset();
}

TEST_F(LanguageModelGeneratorTest, MoreThanMaxStreamsAreRefused) {
  options_.max_streams = 2;
  Start();
  Sink sinks[2];
  std::vector<batching::SequenceHandle> handles;
  for (Sink& sink : sinks) handles.push_back(Submit(Task({1}, 1000000), &sink));
  EXPECT_EQ(batching::GetRejectReason(Refused(Task({1}, 1))), batching::RejectReason::kStreams);
  for (const batching::SequenceHandle& handle : handles) steps().Cancel(handle);
  for (Sink& sink : sinks) EXPECT_EQ(sink.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Run(Task({1}, 1))[0].ids, SizeIs(1));
}

}  // namespace
}  // namespace sru::server::tasks
