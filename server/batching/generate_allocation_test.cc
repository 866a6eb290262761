// Every allocation of a step fails once: none of its calls is lost, and their tokens stay the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "server/base/out_of_memory.h"
#include "server/batching/generate_sequence.h"
#include "server/batching/language_model_stepper.h"
#include "server/batching/sequence_scheduler.h"
#include "tests/testing/failing_allocations.h"
#include "tests/testing/fake_clock.h"

namespace sru::server {
namespace {

constexpr int kCalls = 3;

// What came of one sample.
struct Sample {
  std::vector<int32_t> ids;
  std::string text;
  std::string state;
  int candidates = 0;
};

// Allocates nothing that a failure could hit: what it gets is kept in reserved memory.
class Sink : public GenerateSink {
 public:
  Sink() : samples(kCalls) {
    for (Sample& sample : samples) {
      sample.ids.reserve(1000);
      sample.text.reserve(1000);
      sample.state.reserve(10000);
    }
  }
  void OnChunk(GeneratedChunk&& chunk) override {
    Sample& sample = samples[chunk.sample];
    sample.ids.insert(sample.ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    sample.text += chunk.text;
    sample.state += chunk.state;
    sample.candidates += static_cast<int>(chunk.candidates.size());
  }
  void OnDone(const absl::Status& ended, const GenerateTimes& /*times*/) override {
    ++dones;
    code = ended.code();
  }

  std::vector<Sample> samples;
  int dones = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
};

class GenerateAllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    OutOfMemoryStatus();
    ASSERT_TRUE(kernels::CreateBackend("reference", &backend_).ok());
    auto model = models::Model::Load("tests/golden/language_model/fresh", "lm", 1, *backend_, {});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  // Runs kCalls calls, whose step `failing_step` has its allocation number `failing_allocation` fail.
  // Returns whether there was such an allocation.
  bool Run(int failing_step, int64_t failing_allocation, std::vector<Sink>* sinks) {
    FakeClock clock;
    auto scheduler = SequenceScheduler::Create(SchedulerOptions(), &clock);
    std::unique_ptr<kernels::StateArena> arena;
    kernels::ArenaOptions arena_options;
    arena_options.budget_bytes = 1 << 20;
    EXPECT_TRUE(model_->program().CreateArena(arena_options, &arena).ok());
    kernels::WorkspaceLimits limits;
    limits.max_tokens = 64;
    limits.max_sequences = 16;
    const std::shared_ptr<kernels::StateArena> shared = std::move(arena);
    auto stepper =
        LanguageModelStepper::Create(model_->program(), *model_->language_model(), limits, shared);
    EXPECT_TRUE(stepper.ok()) << stepper.status();
    GenerateSequence::Model model;
    model.detokenizer = model_->tokenizer()->detokenizer();
    model.state_codec = &model_->state_codec();
    sinks->clear();
    sinks->resize(kCalls);
    for (int i = 0; i < kCalls; ++i) {
      GenerateTask task;
      task.prompt = {1, 2, i};
      task.max_new_tokens = 6 + i;
      task.sampling.temperature = 1;
      task.sampling.repetition_penalty = 1.3f;
      task.sampling.presence_penalty = 0.5f;
      task.seed = 17 + i;
      task.stop = {"~~"};
      task.echo = i == 1;
      task.token_log_probs = true;
      task.num_candidates = i;
      task.return_state = i != 1;
      task.num_samples = kCalls - i;  // the results of others come after those of several samples
      task.sink = &(*sinks)[i];
      SequenceRequest request;
      request.sequence = std::make_unique<GenerateSequence>(&task, model, clock.Now());
      EXPECT_TRUE((*scheduler)->Submit(std::move(request)).ok());
    }
    bool failed = false;
    for (int i = 0; i < 200; ++i) {
      if (i == failing_step) sru::testing::ArmAllocations(failing_allocation, /*for_good=*/false);
      std::unique_ptr<Step> step = (*scheduler)->TryTakeStep();
      if (step != nullptr) {
        const absl::Status status =
            CatchOutOfMemory([&] { return (*stepper)->Run(step->shares()); });
        (*scheduler)->FinishStep(std::move(step), status, absl::Milliseconds(1));
      }
      if (i == failing_step) {
        sru::testing::DisarmAllocations();
        failed = sru::testing::FailedAllocations() > 0;
      }
      clock.Advance(kAllocationRetry);
    }
    EXPECT_EQ(shared->stats().slots, 0);
    return failed;
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
};

TEST_F(GenerateAllocationTest, AFailedAllocationChangesNoToken) {
  std::vector<Sink> expected;
  ASSERT_FALSE(Run(-1, 0, &expected));
  for (const Sink& sink : expected) ASSERT_EQ(sink.code, absl::StatusCode::kOk);
  std::vector<Sink> sinks;
  for (const int step : {0, 1, 4, 5, 6, 7, 8}) {
    int64_t allocation = 1;
    for (; Run(step, allocation, &sinks); ++allocation) {
      for (int i = 0; i < kCalls; ++i) {
        ASSERT_EQ(sinks[i].dones, 1) << "step " << step << ", allocation " << allocation;
        ASSERT_EQ(sinks[i].code, absl::StatusCode::kOk);
        for (int k = 0; k < kCalls; ++k) {
          const Sample& found = sinks[i].samples[k];
          const Sample& wanted = expected[i].samples[k];
          ASSERT_EQ(found.ids, wanted.ids) << "step " << step << ", allocation " << allocation;
          ASSERT_EQ(found.text, wanted.text);
          ASSERT_EQ(found.state, wanted.state);
          ASSERT_EQ(found.candidates, wanted.candidates);
        }
      }
    }
    EXPECT_GT(allocation, 0) << "step " << step;
  }
}

}  // namespace
}  // namespace sru::server
