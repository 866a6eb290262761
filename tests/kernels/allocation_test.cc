// A worker that is warm allocates no memory per batch. The test counts everything that goes through
// operator new in the whole process. oneDNN copies the argument list at each call, which we cannot
// change: a bare product is counted first, and a batch must allocate exactly as much as its
// products.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/state_arena.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_stack.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_count{0};

void* Count(void* p) {
  if (p == nullptr) std::abort();
  if (g_counting.load(std::memory_order_relaxed)) ++g_count;
  return p;
}

}  // namespace

void* operator new(size_t size) { return Count(std::malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const size_t a = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(a, (size + a - 1) / a * a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace sru::kernels::cpu {
namespace {

template <typename Body>
int64_t CountAllocations(Body body) {
  g_count = 0;
  g_counting = true;
  body();
  g_counting = false;
  return g_count.load();
}

int64_t AllocationsOfOneProduct() {
  ProductShapes shapes;
  const AlignedBuffer weights(16 * 16);
  const Product product(shapes, weights.data(), 16, 16, {64});
  ProductRunner runner(product);
  const AlignedBuffer x(64 * 16);
  AlignedBuffer y(64 * 16);
  runner.Run(x.data(), 64, y.data());
  return CountAllocations([&] { runner.Run(x.data(), 64, y.data()); });
}

class AllocationTest : public ::testing::TestWithParam<DataType> {};

TEST_P(AllocationTest, AWarmBatchAllocatesNothing) {
  testing::StackOptions options;
  options.input_size = 24;
  options.vocabulary_size = 0;  // features: every product is computed
  options.layer_norm = LayerNorm::kBefore;
  const testing::RandomStack stack(options, 1);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
  CompileOptions compile;
  compile.dtype = GetParam();
  ASSERT_TRUE(CreateBackend("cpu", &backend).ok());
  // Tiles need no product of oneDNN except for the classifier.
  const bool tiles = GetParam() == DataType::kBFloat16 &&
                     backend->description().find("tiles") != std::string::npos;
  ASSERT_TRUE(backend->Compile(stack.spec(), compile, &executable).ok());
  ASSERT_TRUE(executable->CreateWorkspace({2048, 64}, &workspace).ok());

  const int64_t per_product = AllocationsOfOneProduct();
  struct Case {
    std::vector<int> lengths;
    int products;  // two layers in two directions, per chunk of 256 tokens, and the classifier
  };
  for (const Case& test : {Case{{1}, 5}, Case{{1, 40, 7, 100}, 5}, Case{{500, 500, 500, 1}, 25}}) {
    const testing::RandomBatch batch(stack.spec(), test.lengths, false, 2);
    const testing::OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
    const RaggedBatch view = batch.view();
    const auto run = [&] {
      EXPECT_TRUE(executable->Run(view, outputs.outputs.data(), *workspace).ok());
    };
    run();
    EXPECT_EQ(CountAllocations(run), per_product * (tiles ? 1 : test.products));
  }
}

TEST_P(AllocationTest, AWarmBatchOfAProgramAllocatesNothing) {
  testing::RandomProgram random(1);
  const AxisId tokens = random.program.AddAxis("tokens");
  const AxisId texts = random.program.AddSequenceAxis("texts", tokens);
  const ValueId x = random.Features("features", tokens, 24);
  testing::StackOptions options;
  options.input_size = random.width(x);
  options.directions = 1;
  options.num_layers = 1;
  options.vocabulary_size = 0;
  const ValueId unshifted = random.Stack(x, options, "c");
  const ValueId h = random.Shift(unshifted, "h");
  ops::Attend attend;
  attend.q = attend.keys = attend.values = random.Linear(random.Normalize(h), 16);
  const ValueId attended = random.Attend(attend, 16);
  random.Output(random.Pool(random.Add(attended, attend.q), texts, Pooling::kMax), "pooled");
  random.Predict("next", attended, tokens, 700, 5);  // two blocks of columns
  const ValueId last =
      random.Last(unshifted, texts, std::get<ops::Shift>(random.program.operations[h]).last);
  random.Pick("picked", last, texts, 700, 5);
  const Program& program = random.program;

  std::unique_ptr<Backend> backend;
  std::unique_ptr<ProgramExecutable> executable;
  std::unique_ptr<ProgramWorkspace> workspace;
  CompileOptions compile;
  compile.dtype = GetParam();
  ASSERT_TRUE(CreateBackend("cpu", &backend).ok());
  const bool tiles = GetParam() == DataType::kBFloat16 &&
                     backend->description().find("tiles") != std::string::npos;
  ASSERT_TRUE(backend->Compile(program, compile, &executable).ok());
  ProgramLimits limits;
  limits.axes = {{100, 8}, {}, {20, 8}};
  ASSERT_TRUE(executable->CreateWorkspace(limits, &workspace).ok());
  ArenaOptions arena_options;
  arena_options.budget_bytes = size_t{1} << 24;
  std::unique_ptr<StateArena> arena;
  ASSERT_TRUE(executable->CreateArena(arena_options, &arena).ok());

  const testing::ProgramData data = testing::RandomData(program, {{40, 1, 9}, {}, {4, 0, 16}}, 2);
  const std::vector<int32_t> offsets = data.Offsets(program, tokens);
  const std::vector<int32_t> adjusted_offsets = data.Offsets(program, 2);
  std::vector<StateArena::Slot> slots(3);
  for (StateArena::Slot& slot : slots) ASSERT_TRUE(arena->Allocate(&slot).ok());
  AxisBatch axes[3];
  axes[0].num_sequences = axes[2].num_sequences = 3;
  axes[0].offsets = offsets.data();
  axes[2].offsets = adjusted_offsets.data();
  std::vector<InputBatch> inputs(program.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].ids = data.ids[i].data();
    inputs[i].values = data.features[i].data();
    inputs[i].sampling = data.sampling[i].data();
    inputs[i].adjustments = data.adjustments[i].data();
  }
  ProgramBatch batch;
  batch.axes = axes;
  batch.inputs = inputs.data();
  batch.arena = arena.get();
  std::vector<float> pooled(3 * 16);
  std::vector<float> log_prob(50);
  std::vector<Candidate> candidates(50 * 5);
  std::vector<Candidate> picked(3);
  std::vector<OutputBatch> outputs(program.outputs.size());
  outputs.back().candidates = picked.data();
  outputs[0].values = pooled.data();
  outputs[1].values = log_prob.data();
  outputs[2].candidates = candidates.data();
  const auto run = [&] { EXPECT_TRUE(executable->Run(batch, outputs.data(), *workspace).ok()); };
  const int64_t products = AllocationsOfOneProduct() * (tiles ? 5 : 6);
  run();
  EXPECT_EQ(CountAllocations(run), products);

  // The check that every slot is there once sorts them.
  constexpr int64_t kOfTheCheck = 3;
  axes[0].slots = slots.data();
  for (int i = 0; i < 3; ++i) run();
  EXPECT_LE(CountAllocations(run), products + kOfTheCheck);
}

TEST(ArenaAllocationTest, AStepOfAWarmArenaAllocatesNothing) {
  ArenaOptions options;
  options.budget_bytes = size_t{1} << 30;
  StateArena arena({{"state", 64, false}, {"cache", 16, true}}, options, HostArenaMemory());
  constexpr int kSequences = 64;
  std::vector<StateArena::Slot> slots(kSequences);
  std::vector<int> parents(kSequences);
  for (int i = 0; i < kSequences; ++i) {
    ASSERT_TRUE(arena.Allocate(&slots[i]).ok());
    parents[i] = i / 2;
  }
  const std::vector<FieldId> written = {0, 1};
  const auto steps = [&](int count, int rows) {
    const std::vector<int> added(kSequences, rows);
    return CountAllocations([&] {
      for (int i = 0; i < count; ++i) {
        StateArena::Run run;
        if (arena.BeginRun(slots.data(), added.data(), kSequences, written, &run).ok()) {
          run.Commit();
        }
        if (!arena.Reorder(slots.data(), parents.data(), kSequences).ok()) std::abort();
      }
    });
  };
  EXPECT_GT(steps(4, 1), 0);
  steps(4, 0);
  EXPECT_EQ(steps(100, 0), 0);
}

INSTANTIATE_TEST_SUITE_P(DataTypes, AllocationTest,
                         ::testing::Values(DataType::kFloat32, DataType::kBFloat16),
                         [](const auto& info) { return DataTypeName(info.param); });

}  // namespace
}  // namespace sru::kernels::cpu
