// Every allocation of a step fails once: no sentence is lost, and the hypotheses stay the same.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "server/base/out_of_memory.h"
#include "server/batching/sequence_scheduler.h"
#include "server/batching/translate_sequence.h"
#include "server/batching/translator_stepper.h"
#include "tests/testing/failing_allocations.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/translator_files.h"

namespace sru::server {
namespace {

// What came of a call.
struct Answer {
  int answers = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::vector<TranslationResult> results;
};

class TranslateAllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    OutOfMemoryStatus();
    ASSERT_TRUE(kernels::CreateBackend("reference", &backend_).ok());
    models::WriteSmallTranslator(directory_, "m");
    auto model = models::Model::Load(directory_.path("m"), "m", 1, *backend_, {});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  // Runs a call of three sentences, whose step `failing_step` has its allocation number
  // `failing_allocation` fail. Returns whether there was such an allocation.
  bool Run(int failing_step, int64_t failing_allocation, Answer* answer) {
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
        TranslatorStepper::Create(model_->program(), *model_->translator(), limits, shared);
    EXPECT_TRUE(stepper.ok()) << stepper.status();
    const models::TranslatorConfig& config = model_->config().translator;
    TranslateSequence::Model model;
    model.bos_id = config.bos_id;
    model.eos_id = config.eos_id;
    model.max_candidates = model_->translator()->max_candidates;

    TranslationRequest request;
    for (int i = 0; i < 3; ++i) {
      TranslateTask& task = request.sentences.emplace_back();
      for (int k = 0; k < 3 + i; ++k) task.source.push_back(4 + (i + k) % 7);
      task.search = config.search;
      task.search.beam_size = 1 + 2 * i;
      task.search.num_hypotheses = 1 + i;
      task.search.max_length = 8;
      if (i == 1) task.prefix = {5, 6};
      task.alignment = i == 2;
    }
    *answer = Answer();
    request.done = [answer](const absl::Status& status, std::vector<TranslationResult>&& results,
                            const TranslateTimes& /*times*/) {
      ++answer->answers;
      answer->code = status.code();
      answer->results = std::move(results);
    };
    TranslationCounts counts;
    auto call = std::make_shared<PendingTranslation>(std::move(request), scheduler->get(), &counts,
                                                     clock.Now());
    std::vector<SequenceRequest> sentences(3);
    for (size_t i = 0; i < 3; ++i) {
      sentences[i].sequence = std::make_unique<TranslateSequence>(call, i, model);
    }
    auto handles = (*scheduler)->SubmitTogether(std::move(sentences));
    EXPECT_TRUE(handles.ok()) << handles.status();
    call->SetHandles(*std::move(handles));
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

  models::TempDirectory directory_;
  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
};

TEST_F(TranslateAllocationTest, AFailedAllocationChangesNoHypothesis) {
  Answer expected;
  ASSERT_FALSE(Run(-1, 0, &expected));
  ASSERT_EQ(expected.code, absl::StatusCode::kOk);
  Answer found;
  int64_t failures = 0;
  for (int step = 0; step < 12; ++step) {
    for (int64_t allocation = 1; Run(step, allocation, &found); ++allocation) {
      SCOPED_TRACE(::testing::Message() << "step " << step << ", allocation " << allocation);
      ++failures;
      ASSERT_EQ(found.answers, 1);
      ASSERT_EQ(found.code, absl::StatusCode::kOk);
      ASSERT_EQ(found.results.size(), expected.results.size());
      for (size_t i = 0; i < found.results.size(); ++i) {
        const auto& hypotheses = found.results[i].hypotheses;
        ASSERT_EQ(hypotheses.size(), expected.results[i].hypotheses.size());
        for (size_t k = 0; k < hypotheses.size(); ++k) {
          ASSERT_EQ(hypotheses[k].tokens, expected.results[i].hypotheses[k].tokens);
          ASSERT_EQ(hypotheses[k].score, expected.results[i].hypotheses[k].score);
          ASSERT_EQ(hypotheses[k].alignment, expected.results[i].hypotheses[k].alignment);
        }
      }
    }
  }
  EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace sru::server
