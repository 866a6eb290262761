// The arena of states against plain vectors: every operation alone, and random sequences of them
// with memory and budgets that refuse.
#include "kernels/state_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/kernels/status_matchers.h"

namespace sru::kernels {
namespace {

using ::testing::HasSubstr;
using Slot = StateArena::Slot;

using State = StateArena::State;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// Host memory that counts, fills what it gives with NaN, and fails when it is told to.
class Memory final : public ArenaMemory {
 public:
  ~Memory() override { EXPECT_TRUE(blocks_.empty()) << "the arena has left memory behind"; }
  size_t max_block_bytes() const override { return host_->max_block_bytes(); }
  Status Allocate(size_t bytes, float** memory) override {
    if (MustFail()) return Failure();
    Status status = host_->Allocate(bytes, memory);
    if (!status.ok()) return status;
    std::fill_n(*memory, bytes / sizeof(float), kPoison);
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[*memory] = bytes;
    held_bytes_ += bytes;
    ++allocations_;
    return status;
  }
  void Free(float* memory, size_t bytes) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ASSERT_EQ(blocks_.count(memory), 1u);
      EXPECT_EQ(blocks_[memory], bytes);
      blocks_.erase(memory);
      held_bytes_ -= bytes;
      ++frees_;
    }
    host_->Free(memory, bytes);
  }
  Status CopyIn(float* to, const float* from, size_t count) override {
    return MustFail() ? Failure() : host_->CopyIn(to, from, count);
  }
  Status CopyOut(float* to, const float* from, size_t count) override {
    return MustFail() ? Failure() : host_->CopyOut(to, from, count);
  }

  // The call after `calls` others fails, once; -1 = none does.
  void FailAfter(int calls) { fail_after_ = calls; }
  int64_t allocations() const { return allocations_; }
  int64_t frees() const { return frees_; }
  size_t held_bytes() const { return held_bytes_; }

  static Status Failure() { return Status(StatusCode::kDeviceLost, "the test's memory is lost"); }

 private:
  bool MustFail() { return fail_after_ >= 0 && fail_after_-- == 0; }

  const std::unique_ptr<ArenaMemory> host_ = HostArenaMemory();
  std::mutex mutex_;
  std::map<float*, size_t> blocks_;
  std::atomic<int> fail_after_{-1};
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> frees_{0};
  std::atomic<size_t> held_bytes_{0};
};

// An arena whose memory the test holds a pointer to.
struct TestArena {
  // Without `axes` all fields are of axis 0.
  TestArena(std::vector<FieldSpec> fields, const ArenaOptions& options,
            std::vector<AxisId> axes = {}) {
    auto owned = std::make_unique<Memory>();
    memory = owned.get();
    axes.resize(fields.size());
    arena = std::make_unique<StateArena>(std::move(fields), axes, options, std::move(owned));
  }
  explicit TestArena(std::vector<FieldSpec> fields, size_t budget_bytes = size_t{1} << 30,
                     std::vector<AxisId> axes = {})
      : TestArena(std::move(fields), WithBudget(budget_bytes), std::move(axes)) {}

  static ArenaOptions WithBudget(size_t bytes) {
    ArenaOptions options;
    options.budget_bytes = bytes;
    return options;
  }
  StateArena* operator->() const { return arena.get(); }

  Slot New() const {
    Slot slot = StateArena::kNoSlot;
    EXPECT_THAT(arena->Allocate(&slot), IsOk());
    return slot;
  }
  Slot CopyOf(Slot from) const {
    Slot slot = StateArena::kNoSlot;
    EXPECT_THAT(arena->Copy(from, &slot), IsOk());
    return slot;
  }
  State Held(Slot slot) const {
    State state;
    EXPECT_THAT(arena->Take(slot, &state), IsOk());
    return state;
  }
  // A run that must begin.
  StateArena::Run Begin(const Slot* slots, const int* added, int count, AxisId axis = 0) const {
    StateArena::Run run;
    Require(arena->BeginRun(slots, added, count, axis, &run));
    return run;
  }
  // One run of one sequence of kRowAndCache: `row` replaces the fixed field, and `added` rows of
  // `value` are added to the growing one. `copied` is set to whether the run got a page of its own
  // for one that other slots share.
  Status TryStep(Slot slot, float row, int added, float value, bool commit = true,
                 bool* copied = nullptr) const;
  void Step(Slot slot, float row, int added, float value, bool commit = true) const {
    Require(TryStep(slot, row, added, value, commit));
  }
  // Whether that step had to copy a page.
  bool StepCopies(Slot slot, float row, int added, float value) const {
    bool copied = false;
    Require(TryStep(slot, row, added, value, true, &copied));
    return copied;
  }

  Memory* memory = nullptr;
  std::unique_ptr<StateArena> arena;
};

const std::vector<FieldSpec> kRowAndCache = {{"state", 3, false}, {"cache", 2, true}};
constexpr int kRow = 0;
constexpr int kCache = 1;

Status TestArena::TryStep(Slot slot, float row, int added, float value, bool commit,
                          bool* copied) const {
  StateArena::Run run;
  SRU_RETURN_IF_ERROR(arena->BeginRun(&slot, &added, 1, 0, &run));
  std::fill_n(run.out(kRow, 0), 3, row);
  if (copied != nullptr) *copied = run.copied_from(kCache, 0) != nullptr;
  run.CopySharedRows(kCache, 0);
  for (int i = run.rows(kCache, 0); i < run.rows(kCache, 0) + added; ++i) {
    std::fill_n(run.pages(kCache, 0)[i / kStatePageRows] + i % kStatePageRows * 2, 2, value);
  }
  if (commit) run.Commit();
  return OkStatus();
}

TEST(StateArenaTest, AFreshSlotHasZerosAndCostsNothing) {
  const TestArena arena(kRowAndCache, 0);
  const Slot slot = arena.New();
  const State state = arena.Held(slot);
  EXPECT_EQ(state.rows, (std::vector<int32_t>{0, 0}));
  EXPECT_TRUE(state.values.empty());
  EXPECT_EQ(arena->stats().slots, 1);
  EXPECT_EQ(arena->stats().used_bytes, 0u);
  EXPECT_EQ(arena.memory->allocations(), 0);
}

TEST(StateArenaTest, ARunThatIsReplacedIsGivenUp) {
  const TestArena arena(kRowAndCache);
  const Slot slots[] = {arena.New(), arena.New()};
  StateArena::Run run = arena.Begin(&slots[0], nullptr, 1);
  const size_t used = arena->stats().used_bytes;
  ASSERT_THAT(arena->BeginRun(&slots[1], nullptr, 1, 0, &run), IsOk());
  EXPECT_EQ(arena->stats().used_bytes, used);
  StateArena::Run moved(std::move(run));
  run = std::move(moved);
  run.Commit();
  run.Commit();  // an ended run has nothing more to commit
  EXPECT_EQ(arena.Held(slots[0]).rows[kRow], 0);
  EXPECT_EQ(arena.Held(slots[1]).rows[kRow], 1);
}

TEST(StateArenaTest, CopiesShareUntilOneIsWrittenTo) {
  const TestArena arena(kRowAndCache);
  const Slot slot = arena.New();
  arena.Step(slot, 1, kStatePageRows + 1, 10);
  const size_t used = arena->stats().used_bytes;
  const Slot copy = arena.CopyOf(slot);
  EXPECT_EQ(arena->stats().used_bytes, used);

  // The full page stays shared; of the other one, the copy gets its own.
  EXPECT_TRUE(arena.StepCopies(copy, 2, 1, 20));
  EXPECT_EQ(arena->stats().used_bytes, used + 64 + 128) << "a row and a page";
  // Now it is the only one that holds it, as is the original.
  EXPECT_FALSE(arena.StepCopies(copy, 3, 1, 30));
  EXPECT_FALSE(arena.StepCopies(slot, 4, 1, 40));
}

// Of slots that share a page and add to it in one run, the last one keeps it; a slot that shares it
// and is not in the run keeps the others from it.
TEST(StateArenaTest, TheLastOfARunThatSharesAPageKeepsIt) {
  for (const bool others_share : {false, true}) {
    const TestArena arena(kRowAndCache);
    const Slot first = arena.New();
    arena.Step(first, 1, 3, 10);
    const Slot slots[] = {first, arena.CopyOf(first), arena.CopyOf(first)};
    if (others_share) arena.CopyOf(first);
    const int added[] = {1, 1, 1};
    for (const bool commit : {false, true}) {
      StateArena::Run run = arena.Begin(slots, added, 3);
      int copies = 0;
      for (const int b : {0, 1, 2}) copies += run.copied_from(kCache, b) != nullptr ? 1 : 0;
      EXPECT_EQ(copies, others_share ? 3 : 2);
      if (commit) run.Commit();
    }
  }
}

// Keys and values of two axes and fixed fields between them, all of different widths.
const std::vector<FieldSpec> kLayers = {{"k", 3, true}, {"c", 5, false},  {"v", 20, true},
                                        {"m", 2, true}, {"h", 17, false}, {"n", 1, true}};
const std::vector<AxisId> kAxesOfLayers = {0, 0, 0, 1, 0, 1};

TEST(StateArenaTest, FieldsOfAnAxisShareTheirPages) {
  const size_t page = 16 * (3 + 20) * sizeof(float);
  const size_t other_page = 16 * (2 + 1) * sizeof(float);
  const size_t row = (16 + 32) * sizeof(float);  // in whole cache lines
  const TestArena arena(kLayers, size_t{1} << 30, kAxesOfLayers);
  const Slot slot = arena.New();
  int added = 5;
  StateArena::Run run = arena.Begin(&slot, &added, 1);
  for (const FieldId f : {0, 2}) {
    EXPECT_EQ(run.pages(f, 0), run.pages(0, 0));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(run.pages(f, 0)[0] + run.offset(f)) % 64, 0u);
  }
  run.Commit();
  EXPECT_EQ(arena->stats().used_bytes, page + row);
  added = kStatePageRows + 1;
  run = arena.Begin(&slot, &added, 1, 1);
  EXPECT_EQ(run.out(1, 0), nullptr);
  run.Commit();
  EXPECT_EQ(arena->stats().used_bytes, page + row + 2 * other_page);

  // A copy that adds to one axis gets its own page of it, with the rows of all fields in it.
  const Slot copy = arena.CopyOf(slot);
  added = kStatePageRows;
  run = arena.Begin(&copy, &added, 1);
  for (const FieldId f : {0, 2}) EXPECT_NE(run.copied_from(f, 0), nullptr);
  EXPECT_EQ(run.copied_from(3, 0), nullptr);
  run.Commit();
  EXPECT_EQ(arena->stats().used_bytes, 3 * page + 2 * row + 2 * other_page);
  for (const Slot used : {slot, copy}) arena->Free(used);
  EXPECT_EQ(arena->stats().used_bytes, 0u);
}

TEST(StateArenaTest, FieldsThatSharePagesHaveAsManyRows) {
  const TestArena arena(kLayers, size_t{1} << 30, kAxesOfLayers);
  const Slot slot = arena.New();
  const struct {
    std::vector<int32_t> rows;
    const char* message;
  } kCases[] = {
      {{2, 1, 3, 4, 1, 4}, "the state has 3 rows of the field v, expected 2 as of the field k"},
      {{2, 1, 2, 4, 0, 4}, "the state has 0 rows of the field h, expected 1 as of the field c"},
      {{2, 1, 2, 4, 1, 2}, "the state has 2 rows of the field n, expected 4 as of the field m"},
  };
  for (const auto& c : kCases) {
    State state;
    state.rows = c.rows;
    for (size_t f = 0; f < kLayers.size(); ++f) {
      state.values.resize(state.values.size() + c.rows[f] * kLayers[f].width);
    }
    EXPECT_THAT(arena->Put(slot, state), IsInvalid(c.message));
  }
  EXPECT_EQ(arena->stats().used_bytes, 0u);
}

TEST(StateArenaTest, APageOfSeveralFieldsIsTakenWholeOrNotAtAll) {
  const size_t page = 2 * 16 * 16 * sizeof(float);
  const std::vector<FieldSpec> fields = {{"k", 16, true}, {"v", 16, true}};
  const auto add_a_row = [](const TestArena& arena) {
    const Slot slot = arena.New();
    const int added = 1;
    StateArena::Run run;
    const Status status = arena->BeginRun(&slot, &added, 1, 0, &run);
    run.Commit();
    return status;
  };
  const TestArena small(fields, page - 1);
  EXPECT_THAT(add_a_row(small),
              IsExhausted(HasSubstr("has no room for 2048 bytes more of states")));
  EXPECT_EQ(small->stats().held_bytes, 0u);
  const TestArena enough(fields, page);
  ASSERT_TRUE(add_a_row(enough).ok());
  EXPECT_EQ(enough->stats().used_bytes, page);
  EXPECT_EQ(enough->stats().held_bytes, page);
  // Where the budget is large, a block has room for as many rows as one of a single field.
  const TestArena large(fields);
  ASSERT_TRUE(add_a_row(large).ok());
  EXPECT_EQ(large->stats().held_bytes, 2 * large.memory->max_block_bytes());
  EXPECT_EQ(large.memory->allocations(), 1);
}

TEST(StateArenaTest, ReorderMovesNoValues) {
  const TestArena arena(kRowAndCache);
  Slot slots[4];
  for (int i = 0; i < 4; ++i) {
    slots[i] = arena.New();
    arena.Step(slots[i], static_cast<float>(i), i, 10.0f * i);
  }
  const int64_t allocations = arena.memory->allocations();
  const int parents[] = {2, 2, 1, 0};
  ASSERT_TRUE(arena->Reorder(slots, parents, 4).ok());
  EXPECT_EQ(arena.memory->allocations(), allocations);
  for (int i = 0; i < 4; ++i) {
    const State state = arena.Held(slots[i]);
    EXPECT_EQ(state.rows[kCache], parents[i]);
    EXPECT_EQ(state.values[0], static_cast<float>(parents[i]));
  }
  for (const Slot slot : slots) arena->Free(slot);
  EXPECT_EQ(arena->stats().used_bytes, 0u);
  EXPECT_TRUE(arena->Reorder(nullptr, nullptr, 0).ok());
}

TEST(StateArenaTest, PutRefusesSizesThatDoNotAgree) {
  const TestArena arena(kRowAndCache);
  const Slot slot = arena.New();
  arena.Step(slot, 5, 1, 7);
  const State before = arena.Held(slot);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const struct {
    std::vector<int32_t> rows;
    size_t values;
    const char* message;
  } kCases[] = {
      {{}, 0, "the state has 0 fields, expected 2"},
      {{1, 2, 0}, 7, "the state has 3 fields, expected 2"},
      {{2, 0}, 6, "the state has 2 rows of the field state, expected 0 or 1"},
      {{-1, 0}, 0, "the state has -1 rows of the field state, expected 0 or 1"},
      {{1, -1}, 3, "the state has -1 rows of the field cache, expected 0 or more"},
      {{1, 2}, 6, "the state has 6 values, expected at least 7: 2 rows of the field cache"},
      {{1, 0}, 2, "the state has 2 values, expected at least 3: 1 rows of the field state"},
      {{1, 2}, 8, "the state has 8 values, expected 7"},
      {{0, 0}, 1, "the state has 1 values, expected 0"},
      {{1, kMost}, 3, "the state has 3 values, expected at least 4294967297: 2147483647 rows"},
  };
  for (const auto& c : kCases) {
    State state;
    state.rows = c.rows;
    state.values.assign(c.values, 1.0f);
    EXPECT_THAT(arena->Put(slot, state), IsInvalid(HasSubstr(c.message)));
    EXPECT_EQ(arena.Held(slot).values, before.values);
  }
}

TEST(StateArenaTest, NamesWhatIsNotASlot) {
  const TestArena arena(kRowAndCache);
  const Slot slot = arena.New();
  const Slot gone = arena.New();
  arena->Free(gone);
  State state;
  Slot made;
  StateArena::Run run;
  const int parent = 0;
  for (const Slot wrong : {gone, Slot{-1}, Slot{2}, std::numeric_limits<Slot>::max()}) {
    std::vector<Status> refusals = {arena->Copy(wrong, &made), arena->Take(wrong, &state),
                                    arena->Reorder(&wrong, &parent, 1)};
    state.rows = {0, 0};
    refusals.push_back(arena->Put(wrong, state));
    if (wrong != StateArena::kNoSlot) {
      refusals.push_back(arena->BeginRun(&wrong, nullptr, 1, 0, &run));
    }
    for (const Status& status : refusals) {
      EXPECT_THAT(status,
                  IsInvalid("slot " + std::to_string(wrong) + " of the state arena is not in use"));
    }
  }
  const Slot twice[] = {slot, slot};
  const int parents[] = {0, 1};
  for (const Status& status :
       {arena->Reorder(twice, parents, 2), arena->BeginRun(twice, parents, 2, 0, &run)}) {
    EXPECT_THAT(status, IsInvalid("slot 0 of the state arena is named twice in one call"));
  }
  // The next call may name it again.
  EXPECT_TRUE(arena->Reorder(&slot, &parent, 1).ok());
}

TEST(StateArenaTest, NamesWrongArguments) {
  const TestArena arena(kRowAndCache);
  const Slot slots[] = {arena.New(), arena.New()};
  for (const int wrong : {-1, 2}) {
    const int parents[] = {0, wrong};
    EXPECT_THAT(arena->Reorder(slots, parents, 2),
                IsInvalid("parent 1 is " + std::to_string(wrong) + ", expected 0 to 1"));
  }
  StateArena::Run run;
  int added[] = {0, -1};
  EXPECT_THAT(arena->BeginRun(slots, added, 2, 0, &run),
              IsInvalid("a run adds -1 rows to sequence 1, expected 0 or more"));
  arena.Step(slots[1], 0, 1, 0);
  added[1] = std::numeric_limits<int>::max();
  EXPECT_THAT(
      arena->BeginRun(slots, added, 2, 0, &run),
      IsInvalid("a run adds 2147483647 rows to the field cache, which has 1, expected at most "
                "2147483647 in all"));
}

TEST(StateArenaTest, AnArenaHoldsWhatItsBudgetSays) {
  // Pages of 64 and of 128 bytes.
  const TestArena arena(kRowAndCache, 5 * 64);
  const Slot slots[] = {arena.New(), arena.New()};
  arena.Step(slots[0], 1, kStatePageRows, 1);
  arena.Step(slots[0], 2, 0, 0);
  EXPECT_THAT(arena.TryStep(slots[0], 3, kStatePageRows + 1, 3),
              IsExhausted(HasSubstr(
                  "the arena's budget of 320 bytes has no room for 320 bytes more of states: "
                  "192 bytes are in use")));
  EXPECT_EQ(arena.Held(slots[0]).rows[kCache], kStatePageRows);
  EXPECT_EQ(arena.Held(slots[0]).values[0], 2);
  EXPECT_LE(arena->stats().held_bytes, 320u);

  // What one field lets go the other may take.
  arena->Free(slots[0]);
  EXPECT_EQ(arena->stats().used_bytes, 0u);
  State state;
  state.rows = {0, 2 * kStatePageRows};
  state.values.assign(2 * 2 * kStatePageRows, 4);
  ASSERT_TRUE(arena->Put(slots[1], state).ok());
  EXPECT_EQ(arena->stats().used_bytes, 256u);
  EXPECT_EQ(arena.Held(slots[1]).values, state.values);
  state.rows[kCache] += 1;
  state.values.resize(state.values.size() + 2);
  EXPECT_EQ(arena->Put(slots[1], state).code(), StatusCode::kResourceExhausted)
      << "the old state is there until the new one has replaced it";
  EXPECT_EQ(arena.Held(slots[1]).rows[kCache], 2 * kStatePageRows);
}

TEST(StateArenaTest, ARefusalKeepsNoMemory) {
  const TestArena arena({{"state", 16, false}, {"cache", 16, true}}, 64 << 10);
  const Slot slot = arena.New();
  State state;
  state.rows = {1, 70 * kStatePageRows};
  state.values.assign(16 + 16 * 70 * kStatePageRows, 1);
  EXPECT_EQ(arena->Put(slot, state).code(), StatusCode::kResourceExhausted);
  EXPECT_GT(arena.memory->allocations(), 10);
  EXPECT_LE(arena->stats().held_bytes, size_t{2} * (64 << 10) / 32) << "a block of each field";
}

TEST(StateArenaTest, ArenasMayShareABudget) {
  ArenaOptions options;
  options.budget = std::make_shared<ArenaBudget>(3 * 64);
  const TestArena a({{"state", 16, false}}, options);
  const TestArena b({{"state", 16, false}}, options);
  State state;
  state.rows = {1};
  state.values.assign(16, 1);
  std::vector<Slot> of_a;
  for (int i = 0; i < 3; ++i) {
    of_a.push_back(a.New());
    ASSERT_TRUE(a->Put(of_a.back(), state).ok());
  }
  EXPECT_EQ(options.budget->taken(), 192u);
  const Slot slot = b.New();
  EXPECT_THAT(b->Put(slot, state),
              IsExhausted(HasSubstr("has no room for 64 bytes more of states: 0 bytes are in "
                                    "use, and 192 bytes of the budget are taken")));
  EXPECT_EQ(b->stats().budget_bytes, 192u);
}

TEST(StateArenaTest, SteadyUseTakesNoMemoryAndIdlenessGivesItBack) {
  const TestArena arena({{"state", 4096, false}, {"cache", 64, true}});
  constexpr int kSequences = 200;  // more than a block of the fixed field's has pages
  std::vector<Slot> slots(kSequences);
  for (Slot& slot : slots) slot = arena.New();
  const std::vector<int> none(kSequences, 0);
  const std::vector<int> one(kSequences, 1);
  const auto step = [&](const std::vector<int>& added) {
    StateArena::Run run = arena.Begin(slots.data(), added.data(), kSequences);
    run.Commit();
  };
  step(one);
  step(none);
  step(none);
  const int64_t allocations = arena.memory->allocations();
  for (int i = 0; i < 100; ++i) step(none);
  EXPECT_EQ(arena.memory->allocations(), allocations);
  const size_t held = arena->stats().held_bytes;
  EXPECT_GE(held, size_t{2} * kSequences * 4096 * sizeof(float));

  for (const Slot slot : slots) arena->Free(slot);
  EXPECT_EQ(arena->stats().used_bytes, 0u);
  EXPECT_LE(arena->stats().held_bytes, size_t{2} << 20) << "a block of each field";
  EXPECT_GT(arena->stats().held_bytes, 0u) << "one sequence after another takes no memory";
  EXPECT_EQ(arena.memory->held_bytes(), arena->stats().held_bytes);
}

TEST(StateArenaTest, SequencesThatWaitDoNotHoldWhatOthersLeft) {
  constexpr int kSequences = 400;
  constexpr int kActive = 40;
  constexpr size_t kStateBytes = 24576 * sizeof(float);  // of a model of 12 layers
  const TestArena arena({{"state", 24576, false}, {"h", 2048, false}});
  std::vector<Slot> slots(kSequences);
  for (Slot& slot : slots) slot = arena.New();
  const std::vector<int> one(kSequences, 1);
  const auto step = [&](const std::vector<Slot>& stepping) {
    StateArena::Run run;
    const int count = static_cast<int>(stepping.size());
    run = arena.Begin(stepping.data(), one.data(), count);
    run.Commit();
  };
  for (int i = 0; i < 5; ++i) step(slots);
  EXPECT_GE(arena->stats().held_bytes, 2 * kSequences * kStateBytes);

  // Every tenth goes on.
  std::vector<Slot> active;
  for (int i = 0; i < kSequences; i += kSequences / kActive) active.push_back(slots[i]);
  for (int i = 0; i < 100; ++i) step(active);
  const auto used = static_cast<double>(arena->stats().used_bytes);
  EXPECT_LE(static_cast<double>(arena->stats().held_bytes), 1.15 * used);
  const int64_t allocations = arena.memory->allocations();
  for (int i = 0; i < 100; ++i) step(active);
  EXPECT_EQ(arena.memory->allocations(), allocations);
  for (const Slot slot : slots) arena->Free(slot);
}

TEST(StateArenaTest, ATakeThatFailsLeavesTheStateAsItWas) {
  const TestArena arena(kRowAndCache);
  const Slot slot = arena.New();
  arena.Step(slot, 1, 1, 1);
  arena.memory->FailAfter(1);
  State state;
  state.rows = {7};
  EXPECT_THAT(arena->Take(slot, &state),
              IsError(StatusCode::kDeviceLost, Memory::Failure().message()));
  EXPECT_EQ(state.rows, std::vector<int32_t>{7});
}

TEST(StateArenaTest, HostMemoryIsAlignedAndRefuses) {
  const std::unique_ptr<ArenaMemory> memory = HostArenaMemory();
  float* values = nullptr;
  ASSERT_TRUE(memory->Allocate(64, &values).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values) % 64, 0u);
  memory->Free(values, 64);
  if (kSanitized) return;  // the sanitizer would end the program instead
  EXPECT_THAT(memory->Allocate(size_t{1} << 60, &values),
              IsExhausted("no memory for 1152921504606846976 bytes of states"));
}

// The same as an arena, in plain vectors.
struct Model {
  struct Field {
    int rows = 0;
    std::vector<float> values;
  };
  std::map<Slot, std::vector<Field>> slots;
};

struct Layout {
  const char* name;
  std::vector<FieldSpec> fields;
  std::vector<AxisId> axes;
};

const std::vector<Layout>& Layouts() {
  static const auto* const kLayouts = new std::vector<Layout>{
      {"one_row", {{"state", 5, false}}, {0}},
      {"one_cache", {{"cache", 3, true}}, {0}},
      {"mixed", {{"c", 17, false}, {"k", 4, true}, {"h", 1, false}, {"v", 16, true}}, {0, 0, 1, 1}},
      {"layers", kLayers, kAxesOfLayers},
      {"none", {}, {}},
      {"wide", {{"c", 1000, false}, {"k", 70, true}}, {0, 0}},
  };
  return *kLayouts;
}

// One random operation after the other on an arena and on its model.
class RandomOperations {
 public:
  RandomOperations(const Layout& layout, size_t budget_bytes, int failures_per_1000, unsigned seed)
      : fields_(layout.fields),
        axes_(layout.axes),
        failures_per_1000_(failures_per_1000),
        random_(seed),
        arena_(fields_, budget_bytes, axes_) {}

  void Go(int count, int check_every) {
    for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
      if (Chance(failures_per_1000_)) arena_.memory->FailAfter(Below(2));
      Operation();
      arena_.memory->FailAfter(-1);
      if (!model_.slots.empty() && i % check_every == 0) CheckSlot(AnySlot());
      if (i % (check_every * 100) == 0) CheckAll();
    }
    CheckAll();
  }

  void End() {
    for (const auto& [slot, fields] : model_.slots) arena_->Free(slot);
    model_.slots.clear();
    const StateArena::Stats stats = arena_->stats();
    EXPECT_EQ(stats.slots, 0);
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.held_bytes, arena_.memory->held_bytes());
    // All but the block that each field keeps.
    EXPECT_LE(arena_.memory->allocations() - arena_.memory->frees(),
              static_cast<int64_t>(fields_.size()));
  }

  int64_t refusals() const { return refusals_; }
  int64_t failures() const { return failures_; }
  int64_t commits() const { return commits_; }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  bool Chance(int of_1000) { return Below(1000) < of_1000; }
  float Value() { return static_cast<float>(Below(1 << 20)); }
  Slot AnySlot() {
    auto slot = model_.slots.begin();
    std::advance(slot, Below(static_cast<int>(model_.slots.size())));
    return slot->first;
  }
  std::vector<Slot> SomeSlots(int most) {
    std::set<Slot> some;
    for (int i = Below(most + 1); i > 0 && !model_.slots.empty(); --i) some.insert(AnySlot());
    std::vector<Slot> slots(some.begin(), some.end());
    std::shuffle(slots.begin(), slots.end(), random_);
    return slots;
  }

  void Operation() {
    const int kind = Below(100);
    if (model_.slots.empty() || (kind < 8 && model_.slots.size() < 24)) {
      Slot slot = StateArena::kNoSlot;
      ASSERT_TRUE(arena_->Allocate(&slot).ok());
      ASSERT_TRUE(model_.slots.emplace(slot, fields_.size()).second) << "it is in use";
    } else if (kind < 16 && model_.slots.size() < 24) {
      const Slot from = AnySlot();
      Slot slot = StateArena::kNoSlot;
      ASSERT_TRUE(arena_->Copy(from, &slot).ok());
      ASSERT_TRUE(model_.slots.emplace(slot, model_.slots[from]).second) << "it is in use";
    } else if (kind < 30) {
      const Slot slot = AnySlot();
      arena_->Free(slot);
      model_.slots.erase(slot);
    } else if (kind < 45) {
      Reorder();
    } else if (kind < 55) {
      Put();
    } else {
      OneRun();
    }
  }

  // True when the operation is done; a refusal must be one that may happen.
  bool Done(const Status& status) {
    if (status.ok()) return true;
    if (status.code() == StatusCode::kResourceExhausted) {
      ++refusals_;
      EXPECT_THAT(status.message(), HasSubstr("the arena's budget of "));
    } else {
      ++failures_;
      EXPECT_EQ(status.message(), Memory::Failure().message());
      EXPECT_GT(failures_per_1000_, 0);
    }
    arena_.memory->FailAfter(-1);
    return false;
  }

  void Reorder() {
    const std::vector<Slot> slots = SomeSlots(6);
    const int count = static_cast<int>(slots.size());
    std::vector<int> parents(count);
    std::vector<std::vector<Model::Field>> reordered(count);
    for (int i = 0; i < count; ++i) {
      parents[i] = Below(count);
      reordered[i] = model_.slots[slots[parents[i]]];
    }
    ASSERT_TRUE(arena_->Reorder(slots.data(), parents.data(), count).ok());
    for (int i = 0; i < count; ++i) model_.slots[slots[i]] = reordered[i];
  }

  void Put() {
    const Slot slot = AnySlot();
    State state;
    if (Chance(300)) {  // what another slot holds
      const Status taken = arena_->Take(AnySlot(), &state);
      if (!Done(taken)) return;
    } else {
      const std::vector<FieldPlace> places = PlaceFields(fields_, axes_);
      for (const FieldSpec& field : fields_) {
        const size_t first = places[state.rows.size()].first;
        state.rows.push_back(first < state.rows.size() ? state.rows[first]
                                                       : Below(field.grows ? 40 : 2));
        for (int i = state.rows.back() * field.width; i > 0; --i) state.values.push_back(Value());
      }
    }
    if (!Done(arena_->Put(slot, state))) {
      CheckSlot(slot);
      return;
    }
    const float* from = state.values.data();
    for (size_t f = 0; f < fields_.size(); ++f) {
      Model::Field& field = model_.slots[slot][f];
      field.rows = state.rows[f];
      field.values.assign(from, from + field.rows * fields_[f].width);
      from += field.values.size();
    }
  }

  void OneRun() {
    std::vector<Slot> slots = SomeSlots(8);
    if (Chance(200)) slots.insert(slots.begin() + Below(static_cast<int>(slots.size()) + 1), -1);
    const int count = static_cast<int>(slots.size());
    std::vector<int> added(count);
    for (int& rows : added) rows = Chance(700) ? 1 : Below(35);
    const AxisId axis = Chance(700) ? 0 : 1;
    StateArena::Run run;
    if (!Done(arena_->BeginRun(slots.data(), added.data(), count, axis, &run))) {
      for (const Slot slot : slots) {
        if (slot != StateArena::kNoSlot) CheckSlot(slot);
      }
      return;
    }
    const bool commit = Chance(850);
    for (int i = 0; i < count; ++i) {
      if (slots[i] == StateArena::kNoSlot) {
        ExpectNothing(run, i);
        continue;
      }
      for (size_t f = 0; f < fields_.size(); ++f) {
        Model::Field& field = model_.slots[slots[i]][f];
        Model::Field after =
            RunOneField(run, i, static_cast<FieldId>(f), field, axes_[f] == axis, added[i]);
        if (commit) field = std::move(after);
      }
    }
    if (commit) run.Commit();
    commits_ += commit ? 1 : 0;
  }

  // Of a sequence without a slot.
  void ExpectNothing(const StateArena::Run& run, int sequence) const {
    for (FieldId f = 0; f < static_cast<FieldId>(fields_.size()); ++f) {
      if (fields_[f].grows) {
        EXPECT_EQ(run.rows(f, sequence), 0);
        EXPECT_TRUE(run.pages(f, sequence).empty());
      } else {
        EXPECT_TRUE(run.in(f, sequence) == nullptr && run.out(f, sequence) == nullptr);
      }
    }
  }

  // Checks what the run shows of a field that holds `before`, writes random values and returns what
  // the field holds afterwards.
  Model::Field RunOneField(const StateArena::Run& run, int sequence, FieldId f,
                           const Model::Field& before, bool writes, int added) {
    const int width = fields_[f].width;
    Model::Field after = before;
    if (!fields_[f].grows) {
      const float* const in = run.in(f, sequence);
      float* const out = run.out(f, sequence);
      EXPECT_EQ(in != nullptr, writes && before.rows > 0);
      EXPECT_EQ(out != nullptr, writes);
      EXPECT_TRUE(in == nullptr || std::equal(in, in + width, before.values.begin()));
      if (out == nullptr) return after;
      after.rows = 1;
      after.values.resize(width);
      for (int i = 0; i < width; ++i) out[i] = after.values[i] = Value();
      return after;
    }
    const std::vector<float*>& pages = run.pages(f, sequence);
    if (writes) after.rows += added;
    EXPECT_EQ(run.rows(f, sequence), before.rows);
    EXPECT_EQ(pages.size(), (after.rows + kStatePageRows - 1) / kStatePageRows);
    run.CopySharedRows(f, sequence);
    for (int row = 0; row < after.rows; ++row) {
      float* const values =
          pages[row / kStatePageRows] + run.offset(f) + row % kStatePageRows * width;
      if (row < before.rows) {
        EXPECT_TRUE(std::equal(values, values + width, before.values.begin() + row * width));
        continue;
      }
      for (int i = 0; i < width; ++i) after.values.push_back(values[i] = Value());
    }
    return after;
  }

  void CheckSlot(Slot slot) {
    State state;
    if (!Done(arena_->Take(slot, &state))) return;
    State expected;
    for (const Model::Field& field : model_.slots[slot]) {
      expected.rows.push_back(field.rows);
      expected.values.insert(expected.values.end(), field.values.begin(), field.values.end());
    }
    EXPECT_EQ(state.rows, expected.rows);
    EXPECT_TRUE(state.values == expected.values) << "of slot " << slot;
  }

  void CheckAll() {
    for (const auto& [slot, fields] : model_.slots) CheckSlot(slot);
    const StateArena::Stats stats = arena_->stats();
    EXPECT_EQ(stats.slots, static_cast<int64_t>(model_.slots.size()));
    EXPECT_LE(stats.used_bytes, stats.held_bytes);
    EXPECT_LE(stats.held_bytes, stats.budget_bytes);
    EXPECT_EQ(stats.held_bytes, arena_.memory->held_bytes());
  }

  const std::vector<FieldSpec> fields_;
  const std::vector<AxisId> axes_;
  const int failures_per_1000_;
  std::mt19937 random_;
  TestArena arena_;
  Model model_;
  int64_t refusals_ = 0;
  int64_t failures_ = 0;
  int64_t commits_ = 0;
};

class StateArenaRandomTest : public ::testing::TestWithParam<Layout> {};

TEST_P(StateArenaRandomTest, HoldsWhatPlainVectorsHold) {
  RandomOperations operations(GetParam(), size_t{1} << 30, 0, 1);
  operations.Go(4000, 1);
  operations.End();
  EXPECT_EQ(operations.refusals(), 0);
  EXPECT_GT(operations.commits(), 1000);
}

TEST_P(StateArenaRandomTest, RefusalsChangeNothing) {
  size_t bytes = 0;  // of about three slots
  for (const FieldSpec& field : GetParam().fields) bytes += field.width * (field.grows ? 800 : 24);
  RandomOperations operations(GetParam(), bytes, 0, 2);
  operations.Go(4000, 1);
  operations.End();
  EXPECT_EQ(operations.refusals() > 100, !GetParam().fields.empty());
  EXPECT_GT(operations.commits(), 100);
}

TEST_P(StateArenaRandomTest, FailuresOfMemoryChangeNothing) {
  RandomOperations operations(GetParam(), size_t{1} << 30, 500, 3);
  operations.Go(4000, 1);
  operations.End();
  EXPECT_EQ(operations.failures() > 20, !GetParam().fields.empty());
  EXPECT_GT(operations.commits(), 100);
}

INSTANTIATE_TEST_SUITE_P(Layouts, StateArenaRandomTest, ::testing::ValuesIn(Layouts()),
                         [](const auto& layout) { return layout.param.name; });

TEST(StateArenaTest, AMillionOperationsLeakNothing) {
  RandomOperations operations({"", {{"c", 1, false}, {"k", 1, true}}, {0, 0}}, 4000, 5, 4);
  operations.Go(kSanitized ? 30000 : 1000000, 1000);  // instrumented, a million take a minute
  operations.End();
  EXPECT_GT(operations.refusals(), 100);
  EXPECT_GT(operations.failures(), 5);
}

TEST(StateArenaTest, ThreadsUseDifferentSlotsAtOnce) {
  const TestArena arena(kRowAndCache, 64 << 10);
  // Every thread has copies of this one, so that threads share pages.
  const Slot shared = arena.New();
  arena.Step(shared, 1000, 3, 1000);
  const State original = arena.Held(shared);
  constexpr int kThreads = 4;
  std::vector<Slot> copies;
  for (int t = 0; t < kThreads; ++t) copies.push_back(arena.CopyOf(shared));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto value = static_cast<float>(t + 1);
      for (int i = 0; i < 300; ++i) {
        const Slot slot = arena.CopyOf(copies[t]);
        const Slot other = arena.New();
        EXPECT_THAT(arena.TryStep(slot, value, 20, value, /*commit=*/i % 3 != 0), IsOk());
        const State state = arena.Held(slot);
        std::vector<float> expected = original.values;
        if (i % 3 != 0) {
          std::fill_n(expected.begin(), 3, value);
          expected.resize(expected.size() + 20 * 2, value);
        }
        EXPECT_EQ(state.values, expected);
        ASSERT_TRUE(arena->Put(other, state).ok());
        const Slot both[] = {slot, other};
        const int parents[] = {1, 1};
        ASSERT_TRUE(arena->Reorder(both, parents, 2).ok());
        EXPECT_EQ(arena.Held(slot).values, expected);
        EXPECT_GE(arena->stats().slots, kThreads + 3);
        arena->Free(slot);
        arena->Free(other);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.Held(shared).values, original.values);
  EXPECT_EQ(arena->stats().slots, kThreads + 1);
}

// That all of it is freed is what ~Memory() checks.
TEST(StateArenaTest, MemoryIsGivenBackWithTheArena) {
  ArenaOptions options;
  options.budget = std::make_shared<ArenaBudget>(1 << 20);
  {
    const TestArena arena(kRowAndCache, options);
    const Slot slot = arena.New();
    arena.Step(slot, 1, 1000, 1);
    arena.CopyOf(slot);
    EXPECT_GT(options.budget->taken(), 8000u);
    EXPECT_GT(arena.memory->allocations(), 1);
  }
  EXPECT_EQ(options.budget->taken(), 0u);
}

}  // namespace
}  // namespace sru::kernels
