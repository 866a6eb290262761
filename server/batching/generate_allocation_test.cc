// Every allocation of a step fails once: none of its calls is lost, and their tokens stay the same.
//
// This program replaces operator new. It fails only while a test has armed it.
#include <algorithm>
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
#include "tests/testing/fake_clock.h"

namespace {

// Of this thread. The allocation after `until_failure` others fails.
struct Failing {
  bool armed = false;
  bool failed = false;
  int64_t until_failure = 0;
};
thread_local Failing failing;

void* AllocateOrNull(std::size_t size, std::size_t alignment) {
  if (failing.armed && !failing.failed && failing.until_failure-- == 0) {
    failing.failed = true;
    return nullptr;
  }
  alignment = std::max(alignment, sizeof(void*));
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, std::max<std::size_t>(size, 1)) == 0 ? memory : nullptr;
}

void* Allocate(std::size_t size, std::size_t alignment) {
  void* const memory = AllocateOrNull(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All forms that the library has, so that none of them is a sanitizer's own.
void* operator new(std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sru::server {
namespace {

// Allocates nothing that a failure could hit: what it gets is kept in reserved memory.
class Sink : public GenerateSink {
 public:
  Sink() {
    ids.reserve(1000);
    text.reserve(1000);
    state.reserve(10000);
  }
  void OnChunk(GeneratedChunk&& chunk) override {
    ids.insert(ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    text += chunk.text;
    state += chunk.state;
    candidates += static_cast<int>(chunk.candidates.size());
  }
  void OnDone(const absl::Status& ended, const GenerateTimes& /*times*/) override {
    ++dones;
    code = ended.code();
  }

  std::vector<int32_t> ids;
  std::string text;
  std::string state;
  int candidates = 0;
  int dones = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
};

constexpr int kCalls = 3;

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
      task.num_samples = 1 + i;
      task.sink = &(*sinks)[i];
      SequenceRequest request;
      request.sequence = std::make_unique<GenerateSequence>(&task, model, clock.Now());
      EXPECT_TRUE((*scheduler)->Submit(std::move(request)).ok());
    }
    bool failed = false;
    for (int i = 0; i < 200; ++i) {
      failing = {i == failing_step, false, failing_allocation};
      std::unique_ptr<Step> step = (*scheduler)->TryTakeStep();
      if (step != nullptr) {
        const absl::Status status =
            CatchOutOfMemory([&] { return (*stepper)->Run(step->shares()); });
        (*scheduler)->FinishStep(std::move(step), status, absl::Milliseconds(1));
      }
      failed = failed || failing.failed;
      failing = Failing();
      clock.Advance(kMemoryRetry);
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
  for (const int step : {0, 1, 4, 6, 7, 8}) {
    int64_t allocation = 0;
    for (; Run(step, allocation, &sinks); ++allocation) {
      for (int i = 0; i < kCalls; ++i) {
        ASSERT_EQ(sinks[i].dones, 1) << "step " << step << ", allocation " << allocation;
        ASSERT_EQ(sinks[i].code, absl::StatusCode::kOk);
        std::vector<int32_t> ids = sinks[i].ids;
        std::vector<int32_t> of_call = expected[i].ids;
        // The chunks of several samples may come in another order.
        std::sort(ids.begin(), ids.end());
        std::sort(of_call.begin(), of_call.end());
        ASSERT_EQ(ids, of_call) << "step " << step << ", allocation " << allocation;
        ASSERT_EQ(sinks[i].text.size(), expected[i].text.size());
        ASSERT_EQ(sinks[i].state.size(), expected[i].state.size());
        ASSERT_EQ(sinks[i].candidates, expected[i].candidates);
        if (i == 0) {
          ASSERT_EQ(sinks[i].ids, expected[i].ids);
          ASSERT_EQ(sinks[i].text, expected[i].text);
          ASSERT_EQ(sinks[i].state, expected[i].state);
        }
      }
    }
    EXPECT_GT(allocation, 0) << "step " << step;
  }
}

}  // namespace
}  // namespace sru::server
