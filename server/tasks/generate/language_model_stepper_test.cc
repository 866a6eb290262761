// Steps that are larger than the workspace, by their tokens, samples or adjustments, give the same
// tokens as steps that fit.
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "server/batching/steps/step_runner.h"
#include "server/tasks/generate/generate_sequence.h"
#include "server/tasks/generate/generate_task.h"

namespace sru::server::tasks {
namespace {

constexpr int kStepperVocabulary = 17;
constexpr int kCalls = 4;

class StepperSink : public GenerateSink {
 public:
  void OnChunk(GeneratedChunk&& chunk) override {
    if (ids.size() <= static_cast<size_t>(chunk.sample)) ids.resize(chunk.sample + 1);
    std::vector<int32_t>& of_sample = ids[chunk.sample];
    of_sample.insert(of_sample.end(), chunk.token_ids.begin(), chunk.token_ids.end());
  }
  void OnEnd(const absl::Status& status, const batching::RequestTimes& /*times*/,
             int64_t /*generated_tokens*/) override {
    EXPECT_TRUE(status.ok()) << status;
    done = true;
  }

  std::vector<std::vector<int32_t>> ids;  // [sample]
  bool done = false;
};

class LanguageModelStepperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels::CreateBackend("reference", &backend_).ok());
    model_ =
        models::Model::Load("tests/golden/language_model/fresh", "lm", 1, *backend_, {}).value();
  }

  std::shared_ptr<kernels::StateArena> MakeArena() {
    std::unique_ptr<kernels::StateArena> arena;
    kernels::ArenaOptions options;
    options.budget_bytes = 1 << 20;
    EXPECT_TRUE(model_->program().CreateArena(options, &arena).ok());
    return arena;
  }

  // The tokens of kCalls calls whose steps have all of them, by call and sample.
  std::vector<std::vector<std::vector<int32_t>>> Run(int max_tokens, int max_sequences,
                                                     int least_adjustments) {
    batching::RunnerPlace place;
    place.limits.max_tokens = max_tokens;
    place.limits.max_sequences = max_sequences;
    place.arena = MakeArena();
    const auto stepper = MakeGenerateStepper(*model_, place, least_adjustments).value();
    EXPECT_TRUE(stepper->WarmUp().ok());

    std::vector<StepperSink> sinks(kCalls);
    std::vector<GenerateTask> tasks(kCalls);
    std::vector<std::unique_ptr<GenerateSequence>> sequences;
    for (int i = 0; i < kCalls; ++i) {
      GenerateTask& task = tasks[i];
      task.prompt = {1, 2, 3, i};
      task.max_new_tokens = 8;
      task.num_samples = 1 + 20 * i;
      task.sampling.temperature = 2;
      task.sampling.repetition_penalty = 1.3f;
      // All tokens have an adjustment.
      for (int id = 0; id < kStepperVocabulary; ++id)
        task.sampling.logit_bias.emplace_back(id, 0.1f * i);
      task.seed = i;
      task.sink = &sinks[i];
      sequences.push_back(std::make_unique<GenerateSequence>(&task, *model_));
    }
    for (bool all_done = false; !all_done;) {
      all_done = true;
      std::vector<batching::StepShare> shares;
      for (const auto& sequence : sequences) {
        const batching::StepNeed need = sequence->need();
        if (need.done) continue;
        shares.emplace_back();
        shares.back().sequence = sequence.get();
        shares.back().rows = static_cast<int>(need.rows);
        all_done = false;
      }
      EXPECT_TRUE(stepper->Run(shares).ok());
      for (const batching::StepShare& share : shares) {
        EXPECT_TRUE(share.status.ok()) << share.status;
        if (!share.status.ok()) return {};
      }
    }
    std::vector<std::vector<std::vector<int32_t>>> tokens;
    for (int i = 0; i < kCalls; ++i) {
      sequences[i]->End(absl::OkStatus(), batching::RequestTimes());
      EXPECT_TRUE(sinks[i].done);
      EXPECT_EQ(sinks[i].ids.size(), static_cast<size_t>(1 + 20 * i));
      tokens.push_back(sinks[i].ids);
    }
    EXPECT_EQ(place.arena->stats().slots, 0);
    return tokens;
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
};

// Its last token has been picked, but was not fed: it was preempted, and then the server drains.
TEST_F(LanguageModelStepperTest, ATextWhoseStateIsMissingIsNotWhole) {
  batching::RunnerPlace place;
  place.limits.max_tokens = place.limits.max_sequences = 10;
  place.arena = MakeArena();
  const auto stepper = MakeGenerateStepper(*model_, place, /*least_adjustments=*/0).value();
  ASSERT_TRUE(stepper->WarmUp().ok());
  StepperSink sink;
  GenerateTask task;
  task.prompt = {1, 2};
  task.max_new_tokens = 1;
  task.return_state = true;
  task.sink = &sink;
  GenerateSequence sequence(&task, *model_);
  std::vector<batching::StepShare> shares(1);
  shares[0].sequence = &sequence;
  shares[0].rows = 2;
  ASSERT_TRUE(stepper->Run(shares).ok());
  ASSERT_TRUE(shares[0].status.ok()) << shares[0].status;
  ASSERT_FALSE(sequence.need().done) << "its state is to come";
  sequence.Rewind();
  sequence.Suspend();
  EXPECT_TRUE(sequence.need().done);
  EXPECT_TRUE(sequence.need().cut_off);
}

TEST_F(LanguageModelStepperTest, AStepInPartsGivesTheSameTokens) {
  const auto whole = Run(1000, 1000, 1 << 14);
  ASSERT_EQ(whole.size(), static_cast<size_t>(kCalls));
  ASSERT_NE(whole[3][0], whole[3][1]);
  EXPECT_EQ(Run(1000, 1000, 0), whole);    // the adjustments of one pick at a time
  EXPECT_EQ(Run(1000, 1000, 100), whole);  // of some of the samples of one call
  EXPECT_EQ(Run(1000, 3, 1 << 14), whole);
  EXPECT_EQ(Run(5, 2, 50), whole);
}

}  // namespace
}  // namespace sru::server::tasks
