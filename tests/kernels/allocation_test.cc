// A worker that is warm allocates no memory per batch. The test counts everything that goes through
// operator new in the whole process. oneDNN copies the argument list at each call, which we cannot
// change: a bare product is counted first, and a batch must allocate exactly as much as its
// products. Each allocation can also be made to fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/state_arena.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_stack.h"
#include "tests/kernels/cuda_host/host_device.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_count{0};
// After this many further allocations of the thread one fails; it is kFailed then.
constexpr int64_t kNever = -1;
constexpr int64_t kFailed = -2;
thread_local int64_t until_failure = kNever;

void* Count(void* p) {
  if (p == nullptr) std::abort();
  if (until_failure >= 0 && --until_failure < 0) {
    until_failure = kFailed;
    std::free(p);
    throw std::bad_alloc();
  }
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
  const AlignedBuffer weights(16 * 16);
  const Product product(ProductType::kFloat32, weights.data(), 16, 16, {64});
  ProductRunner runner(product);
  const AlignedBuffer x(64 * 16);
  AlignedBuffer y(64 * 16);
  runner.Run(product, x.data(), 64, y.data());
  return CountAllocations([&] { runner.Run(product, x.data(), 64, y.data()); });
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

// A program with most operations, and a batch of it of three sequences with at most 50 tokens
// together.
struct ProgramCall {
  explicit ProgramCall(const std::vector<int>& lengths) {
    limits.axes = {{100, 8}, {}, {20, 8}};
    const AxisId tokens = random.program.AddAxis("tokens");
    const AxisId texts = random.program.AddSequenceAxis("texts", tokens);
    const ValueId x = random.Features("features", tokens, 24);
    testing::StackOptions options;
    options.directions = 1;
    options.num_layers = 1;
    const ValueId unshifted = random.Stack(x, options, "c");
    const ValueId h = random.Shift(unshifted, "h");
    const ValueId q = random.Linear(random.Normalize(h), 16);
    const ValueId attended = random.Attend(q, q, q);
    random.Output(random.Pool(random.Add(attended, q), texts, Pooling::kMax), "pooled");
    random.Predict("next", attended, tokens, 700, 5);  // two blocks of columns
    random.Pick("picked", random.Last(unshifted, texts, random.LastOf(h)), texts, 700, 5);

    const Program& program = random.program;
    data = testing::RandomData(program, {lengths, {}, {4, 0, 16}}, 2);
    views = std::make_unique<testing::BatchViews>(program, data);
    views_with_slots = std::make_unique<testing::BatchViews>(program, data, slots);
    outputs.resize(program.outputs.size());
    outputs.back().candidates = picked.data();
    outputs[0].values = pooled.data();
    outputs[1].values = log_prob.data();
    outputs[2].candidates = candidates.data();
  }

  void Prepare(Backend& backend, DataType dtype) {
    CompileOptions compile;
    compile.dtype = dtype;
    ASSERT_TRUE(backend.Compile(random.program, compile, &executable).ok());
    PrepareRuns();
  }
  // New states.
  void PrepareRuns() {
    ASSERT_TRUE(executable->CreateWorkspace(limits, &workspace).ok());
    ASSERT_TRUE(MakeArena().ok());
    ASSERT_TRUE(AllocateSlots().ok());
  }
  Status MakeArena() {
    ArenaOptions options;
    options.budget_bytes = size_t{1} << 24;
    return executable->CreateArena(options, &arena);
  }
  Status AllocateSlots() {
    for (StateArena::Slot& slot : slots[0]) SRU_RETURN_IF_ERROR(arena->Allocate(&slot));
    return OkStatus();
  }
  Status Run(bool with_slots) {
    const testing::BatchViews& given = with_slots ? *views_with_slots : *views;
    return executable->Run(given.batch(arena.get()), outputs.data(), *workspace);
  }

  std::vector<float> Results() const {
    std::vector<float> results = pooled;
    results.insert(results.end(), log_prob.begin(), log_prob.end());
    for (const std::vector<Candidate>* list : {&candidates, &picked}) {
      for (const Candidate& one : *list) {
        results.push_back(static_cast<float>(one.id));
        results.push_back(one.log_prob);
      }
    }
    return results;
  }

  testing::RandomProgram random{1};
  ProgramLimits limits;
  testing::ProgramData data;
  testing::Slots slots = {std::vector<StateArena::Slot>(3)};
  std::unique_ptr<testing::BatchViews> views, views_with_slots;
  std::vector<OutputBatch> outputs;
  std::vector<float> pooled = std::vector<float>(size_t{3} * 16);
  std::vector<float> log_prob = std::vector<float>(50);
  std::vector<Candidate> candidates = std::vector<Candidate>(size_t{50} * 5);
  std::vector<Candidate> picked = std::vector<Candidate>(3);
  std::unique_ptr<ProgramExecutable> executable;
  std::unique_ptr<StateArena> arena;
  std::unique_ptr<ProgramWorkspace> workspace;
};

TEST_P(AllocationTest, AWarmBatchOfAProgramAllocatesNothing) {
  ProgramCall call({40, 1, 9});
  std::unique_ptr<Backend> backend;
  ASSERT_TRUE(CreateBackend("cpu", &backend).ok());
  const bool tiles = GetParam() == DataType::kBFloat16 &&
                     backend->description().find("tiles") != std::string::npos;
  ASSERT_NO_FATAL_FAILURE(call.Prepare(*backend, GetParam()));
  bool with_slots = false;
  const auto run = [&] { EXPECT_TRUE(call.Run(with_slots).ok()); };
  const int64_t products = AllocationsOfOneProduct() * (tiles ? 5 : 6);
  run();
  EXPECT_EQ(CountAllocations(run), products);

  // The check that every slot is there once sorts them.
  constexpr int64_t kOfTheCheck = 3;
  with_slots = true;
  for (int i = 0; i < 3; ++i) run();
  EXPECT_LE(CountAllocations(run), products + kOfTheCheck);
}

// Without the cpu backend: oneDNN's cache of primitives keeps a promise that its own failed
// allocation breaks.
class FailingAllocationTest : public ::testing::TestWithParam<const char*> {
 protected:
  FailingAllocationTest() {
    // The emulated GPU computes, and allocates, when it is waited for.
    control_.on_wait = [this] { before_the_work_ = std::exchange(until_failure, kNever); };
    control_.on_waited = [this] { until_failure = before_the_work_; };
    if (std::string(GetParam()) == "cuda") {
      std::vector<std::unique_ptr<cuda::Device>> devices;
      devices.push_back(sru::testing::MakeHostDevice({}, &control_));
      backend_ = MakeCudaBackend({}, std::move(devices));
    } else {
      EXPECT_TRUE(CreateBackend(GetParam(), &backend_).ok());
    }
  }

  // Says if the action was over before this allocation. One that fails may also change nothing:
  // std::stable_sort does without.
  template <typename Action>
  static bool IsOver(int64_t allocation, Action action, Status* status) {
    until_failure = allocation;
    *status = action();
    const bool failed = until_failure == kFailed;
    until_failure = kNever;
    EXPECT_TRUE(status->ok() || (failed && status->code() == StatusCode::kResourceExhausted))
        << status->message();
    return !failed;
  }
  // Has each allocation in turn fail. The action sets `made`, or does not.
  template <typename Action, typename Made>
  static void ExpectWholeOrNotAtAll(Action action, Made* made) {
    int64_t allocation = 0;
    Status status;
    for (bool over = false; !over; ++allocation) {
      SCOPED_TRACE(allocation);
      made->reset();
      over = IsOver(allocation, action, &status);
      ASSERT_EQ(*made != nullptr, status.ok());
    }
    EXPECT_GT(allocation, 1);
  }

  int64_t before_the_work_ = kNever;
  sru::testing::HostDeviceControl control_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(FailingAllocationTest, WhatIsMadeIsMadeWholeOrNotAtAll) {
  ProgramCall call({3, 1, 2});
  const auto compile = [&] {
    return backend_->Compile(call.random.program, CompileOptions(), &call.executable);
  };
  const auto workspace = [&] {
    return call.executable->CreateWorkspace(call.limits, &call.workspace);
  };
  ASSERT_NO_FATAL_FAILURE(ExpectWholeOrNotAtAll(compile, &call.executable));
  ASSERT_NO_FATAL_FAILURE(ExpectWholeOrNotAtAll(workspace, &call.workspace));
  ASSERT_NO_FATAL_FAILURE(ExpectWholeOrNotAtAll([&] { return call.MakeArena(); }, &call.arena));
  EXPECT_EQ(call.AllocateSlots().code(), StatusCode::kOk);
  EXPECT_TRUE(call.Run(true).ok());
}

TEST_P(FailingAllocationTest, AfterABatchThatFailsTheSameIsRight) {
  constexpr int kRuns = 3;  // the first is not recorded, the second is, the third replays
  ProgramCall expected({3, 1, 2});
  ASSERT_NO_FATAL_FAILURE(expected.Prepare(*backend_, DataType::kFloat32));
  std::vector<std::vector<float>> results;
  for (int run = 0; run < kRuns; ++run) {
    ASSERT_TRUE(expected.Run(true).ok());
    results.push_back(expected.Results());
  }
  ProgramCall call({3, 1, 2});
  ASSERT_NO_FATAL_FAILURE(call.Prepare(*backend_, DataType::kFloat32));
  for (int earlier = 0; earlier < kRuns; ++earlier) {
    bool over = false;
    for (int64_t allocation = 0; !over; ++allocation) {
      SCOPED_TRACE(::testing::Message() << earlier << " runs, allocation " << allocation);
      ASSERT_NO_FATAL_FAILURE(call.PrepareRuns());
      for (int run = 0; run < earlier; ++run) ASSERT_TRUE(call.Run(true).ok());
      Status status;
      over = IsOver(
          allocation, [&] { return call.Run(true); }, &status);
      if (!status.ok()) {
        ASSERT_TRUE(call.Run(true).ok());
      }
      ASSERT_EQ(call.Results(), results[earlier]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FailingAllocationTest, ::testing::Values("cuda", "reference"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ArenaAllocationTest, AStepOfAWarmArenaAllocatesNothing) {
  ArenaOptions options;
  options.budget_bytes = size_t{1} << 30;
  StateArena arena({{"state", 64, false}, {"cache", 16, true}}, {0, 0}, options, HostArenaMemory());
  constexpr int kSequences = 64;
  std::vector<StateArena::Slot> slots(kSequences);
  std::vector<int> parents(kSequences);
  for (int i = 0; i < kSequences; ++i) {
    ASSERT_TRUE(arena.Allocate(&slots[i]).ok());
    parents[i] = i / 2;
  }
  const auto steps = [&](int count, int rows) {
    const std::vector<int> added(kSequences, rows);
    return CountAllocations([&] {
      for (int i = 0; i < count; ++i) {
        StateArena::Run run;
        if (arena.BeginRun(slots.data(), added.data(), kSequences, 0, &run).ok()) {
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
