// Texts of a small language model with a prefix cache: everything that a call gets is the same to
// the bit as without, and no slot is lost.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/language_model.h"
#include "models/model.h"
#include "server/base/clock.h"
#include "server/batching/engine.h"
#include "server/batching/prefix_cache.h"
#include "server/tasks/generate/generate_sequence.h"
#include "server/tasks/score/score_batch_runner.h"
#include "server/tasks/tasks.h"
#include "tests/testing/engine_call.h"

namespace sru::server::tasks {
namespace {

using Tokens = std::vector<int32_t>;

constexpr const char* kReuseModel = "tests/golden/language_model/fresh";
constexpr int kReuseVocabulary = 17;

// What came of all samples of a call.
class ReuseSink : public GenerateSink {
 public:
  void OnChunk(GeneratedChunk&& chunk) override {
    const MutexLock lock(&mutex_);
    if (chunks_.size() <= static_cast<size_t>(chunk.sample)) chunks_.resize(chunk.sample + 1);
    GeneratedChunk& all = chunks_[chunk.sample];
    all.text += chunk.text;
    all.token_ids.insert(all.token_ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    all.log_probs.insert(all.log_probs.end(), chunk.log_probs.begin(), chunk.log_probs.end());
    all.candidates.insert(all.candidates.end(), chunk.candidates.begin(), chunk.candidates.end());
    all.state += chunk.state;
    all.prompt_tokens += chunk.prompt_tokens;
  }
  void OnEnd(const absl::Status& status, const batching::RequestTimes& /*times*/,
             int64_t /*generated_tokens*/) override {
    const MutexLock lock(&mutex_);
    status_ = status;
    done_ = true;
    changed_.SignalAll();
  }

  std::vector<GeneratedChunk> Wait() {
    const MutexLock lock(&mutex_);
    while (!done_) changed_.Wait(&mutex_);
    EXPECT_TRUE(status_.ok()) << status_;
    return chunks_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<GeneratedChunk> chunks_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

class PrefixReuseTest : public ::testing::Test {
 protected:
  PrefixReuseTest() {
    EXPECT_TRUE(kernels::CreateBackend("cpu", &backend_).ok());
    model_ = models::Model::Load(kReuseModel, "lm", 1, *backend_, {}).value();
    options_.instances = 2;
    pool_ = batching::MakePool({2}, &clock_, &options_, /*interrupts=*/true);
    options_.batcher.max_batch_tokens = 64;
  }

  std::unique_ptr<batching::Engine> Start(size_t prefix_cache_bytes) {
    options_.prefix_cache_bytes = prefix_cache_bytes;
    return batching::Engine::Create(model_, RunnersOf(model_->task()), options_, &clock_, nullptr)
        .value();
  }

  Tokens Random(size_t count) {
    Tokens tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random_() % kReuseVocabulary);
    return tokens;
  }

  static Tokens Join(const Tokens& a, const Tokens& b) {
    Tokens both = a;
    both.insert(both.end(), b.begin(), b.end());
    return both;
  }

  GenerateTask TaskOf(const Tokens& prompt) {
    GenerateTask task;
    task.prefix_owner = "a";
    task.prompt = prompt;
    task.max_new_tokens = 6;
    task.sampling.temperature = 1;
    task.sampling.repetition_penalty = 1.2f;
    task.seed = random_();
    task.num_samples = 1 + static_cast<int>(random_() % 3);
    task.token_log_probs = true;
    task.num_candidates = 2;
    task.return_state = true;
    return task;
  }

  // All at once.
  std::vector<std::vector<GeneratedChunk>> Generate(batching::Engine& engine,
                                                    std::vector<GenerateTask> tasks) {
    std::vector<std::unique_ptr<ReuseSink>> sinks;
    for (GenerateTask& task : tasks) {
      sinks.push_back(std::make_unique<ReuseSink>());
      task.sink = sinks.back().get();
      const auto handle = SubmitGenerate(*model_, *engine.steps(), task).value();
    }
    std::vector<std::vector<GeneratedChunk>> results;
    results.reserve(sinks.size());
    for (const auto& sink : sinks) results.push_back(sink->Wait());
    return results;
  }

  static std::vector<uint32_t> Bits(const std::vector<float>& values) {
    std::vector<uint32_t> bits(values.size());
    std::transform(values.begin(), values.end(), bits.begin(), [](float value) {
      uint32_t word = 0;
      std::memcpy(&word, &value, sizeof(word));
      return word;
    });
    return bits;
  }

  static void ExpectSame(const std::vector<GeneratedChunk>& expected,
                         const std::vector<GeneratedChunk>& found) {
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(expected[i].token_ids, found[i].token_ids);
      EXPECT_EQ(expected[i].text, found[i].text);
      EXPECT_EQ(expected[i].state, found[i].state);  // its bits
      EXPECT_EQ(expected[i].prompt_tokens, found[i].prompt_tokens);
      EXPECT_EQ(Bits(expected[i].log_probs), Bits(found[i].log_probs));
      ASSERT_EQ(expected[i].candidates.size(), found[i].candidates.size());
      for (size_t k = 0; k < expected[i].candidates.size(); ++k) {
        EXPECT_EQ(expected[i].candidates[k].id, found[i].candidates[k].id);
        EXPECT_EQ(expected[i].candidates[k].log_prob, found[i].candidates[k].log_prob);
      }
    }
  }

  // Only the cache holds slots when all calls have ended.
  static void ExpectNoSlotLost(const batching::Engine& engine) {
    EXPECT_EQ(engine.state_stats()->slots, engine.prefix_stats()->states);
  }

  std::mt19937 random_{1};
  RealClock clock_;
  std::unique_ptr<batching::WorkerPool> pool_;
  batching::EngineOptions options_;
  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
};

TEST_F(PrefixReuseTest, TheResultsAreTheSameToTheBit) {
  const auto plain = Start(0);
  EXPECT_FALSE(plain->prefix_stats().has_value());
  const auto cached = Start(1 << 20);
  // Two sets of instructions, each before many questions, of which some come again.
  const Tokens instructions[] = {Random(40), Random(150)};
  std::vector<GenerateTask> tasks;
  for (int i = 0; i < 60; ++i) {
    const Tokens& first = instructions[random_() % 2];
    tasks.push_back(TaskOf(Join(first, Random(random_() % 40))));
    if (i % 5 == 0) tasks.push_back(TaskOf(tasks.back().prompt));
    if (i % 7 == 0) tasks.push_back(TaskOf(Join(tasks.back().prompt, Random(20))));
    if (i % 9 == 0) tasks.push_back(TaskOf(Random(3)));
  }
  const auto expected = Generate(*plain, tasks);
  // One after the other, then all at once.
  for (size_t i = 0; i < tasks.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(expected[i], Generate(*cached, {tasks[i]})[0]);
  }
  const batching::PrefixCache::Stats stats = *cached->prefix_stats();
  EXPECT_EQ(stats.hits + stats.misses, static_cast<int64_t>(tasks.size()));
  // All but the first two of each set of instructions, and the short ones.
  EXPECT_GE(stats.hits, 60 - 4);
  EXPECT_GE(stats.hit_tokens, stats.hits * 40);
  EXPECT_LT(cached->steps()->stats().fed_rows,
            plain->steps()->stats().fed_rows - stats.hit_tokens / 2);
  ExpectNoSlotLost(*cached);
  const auto together = Generate(*cached, tasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(expected[i], together[i]);
  }
  ExpectNoSlotLost(*cached);
}

TEST_F(PrefixReuseTest, AConversationIsComputedOnce) {
  const auto cached = Start(1 << 20);
  Tokens conversation = Random(64);
  int64_t tokens = 0;
  for (int turn = 0; turn < 10; ++turn) {
    Generate(*cached, {TaskOf(conversation)});
    tokens += static_cast<int64_t>(conversation.size());
    conversation = Join(conversation, Random(24));
  }
  const batching::PrefixCache::Stats stats = *cached->prefix_stats();
  EXPECT_EQ(stats.hits, 9);
  EXPECT_EQ(tokens - stats.hit_tokens, 64 + 9 * 24);
}

// Neither the times nor the counters of a guess tell what another caller has asked.
TEST_F(PrefixReuseTest, APromptGoesOnFromItsOwnersOnly) {
  const auto cached = Start(1 << 20);
  GenerateTask task = TaskOf(Random(64));
  Generate(*cached, {task});
  const int64_t fed = cached->steps()->stats().fed_rows;
  task.prefix_owner = "b";
  Generate(*cached, {task});
  EXPECT_EQ(cached->prefix_stats()->hits, 0);
  EXPECT_EQ(cached->steps()->stats().fed_rows, 2 * fed);
  // Nothing is kept of a caller who cannot be told from others.
  task.prefix_owner = "";
  const auto before = *cached->prefix_stats();
  for (int i = 0; i < 2; ++i) Generate(*cached, {task});
  EXPECT_EQ(cached->prefix_stats()->states, before.states);
  EXPECT_EQ(cached->prefix_stats()->hits + cached->prefix_stats()->misses, before.misses);
}

TEST_F(PrefixReuseTest, APromptWhoseLogProbabilitiesAreWantedIsComputed) {
  const auto plain = Start(0);
  const auto cached = Start(1 << 20);
  const Tokens prompt = Random(50);
  Generate(*cached, {TaskOf(prompt)});
  GenerateTask task = TaskOf(prompt);
  task.echo = true;
  ExpectSame(Generate(*plain, {task})[0], Generate(*cached, {task})[0]);
  EXPECT_EQ(cached->prefix_stats()->hits, 0);
  // The text alone needs none.
  task.token_log_probs = false;
  task.num_candidates = 0;
  ExpectSame(Generate(*plain, {task})[0], Generate(*cached, {task})[0]);
  EXPECT_EQ(cached->prefix_stats()->hits, 1);
}

TEST_F(PrefixReuseTest, ATextThatGoesOnFromAStateHasNothingToDoWithIt) {
  const auto plain = Start(0);
  const auto cached = Start(1 << 20);
  const Tokens prompt = Random(50);
  const std::string bytes = Generate(*cached, {TaskOf(prompt)})[0][0].state;
  auto state = std::make_shared<models::SequenceState>();
  ASSERT_TRUE(model_->state_codec().Decode(bytes, state.get()).ok());
  const batching::PrefixCache::Stats before = *cached->prefix_stats();
  GenerateTask task = TaskOf(prompt);
  task.state = state;
  ExpectSame(Generate(*plain, {task})[0], Generate(*cached, {task})[0]);
  EXPECT_EQ(cached->prefix_stats()->hits, before.hits);
  EXPECT_EQ(cached->prefix_stats()->states, before.states);
}

TEST_F(PrefixReuseTest, KeptPrefixesMakeRoomForSequencesThatRun) {
  // The arena has room for 40 states; the cache alone would take more.
  const size_t state = batching::BytesOfState(model_->As<models::LanguageModel>()->program.fields);
  const auto budget = std::make_shared<kernels::ArenaBudget>(40 * state);
  const auto plain = Start(0);
  options_.state_budgets = {budget};
  const auto cached = Start(size_t{1} << 30);
  std::vector<GenerateTask> tasks;
  for (int i = 0; i < 300; ++i) tasks.push_back(TaskOf(Random(20 + i % 30)));
  const auto expected = Generate(*plain, tasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(expected[i], Generate(*cached, {tasks[i]})[0]);
  }
  EXPECT_GT(cached->prefix_stats()->evictions, 0);
  ExpectNoSlotLost(*cached);
}

// A batch of Score that needs more than what the prefixes have left.
TEST_F(PrefixReuseTest, KeptPrefixesMakeRoomForScores) {
  const std::vector<kernels::FieldSpec>& fields =
      model_->As<models::LanguageModel>()->program.fields;
  const size_t state_bytes = batching::BytesOfState(fields);
  kernels::ArenaOptions arena_options;
  arena_options.budget_bytes = 20 * state_bytes;
  std::unique_ptr<kernels::StateArena> made;
  ASSERT_TRUE(model_->program().CreateArena(arena_options, &made).ok());
  const std::shared_ptr<kernels::StateArena> arena = std::move(made);
  const auto prefixes =
      std::make_shared<batching::PrefixCache>(arena, state_bytes, size_t{1} << 30);
  kernels::StateArena::State state;
  state.rows.assign(fields.size(), 1);
  state.values.assign(state_bytes / sizeof(float), 0.5f);
  int kept = 0;
  for (kernels::StateArena::Slot slot = 0; kept < 100; ++kept) {
    ASSERT_TRUE(arena->Allocate(&slot).ok());
    const bool put = arena->Put(slot, state).ok();
    EXPECT_EQ(put, put && prefixes->Insert("a", Tokens{kept, 1}, slot));
    arena->Free(slot);
    if (!put) break;
  }
  ASSERT_GT(kept, 2);
  ASSERT_LT(kept, 100) << "the arena is not full";

  batching::RunnerPlace place;
  place.limits.max_tokens = 8;
  place.limits.max_sequences = 2;
  place.arena = arena;
  place.prefixes = prefixes;
  const auto runner = MakeScoreRunner(*model_, place).value();
  float log_probs[2][3];
  kernels::StateArena::State final_states[2];
  ScoreTask tasks[2];
  for (int i = 0; i < 2; ++i) {
    tasks[i].num_tokens = 3;
    tasks[i].token_ids = {1, 2, 3};
    tasks[i].log_probs = log_probs[i];
    tasks[i].final_state = &final_states[i];
  }
  const absl::Status status = runner->Run({&tasks[0], &tasks[1]});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(final_states[0].values.size(), state_bytes / sizeof(float));
  EXPECT_GT(prefixes->stats().evictions, 0);
  EXPECT_GT(prefixes->stats().states, 0);
}

}  // namespace
}  // namespace sru::server::tasks
