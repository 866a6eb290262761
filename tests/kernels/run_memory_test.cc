// The memory that the batches of all models share: how many blocks there are and how large, when
// they grow and shrink, and that nothing of what a batch finds there reaches its results.
#include "kernels/cpu/base/run_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/token_table_room.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels::cpu {
namespace {

// What a workspace has: one array, and the plan of it.
struct Need {
  Need(const std::shared_ptr<RunMemory>& memory, size_t bytes) : plan(memory) {
    array.AtLeast(bytes);
    plan.Add(&array);
    plan.Close();
  }
  RunArray<char> array;
  RunPlan plan;
};

TEST(RunMemoryTest, ABatchAfterTheOtherTakesTheSameBlock) {
  const auto memory = std::make_shared<RunMemory>(2);
  Need small(memory, 2000);
  Need large(memory, 5000);
  EXPECT_EQ(memory->bytes(), 0u);  // no batch has run
  EXPECT_EQ(memory->block_bytes(), 5056u);
  const char* first = nullptr;
  {
    const RunPlan::Scope scope(&small.plan);
    first = small.array.data();
    EXPECT_EQ(memory->bytes(), 5056u);  // as large as the largest needs
  }
  const RunPlan::Scope scope(&large.plan);
  EXPECT_EQ(large.array.data(), first);
  EXPECT_EQ(memory->bytes(), 5056u);
}

TEST(RunMemoryTest, BatchesAtOnceHaveBlocksOfTheirOwnAndThoseOfTheCoresStay) {
  const auto memory = std::make_shared<RunMemory>(2);
  Need a(memory, 640), b(memory, 640), c(memory, 640);
  {
    const RunPlan::Scope in_a(&a.plan);
    const RunPlan::Scope in_b(&b.plan);
    const RunPlan::Scope in_c(&c.plan);
    EXPECT_NE(a.array.data(), b.array.data());
    EXPECT_NE(b.array.data(), c.array.data());
    EXPECT_NE(a.array.data(), c.array.data());
    EXPECT_EQ(memory->bytes(), 3 * 640u);
  }
  EXPECT_EQ(memory->bytes(), 2 * 640u);
}

TEST(RunMemoryTest, ALargerModelIsLoadedAndUnloadedWhileABatchRuns) {
  const auto memory = std::make_shared<RunMemory>(1);
  Need small(memory, 640);
  {
    std::optional<RunPlan::Scope> running(std::in_place, &small.plan);
    const char* const block = small.array.data();
    std::optional<Need> large(std::in_place, memory, 2432);
    EXPECT_EQ(small.array.data(), block);  // as it was
    EXPECT_EQ(memory->bytes(), 640u);
    running.reset();
    running.emplace(&large->plan);
    large->array[2431] = 1;
    EXPECT_EQ(memory->bytes(), 2432u);  // that block has grown
    running.reset();
    running.emplace(&small.plan);
    large.reset();
    EXPECT_EQ(memory->bytes(), 2432u);  // not while the batch runs
    small.array[639] = 1;
  }
  EXPECT_EQ(memory->bytes(), 0u);
  const RunPlan::Scope again(&small.plan);
  EXPECT_EQ(memory->bytes(), 640u);
}

TEST(RunMemoryTest, WhatNeedsLittleHasSmallBlocksOfItsOwn) {
  const auto memory = std::make_shared<RunMemory>(1);
  Need large(memory, 6400);
  Need small(memory, 640);
  for (int i = 0; i < 2; ++i) {
    const RunPlan::Scope interrupted(&large.plan);
    EXPECT_EQ(memory->bytes(), i == 0 ? 6400u : 6400u + 1600u);
    const RunPlan::Scope nested(&small.plan);
    EXPECT_EQ(memory->bytes(), 6400u + 1600u);
    Need same(memory, 640);
    const RunPlan::Scope another(&same.plan);
    EXPECT_EQ(memory->bytes(), 6400u + 2 * 1600u);
  }
  EXPECT_EQ(memory->bytes(), 6400u + 1600u) << "one of each is kept";
}

TEST(RunMemoryTest, AFreeBlockThatNothingNeedsGoesWithItsModel) {
  const auto memory = std::make_shared<RunMemory>(1);
  Need small(memory, 640);
  {
    Need large(memory, 6400);
    const RunPlan::Scope scope(&small.plan);
  }
  EXPECT_EQ(memory->bytes(), 0u);
  EXPECT_EQ(memory->block_bytes(), 640u);
}

TEST(RunMemoryTest, APartOfABatchIsInItsMemory) {
  const auto memory = std::make_shared<RunMemory>(1);
  Need part(memory, 640);
  Need whole(memory, 1280);
  const RunPlan::Scope scope(&whole.plan);
  {
    const RunPlan::Scope inner(&part.plan, whole.array.data() + 640);
    const RunPlan::Scope innermost(&part.plan);  // bound already
    EXPECT_EQ(part.array.data(), whole.array.data() + 640);
  }
  EXPECT_EQ(memory->bytes(), 1280u);
}

TEST(RunMemoryTest, ThreadsNeverShareABlock) {
  const auto memory = std::make_shared<RunMemory>(2);
  std::atomic<int> spoilt{0};
  std::vector<std::thread> threads;
  for (char mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([&, mark] {
      for (int round = 0; round < 500; ++round) {
        Need need(memory, 64 * (1 + (round + mark) % 7));
        const RunPlan::Scope scope(&need.plan);
        for (size_t i = 0; i < need.array.size(); ++i) need.array[i] = mark;
        std::this_thread::yield();
        for (size_t i = 0; i < need.array.size(); ++i) spoilt += need.array[i] != mark;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(spoilt, 0);
  EXPECT_EQ(memory->bytes(), 0u);
  EXPECT_EQ(memory->block_bytes(), 0u);
}

std::vector<float> ResultsOf(Backend& backend, DataType dtype, const testing::RandomStack& stack,
                             const RaggedBatch& batch) {
  CompileOptions options;
  options.dtype = dtype;
  std::unique_ptr<Executable> executable;
  Status status = backend.Compile(stack.spec(), options, &executable);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return {};
  std::unique_ptr<Workspace> workspace;
  EXPECT_TRUE(
      executable->CreateWorkspace({batch.num_tokens(), batch.num_sequences}, &workspace).ok());
  testing::OutputArrays found(stack.spec(), batch, Pooling::kMax);
  status = executable->Run(batch, found.outputs.data(), *workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<float> all = found.token_vectors;
  all.insert(all.end(), found.pooled.begin(), found.pooled.end());
  all.insert(all.end(), found.final_state.begin(), found.final_state.end());
  return all;
}

// Another model leaves nothing but NaN in the memory, which no product with a zero hides.
TEST(RunMemoryTest, ResultsDoNotDependOnWhatIsInTheMemory) {
  testing::StackOptions wide;
  wide.vocabulary_size = wide.num_labels = 0;
  wide.input_size = wide.hidden_size = 128;
  wide.num_layers = 3;
  const testing::RandomStack other(wide, 1);
  const std::vector<float> features(size_t{512} * wide.input_size,
                                    std::numeric_limits<float>::quiet_NaN());
  const int32_t offsets[] = {0, 512};
  RaggedBatch nothing;
  nothing.num_sequences = 1;
  nothing.offsets = offsets;
  nothing.features = features.data();
  for (const DataType dtype : kAllDataTypes) {
    std::unique_ptr<Backend> clean;
    std::unique_ptr<Backend> used;
    ASSERT_TRUE(CreateBackend("cpu", &clean).ok());
    ASSERT_TRUE(CreateBackend("cpu", &used).ok());
    CompileOptions options;
    options.dtype = dtype;
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Workspace> workspace;  // keeps the block as large as it is
    ASSERT_TRUE(used->Compile(other.spec(), options, &executable).ok());
    ASSERT_TRUE(executable->CreateWorkspace({512, 1}, &workspace).ok());
    testing::OutputArrays unread(other.spec(), nothing, Pooling::kMax);
    for (const auto& [name, variant] : testing::StackVariants()) {
      SCOPED_TRACE(name + ", " + DataTypeName(dtype));
      const testing::RandomStack stack(variant, 3);
      const testing::RandomBatch random(stack.spec(), {7, 1, 20, 3}, /*initial_state=*/true, 4);
      const std::vector<float> expected = ResultsOf(*clean, dtype, stack, random.view());
      ASSERT_TRUE(executable->Run(nothing, unread.outputs.data(), *workspace).ok());
      EXPECT_EQ(ResultsOf(*used, dtype, stack, random.view()), expected);
    }
  }
}

// Of 32 MiB.
struct Table {
  explicit Table(int megabytes) {
    StackSpec spec;
    spec.vocabulary_size = megabytes << 15;
    taken = room.Take(spec, 8);
  }
  TokenTableRoom room;
  bool taken = false;
};

TEST(TokenTableRoomTest, AllModelsShareItAndOneMayBeReplaced) {
  {
    EXPECT_FALSE(Table(65).taken);
    const Table old(64);
    EXPECT_TRUE(old.taken);
    EXPECT_TRUE(Table(64).taken) << "as if it came in its place";
    const Table now(32);
    EXPECT_TRUE(now.taken);
    EXPECT_FALSE(Table(1).taken);
  }
  std::deque<Table> several;
  while (several.emplace_back(8).taken) continue;
  EXPECT_EQ(several.size(), 6u) << "the largest does not count";
  several.pop_front();
  EXPECT_TRUE(TokenTableRoom::Fits(size_t{8} << 20));
  EXPECT_FALSE(TokenTableRoom::Fits(size_t{9} << 20));
  StackSpec mapped;
  mapped.vocabulary_size = 1;
  const std::vector<float> map = {1};
  mapped.input_to_hidden = {map.data(), map.size()};
  EXPECT_FALSE(TokenTableRoom().Take(mapped, 8));
  EXPECT_FALSE(TokenTableRoom().Take(StackSpec(), 8));  // has no words
}

TEST(TokenTableRoomTest, AModelWithoutRoomHasTheSameBits) {
  for (const DataType dtype : kAllDataTypes) {
    std::unique_ptr<Backend> backend;
    ASSERT_TRUE(CreateBackend("cpu", &backend).ok());
    for (const auto& [name, variant] : testing::StackVariants()) {
      SCOPED_TRACE(name + ", " + DataTypeName(dtype));
      const testing::RandomStack stack(variant, 3);
      const testing::RandomBatch random(stack.spec(), {7, 1, 20, 3}, /*initial_state=*/true, 4);
      const std::vector<float> expected = ResultsOf(*backend, dtype, stack, random.view());
      const Table a(64), b(32);
      EXPECT_EQ(ResultsOf(*backend, dtype, stack, random.view()), expected);
    }
  }
}

}  // namespace
}  // namespace sru::kernels::cpu
