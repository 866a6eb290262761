// Programs on the host side of the CUDA backend, on a device that is the host (cuda_host/): graphs
// per bucket, memory and its budget, failing devices, and what the kernels do at sizes that
// program_test does not reach. program_cuda_host checks what the operations compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/cuda/program/program_workspace.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_stack.h"
#include "kernels/testing/random_systems.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/kernels/cuda_host/shim_mode.h"
#include "tests/kernels/status_matchers.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::BatchViews;
using ::sru::testing::GetShimMode;
using ::sru::testing::HasCandidates;
using ::sru::testing::HostDeviceControl;
using ::sru::testing::HostDeviceOptions;
using ::sru::testing::kShimModes;
using ::sru::testing::MakeHostDevice;
using ::sru::testing::ProgramData;
using ::sru::testing::RandomData;
using ::sru::testing::RandomLanguageModel;
using ::sru::testing::RandomProgram;
using ::sru::testing::RandomReader;
using ::sru::testing::RandomTranslator;
using ::sru::testing::RandomValues;
using ::sru::testing::ReaderSizes;
using ::sru::testing::SetShimMode;
using ::sru::testing::ShimMode;
using ::sru::testing::Slots;
using ::sru::testing::StackOptions;
using ::testing::HasSubstr;

constexpr int kVocabulary = 20;
constexpr int kCandidates = 3;

// A language model whose words also remember all words before: a stack with a state, a growing
// field, the row before, log-probabilities, candidates and picks.
class Model : public RandomProgram {
 public:
  explicit Model(bool picks = true) : RandomProgram(1) {
    tokens = program.AddAxis("tokens");
    const InputId ids = program.AddIds("ids", tokens, 0, kVocabulary);
    StackOptions options;
    options.input_size = 8;
    options.hidden_size = 8;
    options.directions = 1;
    const ValueId h = StackOfIds(ids, options, "state");
    // A growing field wants a slot for every sequence, so it is on an axis of its own.
    cached = program.AddAxis("cached");
    const ValueId x = Features("x", cached, 8);
    cache = program.AddField("cache", 8, /*grows=*/true);
    Append(x, cache);
    Output(AttendFields(x, cache, cache, 1, /*causal=*/true), "attended");
    Output(h, "h");
    const ValueId last = Shift(h, "last");
    if (picks) {
      Pick("next", last, tokens, kVocabulary, kCandidates);
    } else {
      Predict("next", last, tokens, kVocabulary, kCandidates);
    }
  }

  AxisId tokens, cached;
  FieldId cache;
};

enum Output { kAttended, kH, kLogProb, kCandidateLists, kPicks };

std::pair<int32_t, float> Pair(const Candidate& candidate) {
  return {candidate.id, candidate.log_prob};
}

// A batch of a program and where its results go.
struct Call {
  Call(const Program& of, std::vector<std::vector<int>> lengths, unsigned seed)
      : program(of), data(RandomData(of, std::move(lengths), seed)) {
    slots.resize(program.axes.size());
    for (const OutputSpec& output : program.outputs) {
      // Wider than any output.
      const size_t rows = 100000;
      const bool symbols = HasCandidates(output);
      values.emplace_back(symbols ? 0 : rows);
      candidates.emplace_back(symbols ? rows : 0);
    }
    wanted.assign(program.outputs.size(), true);
  }

  Status Run(const ProgramExecutable& executable, ProgramWorkspace& workspace,
             StateArena* arena = nullptr) {
    std::vector<OutputBatch> outputs(program.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!wanted[i]) continue;
      if (!values[i].empty()) outputs[i].values = values[i].data();
      if (!candidates[i].empty()) outputs[i].candidates = candidates[i].data();
    }
    const BatchViews views(program, data, slots);
    return executable.Run(views.batch(arena), outputs.data(), workspace);
  }

  const Program& program;
  ProgramData data;
  Slots slots;  // of an axis that is empty there are none
  std::vector<std::vector<float>> values;
  std::vector<std::vector<Candidate>> candidates;
  std::vector<bool> wanted;
};

// A backend on host devices, and a program on it. The devices outlive workspaces and arenas.
struct ProgramRig {
  // `own_microseconds` as HostDeviceOptions::own_product_microseconds.
  explicit ProgramRig(int num_devices = 1, BackendOptions options = {}, int own_microseconds = -1) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < num_devices; ++i) {
      controls.push_back(std::make_unique<HostDeviceControl>());
      HostDeviceOptions device;
      device.ordinal = i;
      device.own_product_microseconds = own_microseconds;
      devices.push_back(MakeHostDevice(device, controls.back().get()));
    }
    backend = MakeCudaBackend(options, std::move(devices));
  }

  // With a program that is ready to run.
  explicit ProgramRig(const Program& program, AxisLimits of_axes = {64, 8}, int num_devices = 1,
                      BackendOptions options = {})
      : ProgramRig(num_devices, options) {
    Prepare(program, of_axes);
  }
  ProgramRig(const Program& program, std::vector<AxisLimits> axes) : ProgramRig() {
    Prepare(program, std::move(axes));
  }

  // Compiles and makes one workspace per device.
  void Prepare(const Program& program, AxisLimits of_axes = {64, 8}) {
    Prepare(program, std::vector<AxisLimits>(program.axes.size(), of_axes));
  }
  void Prepare(const Program& program, std::vector<AxisLimits> axes) {
    Require(backend->Compile(program, compile, &executable));
    limits.axes = std::move(axes);
    for (int i = 0; i < executable->num_devices(); ++i) {
      limits.device = i;
      Require(executable->CreateWorkspace(limits, &workspaces.emplace_back()));
    }
  }
  void MakeArena(size_t budget_bytes = size_t{1} << 24) {
    ArenaOptions options;
    options.budget_bytes = budget_bytes;
    Require(executable->CreateArena(options, &arena));
  }
  StateArena::Slot Slot() {
    StateArena::Slot slot = StateArena::kNoSlot;
    Require(arena->Allocate(&slot));
    return slot;
  }
  // New ones for the sequences of these axes.
  void GiveSlots(Call& call, const std::vector<AxisId>& axes) {
    for (const AxisId axis : axes) {
      call.slots[axis].clear();
      for (size_t b = 0; b < call.data.lengths[axis].size(); ++b)
        call.slots[axis].push_back(Slot());
    }
  }
  StateArena::State Take(StateArena::Slot slot) const {
    StateArena::State state;
    Require(arena->Take(slot, &state));
    return state;
  }
  Status Run(Call& call, size_t workspace = 0) {
    return call.Run(*executable, *workspaces[workspace], arena.get());
  }

  std::vector<std::unique_ptr<HostDeviceControl>> controls;
  std::unique_ptr<Backend> backend;
  CompileOptions compile;  // of Prepare()
  std::unique_ptr<ProgramExecutable> executable;
  ProgramLimits limits;
  std::vector<std::unique_ptr<ProgramWorkspace>> workspaces;
  std::unique_ptr<StateArena> arena;
};

// A model that is ready to run.
class CudaModelTest : public ::testing::Test {
 protected:
  const Model model_;
  ProgramRig rig_{model_.program};
};

TEST(CudaProgramTest, RefusesRoundedWeightsByName) {
  RandomProgram p(1);
  const AxisId tokens = p.program.AddAxis("tokens");
  p.Output(p.Int8Linear(p.Linear(p.Features("x", tokens, 8), 8), 8), "y");
  ProgramRig rig;
  EXPECT_THAT(
      rig.backend->Compile(p.program, CompileOptions(), &rig.executable),
      IsError(StatusCode::kUnsupported,
              "operations[2] (linear): int8_weight: rounded weights run on the cpu backend alone"));
}

TEST_F(CudaModelTest, RecordsOncePerBucketAndReplaysWithEachBatch) {
  // All are in the bucket of 48 rows and 4 sequences.
  std::vector<std::vector<float>> results;
  const std::vector<std::vector<int>> batches = {{10, 20, 5}, {1, 2, 3, 40}, {30, 9, 1, 1}};
  for (size_t i = 0; i < batches.size(); ++i) {
    Call call(model_.program, {batches[i]}, static_cast<unsigned>(i));
    // Of which something is asked of as many rows in each batch.
    for (std::vector<int32_t>& ids : call.data.ids) {
      if (&ids != &call.data.ids[0]) std::fill(ids.begin(), ids.end(), 1);
    }
    ASSERT_TRUE(rig_.Run(call).ok());
    results.push_back(call.values[kH]);
  }
  // The first batch of a bucket runs without a graph.
  EXPECT_EQ(rig_.controls[0]->graphs_recorded, 1);
  EXPECT_EQ(rig_.controls[0]->graph_launches, 2);
  EXPECT_EQ(rig_.backend->devices()[0].graph_hits, 1);
  EXPECT_EQ(rig_.backend->devices()[0].graph_misses, 2);
  EXPECT_NE(results[0], results[1]);

  Call other(model_.program, {batches[0]}, 0);
  other.wanted[kLogProb] = other.wanted[kCandidateLists] = other.wanted[kPicks] = false;
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(rig_.Run(other).ok());
    EXPECT_EQ(rig_.controls[0]->graphs_recorded, 1 + run) << "other outputs";
    EXPECT_EQ(other.values[kH], results[0]);
  }

  rig_.MakeArena();
  other.slots[model_.tokens] = {rig_.Slot(), StateArena::kNoSlot, rig_.Slot()};
  ASSERT_TRUE(rig_.Run(other).ok());
  EXPECT_EQ(other.values[kH], results[0]);
  ASSERT_TRUE(rig_.Run(other).ok());
  EXPECT_EQ(rig_.controls[0]->graphs_recorded, 3) << "slots";
}

TEST_F(CudaModelTest, NothingIsRunForNothing) {
  Call empty(model_.program, {}, 1);
  EXPECT_TRUE(rig_.Run(empty).ok());
  Call unwanted(model_.program, {{3, 4}}, 1);
  unwanted.wanted.assign(unwanted.wanted.size(), false);
  EXPECT_TRUE(rig_.Run(unwanted).ok());
  EXPECT_EQ(rig_.controls[0]->graph_launches, 0);
}

TEST(CudaProgramTest, GraphsAreBoundedAndServingAllocatesNothing) {
  const Model model;
  ProgramRig rig(model.program, {256, 64});
  const int64_t allocations = rig.controls[0]->allocations;
  for (int sequences = 1; sequences <= 64; sequences *= 4) {
    for (int rows = 64; rows <= 256; rows += 16) {
      std::vector<int> lengths(sequences, 1);
      lengths[0] = rows - sequences + 1;
      Call call(model.program, {lengths}, 1);
      // Predictions are slow here; whether they are wanted makes another bucket all the same.
      for (size_t i = 1; i < call.data.ids.size(); ++i) {
        const InputSpec& input = model.program.inputs[i];
        std::fill(call.data.ids[i].begin(), call.data.ids[i].end(), input.least);
      }
      call.wanted[kPicks] = false;
      for (int wanted = 1; wanted < 16; ++wanted) {
        for (int output : {kAttended, kH, kLogProb, kCandidateLists}) {
          call.wanted[output] = (wanted >> output & 1) != 0;
        }
        for (int run = 0; run < 2; ++run) ASSERT_TRUE(rig.Run(call).ok());
      }
    }
  }
  EXPECT_GT(rig.controls[0]->graphs_recorded, 256);
  EXPECT_EQ(rig.controls[0]->graphs_alive, 256);
  EXPECT_EQ(rig.controls[0]->allocations, allocations);
  rig.workspaces.clear();
  EXPECT_EQ(rig.controls[0]->graphs_alive, 0);
}

// What the rows of x see of a cache that x has been appended to, as keys and values.
std::vector<double> Attended(const std::vector<float>& cache, const std::vector<float>& x, int row,
                             float scale) {
  std::vector<float> keys = cache;
  keys.insert(keys.end(), x.begin(), x.begin() + 8 * (row + 1));
  std::vector<double> sums(8);
  double total = 0;
  for (size_t s = 0; s < keys.size(); s += 8) {
    double dot = 0;
    for (int j = 0; j < 8; ++j) dot += static_cast<double>(x[8 * row + j]) * keys[s + j];
    const double weight = std::exp(scale * dot);
    total += weight;
    for (int j = 0; j < 8; ++j) sums[j] += weight * keys[s + j];
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

TEST(CudaProgramTest, RoomForPagesGrowsAndGraphsAreRecordedAgain) {
  const Model model(/*picks=*/false);
  ProgramRig rig(model.program, {64, 2});
  rig.MakeArena();
  const StateArena::Slot slot = rig.Slot();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  struct Step {
    int rows;  // that the slot has
    int graphs;
  };
  EXPECT_EQ(rig.controls[0]->pinned_alive, 1);
  // There is room for twice as much as was needed, and never less than before.
  for (const Step& step : {Step{0, 1}, {40, 1}, {8000, 2}, {9000, 2}, {100, 2}, {40000, 3}}) {
    SCOPED_TRACE(step.rows);
    const size_t bytes = rig.workspaces[0]->bytes();
    const int64_t graphs = rig.controls[0]->graphs_recorded;
    StateArena::State state;
    state.rows.assign(model.program.fields.size(), 0);
    state.rows[model.cache] = step.rows;
    for (int i = 0; i < 8 * step.rows; ++i) state.values.push_back(normal(random));
    Call call(model.program, {{}, {3}}, 7);
    call.slots[model.cached] = {slot};
    for (int run = 0; run < 2; ++run) {  // the second one records
      ASSERT_TRUE(rig.arena->Put(slot, state).ok());
      ASSERT_TRUE(rig.Run(call).ok());
    }
    EXPECT_EQ(rig.controls[0]->graphs_recorded, step.graphs);
    EXPECT_EQ(rig.controls[0]->graphs_alive, 1);
    const bool grew = graphs > 0 && step.graphs > graphs;
    EXPECT_EQ(rig.workspaces[0]->bytes() > bytes, grew);
    EXPECT_EQ(rig.controls[0]->pinned_alive, step.graphs > 1 ? 2 : 1) << "staging that has grown";
    for (int row = 0; row < 3; ++row) {
      const std::vector<double> expected =
          Attended(state.values, call.data.features[1], row, 1 / std::sqrt(8.0f));
      for (int j = 0; j < 8; ++j) {
        EXPECT_NEAR(call.values[kAttended][8 * row + j], expected[j], 1e-5);
      }
    }
  }
}

TEST_F(CudaModelTest, EveryByteOfAWorkspaceIsWrittenBeforeItIsUsed) {
  const DeviceInfo info = rig_.backend->devices()[0];
  // The products are tried for the first workspace only.
  const int64_t initialized = rig_.controls[0]->bytes_initialized;
  rig_.limits.device = 0;
  std::unique_ptr<ProgramWorkspace> second;
  ASSERT_TRUE(rig_.executable->CreateWorkspace(rig_.limits, &second).ok());
  EXPECT_EQ(static_cast<size_t>(rig_.controls[0]->bytes_initialized - initialized) +
                kProductWorkspaceBytes,
            rig_.backend->devices()[0].memory_in_use - info.memory_in_use);
}

// Freeing may hold up all that runs on the device.
TEST(CudaProgramTest, AWorkspaceTakesFewAllocations) {
  for (const bool picks : {false, true}) {
    const Model model(picks);
    BackendOptions options;
    options.cuda_token_table_bytes = 0;
    ProgramRig rig(1, options);
    HostDeviceControl& control = *rig.controls[0];
    rig.Prepare(model.program);
    // What products use besides is one of its own, since trials need it before.
    constexpr int64_t kPerWorkspace = 2;
    const int64_t weights = control.allocations_alive - kPerWorkspace;
    EXPECT_EQ(control.pinned_alive, 1);
    std::unique_ptr<ProgramWorkspace> second;
    ASSERT_TRUE(rig.executable->CreateWorkspace(rig.limits, &second).ok());
    EXPECT_EQ(control.allocations_alive, weights + 2 * kPerWorkspace);
    EXPECT_EQ(control.pinned_alive, 2);
    second.reset();
    rig.workspaces.clear();
    EXPECT_EQ(control.allocations_alive, weights);
    EXPECT_EQ(control.pinned_alive, 0);
  }
}

TEST(CudaProgramTest, AWorkspaceThatTheBudgetDoesNotHoldIsRefused) {
  const Model model;
  BackendOptions options;
  options.cuda_memory_limit_bytes = size_t{16} << 20;
  ProgramRig rig(model.program, {64, 8}, 1, options);
  const int64_t in_use = rig.controls[0]->bytes_in_use;
  ProgramLimits limits = rig.limits;
  limits.axes[model.tokens] = {100000, 100};
  std::unique_ptr<ProgramWorkspace> workspace;
  EXPECT_THAT(rig.executable->CreateWorkspace(limits, &workspace),
              IsExhausted(HasSubstr("100000 rows and 100 sequences of tokens")));
  EXPECT_EQ(workspace, nullptr);
  EXPECT_LE(rig.controls[0]->bytes_in_use, in_use) << "a table may be given up, and no more taken";
}

TEST_F(CudaModelTest, BadDevicesAreRefused) {
  for (const int device : {-1, 1}) {
    rig_.limits.device = device;
    std::unique_ptr<ProgramWorkspace> workspace;
    EXPECT_THAT(rig_.executable->CreateWorkspace(rig_.limits, &workspace),
                IsInvalid(HasSubstr("workspace.device: expected 0 to 0")));
    ArenaOptions options;
    options.device = device;
    EXPECT_THAT(rig_.executable->CreateArena(options, &rig_.arena),
                IsInvalid(HasSubstr("arena.device: expected 0 to 0")));
  }
}

TEST_F(CudaModelTest, AnArenasMemoryIsTheDevicesAndCounted) {
  const size_t before = rig_.backend->devices()[0].memory_in_use;
  rig_.MakeArena();
  Call call(model_.program, {{3}, {20}}, 1);
  rig_.GiveSlots(call, {model_.tokens, model_.cached});
  ASSERT_TRUE(rig_.Run(call).ok());
  const StateArena::Stats stats = rig_.arena->stats();
  EXPECT_GT(stats.held_bytes, 0u);
  EXPECT_EQ(rig_.backend->devices()[0].memory_in_use, before + stats.held_bytes);
  // It may outlive the executable.
  rig_.workspaces.clear();
  rig_.executable.reset();
  const StateArena::State state = rig_.Take(call.slots[model_.cached][0]);
  ASSERT_EQ(state.rows[model_.cache], 20);
  const std::vector<float>& x = call.data.features[1];
  EXPECT_EQ(state.values, x) << "nothing else is in this slot";
  rig_.arena.reset();
  EXPECT_LT(rig_.backend->devices()[0].memory_in_use, before);
}

TEST_F(CudaModelTest, ARunThatTheArenaHasNoRoomForChangesNoSlot) {
  rig_.MakeArena(4096);
  const StateArena::Slot slot = rig_.Slot();
  Call small(model_.program, {{}, {5}}, 1);
  small.slots[model_.cached] = {slot};
  ASSERT_TRUE(rig_.Run(small).ok());
  StateArena::State before = rig_.Take(slot);
  const int64_t launches = rig_.controls[0]->graph_launches;
  Call large(model_.program, {{}, {64, 64}}, 2);
  large.data = RandomData(model_.program, {{}, {64}}, 2);
  large.slots[model_.cached] = {slot};
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    before = rig_.Take(slot);
    status = rig_.Run(large);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_LT(rig_.controls[0]->graph_launches - launches, 10);
  const StateArena::State after = rig_.Take(slot);
  EXPECT_EQ(before.rows, after.rows);
  EXPECT_EQ(before.values, after.values);
}

TEST(CudaProgramTest, ADeviceLostInAnyOperationFailsTheRunAndNoSlotGoesOn) {
  const Model model;
  bool succeeded = false;
  for (int operations = 0; !succeeded; ++operations) {
    SCOPED_TRACE(operations);
    ASSERT_LT(operations, 100);
    ProgramRig rig(model.program, {64, 8}, 2);
    rig.MakeArena();
    Call call(model.program, {{3, 2}, {20}}, 1);
    rig.GiveSlots(call, {model.tokens, model.cached});
    ASSERT_TRUE(rig.Run(call).ok());
    // Another bucket, which must be recorded.
    Call next(model.program, {{3, 2}, {40}}, 2);
    next.slots = call.slots;
    const StateArena::Stats before = rig.arena->stats();
    rig.controls[0]->operations_until_lost = operations;
    const Status status = rig.Run(next);
    succeeded = status.ok();
    if (succeeded) break;
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.message();
    EXPECT_EQ(rig.arena->stats().slots, before.slots);
    EXPECT_EQ(rig.arena->stats().used_bytes, before.used_bytes) << "the run's pages are given up";
    // From now on everything on this device fails, and the other one serves.
    rig.controls[0]->operations_until_lost = -1;
    EXPECT_EQ(rig.Run(call).code(), StatusCode::kDeviceLost);
    StateArena::State state;
    EXPECT_EQ(rig.arena->Take(call.slots[model.tokens][0], &state).code(), StatusCode::kDeviceLost);
    ArenaOptions options;
    options.budget_bytes = 4096;
    std::unique_ptr<StateArena> arena;
    EXPECT_EQ(rig.executable->CreateArena(options, &arena).code(), StatusCode::kDeviceLost);
    std::unique_ptr<ProgramWorkspace> workspace;
    rig.limits.device = 0;
    EXPECT_EQ(rig.executable->CreateWorkspace(rig.limits, &workspace).code(),
              StatusCode::kDeviceLost);
    EXPECT_TRUE(rig.backend->devices()[0].lost);
    Call elsewhere(model.program, {{3, 2}}, 1);
    EXPECT_TRUE(rig.Run(elsewhere, 1).ok());
  }
  EXPECT_TRUE(succeeded);
}

// Another worker's run would take the pages, and the GPU would write to them.
TEST(CudaProgramTest, ARunThatFailsInAnyOperationHoldsItsPagesUntilTheWorkIsOver) {
  const Model model;
  for (const bool throws : {false, true}) {
    // The first run of a bucket is not recorded, the second one is, the third one replays.
    for (int earlier_runs = 0; earlier_runs < 3; ++earlier_runs) {
      bool failed = true;
      for (int operations = 0; failed; ++operations) {
        SCOPED_TRACE(::testing::Message() << throws << ", " << earlier_runs << ", " << operations);
        ASSERT_LT(operations, 100);
        ProgramRig rig(model.program);
        rig.MakeArena();
        Call call(model.program, {{3, 2}, {20}}, 1);
        rig.GiveSlots(call, {model.tokens, model.cached});
        for (int run = 0; run < earlier_runs; ++run) ASSERT_TRUE(rig.Run(call).ok());
        const StateArena::Stats before = rig.arena->stats();
        HostDeviceControl& control = *rig.controls[0];
        int waits = 0;
        control.on_wait = [&] {
          ++waits;
          EXPECT_GT(rig.arena->stats().used_bytes, before.used_bytes);
        };
        control.failure_throws = throws;
        control.operations_until_failure = operations;
        const Status status = rig.Run(call);
        failed = control.operations_until_failure < 0;
        control.operations_until_failure = -1;
        control.on_wait = nullptr;
        // A bucket whose recording fails otherwise runs without a graph.
        if (throws && failed) {
          EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
        }
        if (!failed) {
          EXPECT_EQ(waits, 1);
        }
        if (!status.ok()) {
          EXPECT_EQ(rig.arena->stats().used_bytes, before.used_bytes);
          ASSERT_TRUE(rig.Run(call).ok());
        }
        EXPECT_FALSE(rig.backend->devices()[0].lost);

        ProgramRig other(model.program);
        other.MakeArena();
        Call expected(model.program, {{3, 2}, {20}}, 1);
        other.GiveSlots(expected, {model.tokens, model.cached});
        for (int run = 0; run <= earlier_runs; ++run) ASSERT_TRUE(other.Run(expected).ok());
        EXPECT_EQ(call.values, expected.values);
      }
    }
  }
}

TEST_F(CudaModelTest, ADeviceLostInACopyOfAStateIsNoticed) {
  rig_.MakeArena();
  Call call(model_.program, {{3}}, 1);
  call.slots[model_.tokens] = {rig_.Slot()};
  ASSERT_TRUE(rig_.Run(call).ok());
  rig_.controls[0]->operations_until_lost = 0;
  StateArena::State state;
  EXPECT_EQ(rig_.arena->Take(call.slots[model_.tokens][0], &state).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(rig_.backend->devices()[0].lost);
}

// One Predict of rows of features, whose log-probabilities come from its bias alone where the
// features are zero.
class Predictor : public RandomProgram {
 public:
  Predictor(int vocabulary_size, int max_candidates) : RandomProgram(3) {
    const AxisId axis = program.AddAxis("rows");
    Predict("next", Features("x", axis, 4), axis, vocabulary_size, max_candidates);
  }
  enum Outputs { kLogProbs, kLists };

  void SetBias(std::vector<float> bias) {
    std::get<ops::Predict>(program.operations.back()).bias = Keep(std::move(bias));
  }
};

// The candidates of one row of zeros are the `count` best of the bias.
void ExpectBestOf(const std::vector<float>& bias, int count) {
  SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(bias.size()));
  Predictor predictor(static_cast<int>(bias.size()), static_cast<int>(bias.size()));
  predictor.SetBias(bias);
  ProgramRig rig(predictor.program, {16, 1});
  Call call(predictor.program, {{1}}, 1);
  std::fill(call.data.features[0].begin(), call.data.features[0].end(), 0.0f);
  call.data.ids[1] = {0};
  call.data.ids[2] = {count};
  ASSERT_TRUE(rig.Run(call).ok());
  std::vector<int> ids(bias.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return bias[a] > bias[b]; });
  double sum = 0;
  for (const float z : bias) sum += std::exp(static_cast<double>(z) - bias[ids[0]]);
  const double log_sum = bias[ids[0]] + std::log(sum);
  for (int i = 0; i < count; ++i) {
    const Candidate& found = call.candidates[Predictor::kLists][i];
    ASSERT_EQ(found.id, ids[i]) << "place " << i;
    EXPECT_NEAR(found.log_prob, bias[ids[i]] - log_sum, 2e-5);
  }
  EXPECT_EQ(call.candidates[Predictor::kLists][count].id, kNone) << "not asked for";
  EXPECT_NEAR(call.values[Predictor::kLogProbs][0], bias[0] - log_sum, 2e-5);
}

TEST(CudaPredictTest, ChoosesTheBestOfAnyRow) {
  for (const int size : {1, 2, 31, 255, 256, 257, 3000}) {
    const std::vector<float> bias = RandomValues(size, 5);
    for (const int count : {1, 2, 128, 256, 257, size}) {
      if (count <= size) ExpectBestOf(bias, count);
    }
  }
}

// Few candidates are written to the host's memory, more are copied, also by one recorded graph.
TEST(CudaPredictTest, OnlyManyCandidatesAreCopied) {
  constexpr int kRows = 16;
  constexpr int kMost = kMaxMappedCandidateBytes / (kRows * sizeof(Candidate));
  const Predictor predictor(3 * kMost, 2 * kMost);
  ProgramRig rig(predictor.program, {kRows, 1});
  Call many(predictor.program, {{kRows}}, 1);
  many.data.ids[1].assign(kRows, -1);
  many.data.ids[2].assign(kRows, 2 * kMost);
  ASSERT_TRUE(rig.Run(many).ok());
  for (const int count : {kMost, kMost + 1, kMost}) {
    SCOPED_TRACE(count);
    Call call(predictor.program, {{kRows}}, 1);
    call.data = many.data;
    call.data.ids[2].assign(kRows, count);
    const int64_t before = rig.controls[0]->bytes_to_host;
    ASSERT_TRUE(rig.Run(call).ok());
    const int64_t bytes = int64_t{kRows} * count * sizeof(Candidate);
    EXPECT_EQ(rig.controls[0]->bytes_to_host - before, count > kMost ? bytes : 0);
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < count; ++i) {
        const int at = row * 2 * kMost + i;
        EXPECT_EQ(Pair(call.candidates[Predictor::kLists][at]),
                  Pair(many.candidates[Predictor::kLists][at]));
      }
    }
  }
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 1);
}

TEST(CudaPredictTest, OfEqualsTheSmallestIdIsFirst) {
  ExpectBestOf(std::vector<float>(700, -2.0f), 300);
  std::vector<float> few(700);
  for (size_t i = 0; i < few.size(); ++i) few[i] = static_cast<float>(i % 3);
  ExpectBestOf(few, 20);
  // 0 and -0 are equal.
  for (size_t i = 0; i < few.size(); ++i) few[i] = i % 2 == 0 ? -0.0f : 0.0f;
  ExpectBestOf(few, 9);
}

TEST(CudaPredictTest, TheBestMayAllBeInAFewThreadsParts) {
  // All values of 200 of the 256 parts are larger than those of the others, so that more keys are
  // above the 200th best part than are sorted at a time.
  std::vector<float> bias(3000);
  for (size_t i = 0; i < bias.size(); ++i) {
    const size_t part = i % 256;
    const size_t place = i / 256;
    bias[i] = -static_cast<float>(part) - 1e-3f * static_cast<float>(place);
  }
  ExpectBestOf(bias, 200);
}

TEST(CudaPredictTest, LogitsAreMadeAFewRowsAtATime) {
  constexpr int kWords = 150000;
  constexpr int kRows = 130;
  const Predictor predictor(kWords, 4);
  ProgramRig rig(predictor.program, {kRows, 1});
  EXPECT_LT(rig.workspaces[0]->bytes(), kMaxLogitBytes + (size_t{16} << 20));
  Call all(predictor.program, {{kRows}}, 1);
  all.data.ids[1].assign(kRows, -1);
  all.data.ids[2].assign(kRows, 0);
  for (int row = 0; row < kRows; ++row) {
    // Of a few rows nothing is asked.
    if (row % 10 == 3) continue;
    all.data.ids[1][row] = row * 1000;
    all.data.ids[2][row] = row % 5;
  }
  ASSERT_TRUE(rig.Run(all).ok());
  for (const int row : {0, 3, 69, 70, 71, 72, kRows - 1}) {
    SCOPED_TRACE(row);
    Call one(predictor.program, {{1}}, 1);
    one.data.features[0].assign(&all.data.features[0][4 * row], &all.data.features[0][4 * row] + 4);
    one.data.ids[1] = {all.data.ids[1][row]};
    one.data.ids[2] = {all.data.ids[2][row]};
    ASSERT_TRUE(rig.Run(one).ok());
    EXPECT_EQ(one.values[Predictor::kLogProbs][0], all.values[Predictor::kLogProbs][row]);
    if (row % 10 == 3) {
      EXPECT_EQ(all.values[Predictor::kLogProbs][row], 0.0f);
    }
    for (int i = 0; i < 4; ++i) {
      const Candidate& expected = one.candidates[Predictor::kLists][i];
      const Candidate& found = all.candidates[Predictor::kLists][4 * row + i];
      EXPECT_EQ(Pair(found), Pair(expected));
    }
  }
}

// One Predict that picks, of rows of features. Rows of zeros have the bias for logits.
class PickModel : public RandomProgram {
 public:
  explicit PickModel(std::vector<float> logits) : RandomProgram(4) {
    const int size = static_cast<int>(logits.size());
    const AxisId axis = program.AddAxis("rows");
    const ValueId next = Pick("next", Features("x", axis, 4), axis, size, std::min(size, 4));
    op<ops::Predict>(next).bias = Keep(std::move(logits));
  }
  // [axis]: for rows with adjustments of all symbols of some of them.
  static std::vector<AxisLimits> Limits(int rows) { return {{rows, 1}, {40000, rows}}; }
  enum Inputs { kX, kTargets, kCounts, kSamplings, kAdjusted };
  enum Outputs { kLogProbs, kLists, kPicked };
};

struct PickCase {
  Sampling sampling;
  std::vector<Adjustment> adjustments;
};

// The symbol that program.h's equations pick, with a sort in place of a selection.
int32_t ExpectedPick(const std::vector<float>& logits, const PickCase& given) {
  std::vector<float> z = logits;
  for (const Adjustment& a : given.adjustments) {
    const float scaled = z[a.id] > 0 ? z[a.id] / a.scale : z[a.id] * a.scale;
    z[a.id] = std::isfinite(a.add) ? std::clamp(scaled + a.add, -std::numeric_limits<float>::max(),
                                                std::numeric_limits<float>::max())
                                   : a.add;
  }
  std::vector<int32_t> kept(z.size());
  std::iota(kept.begin(), kept.end(), 0);
  std::stable_sort(kept.begin(), kept.end(), [&](int32_t a, int32_t b) { return z[a] > z[b]; });
  const float best = z[kept[0]];
  if (std::isinf(best)) return kNone;
  const Sampling& s = given.sampling;
  if (s.temperature == 0) return kept[0];

  const double one = std::ldexp(1.0, 32);
  const auto n = [&](int32_t v) {
    return static_cast<uint64_t>(one * std::exp((z[v] - best) / s.temperature));
  };
  if (s.top_k > 0) kept.resize(std::min(kept.size(), static_cast<size_t>(s.top_k)));
  while (n(kept.back()) < static_cast<uint64_t>(one * s.min_p)) kept.pop_back();
  const auto sum = [&] {
    uint64_t total = 0;
    for (const int32_t v : kept) total += n(v);
    return total;
  };
  if (s.top_p > 0) {
    const double least = s.top_p * static_cast<double>(sum());
    size_t count = 0;
    for (uint64_t total = 0; static_cast<double>(total) < least;) total += n(kept[count++]);
    kept.resize(count);
  }
  std::sort(kept.begin(), kept.end());
  const auto bound = static_cast<uint64_t>(static_cast<unsigned __int128>(s.random) * sum() >> 64);
  uint64_t total = 0;
  for (const int32_t v : kept) {
    total += n(v);
    if (total > bound) return v;
  }
  return kNone;
}

Sampling Draw(float temperature, uint64_t random) {
  Sampling sampling;
  sampling.temperature = temperature;
  sampling.random = random;
  return sampling;
}

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// Of a vocabulary, what may be asked: every member of Sampling alone and together, at its borders
// too.
std::vector<PickCase> PickCases(int size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<PickCase> cases = {{Draw(0, 1), {}},
                                 {Draw(1, 0), {}},
                                 {Draw(1, ~uint64_t{0}), {}},
                                 {Draw(1e-30f, 7), {}},
                                 {Draw(1e30f, random()), {}}};
  const auto add = [&](float temperature, int top_k, float top_p, float min_p) -> PickCase& {
    Sampling sampling = Draw(temperature, random());
    sampling.top_k = top_k;
    sampling.top_p = top_p;
    sampling.min_p = min_p;
    return cases.emplace_back(PickCase{sampling, {}});
  };
  for (const int top_k : {1, 2, 40, 300, size - 1, size, size + 1}) {
    if (top_k > 0) add(2.0f, top_k, 0, 0);
  }
  for (const float top_p : {1e-30f, 0.1f, 0.5f, 0.9f, 0.999f, 1.0f}) add(1.5f, 0, top_p, 0);
  for (const float min_p : {1e-6f, 0.01f, 0.5f, 1.0f}) add(1.5f, 0, 0, min_p);
  for (int i = 0; i < 6; ++i) {
    add(0.5f + static_cast<float>(i) / 2, 1 + static_cast<int>(random() % 100), 0.95f, 0.001f);
  }
  for (const int count : {1, 5, std::min(size, 600)}) {
    for (const float temperature : {0.0f, 1.0f}) {
      std::vector<Adjustment>& adjustments = add(temperature, 50, 0.9f, 0).adjustments;
      for (int i = 0; i < count; ++i) {
        const auto id = static_cast<int32_t>(int64_t{i} * size / count);
        if (!adjustments.empty() && adjustments.back().id == id) continue;
        const float added = i % 3 == 0 ? kForbidden : static_cast<float>(random() % 9) - 4;
        adjustments.push_back({id, 1.0f + static_cast<float>(i % 2), added});
      }
    }
  }
  // As large as numbers are.
  add(1, 0, 0, 0).adjustments = {{size / 2, 1e-30f, 3e38f}};
  if (size <= 700) {
    std::vector<Adjustment>& all = add(1, 0, 0.5f, 0).adjustments;
    for (int v = 0; v < size; ++v) all.push_back({v, 1, kForbidden});
  }
  return cases;
}

// A call that asks for the picks of rows of zeros, and for nothing else.
Call PickCall(const Program& program, const std::vector<PickCase>& cases) {
  std::vector<int> counts;
  for (const PickCase& given : cases) counts.push_back(static_cast<int>(given.adjustments.size()));
  Call call(program, {{static_cast<int>(cases.size())}, counts}, 1);
  std::fill(call.data.features[PickModel::kX].begin(), call.data.features[PickModel::kX].end(),
            0.0f);
  call.data.sampling[PickModel::kSamplings].clear();
  call.data.adjustments[PickModel::kAdjusted].clear();
  for (const PickCase& given : cases) {
    call.data.sampling[PickModel::kSamplings].push_back(given.sampling);
    std::vector<Adjustment>& all = call.data.adjustments[PickModel::kAdjusted];
    all.insert(all.end(), given.adjustments.begin(), given.adjustments.end());
  }
  call.wanted[PickModel::kLogProbs] = call.wanted[PickModel::kLists] = false;
  return call;
}

void ExpectPicks(const std::vector<float>& logits, const std::vector<PickCase>& cases) {
  SCOPED_TRACE(std::to_string(logits.size()) + " symbols");
  const PickModel model(logits);
  ProgramRig rig(model.program, PickModel::Limits(48));
  Call call = PickCall(model.program, cases);
  ASSERT_TRUE(rig.Run(call).ok());
  const std::vector<Candidate>& picked = call.candidates[PickModel::kPicked];
  // The log-probabilities of the same symbols as targets.
  Call targets = PickCall(model.program, cases);
  targets.wanted = {true, false, false};
  for (size_t row = 0; row < cases.size(); ++row) {
    EXPECT_EQ(picked[row].id, ExpectedPick(logits, cases[row])) << "row " << row;
    targets.data.ids[PickModel::kTargets][row] = picked[row].id;
  }
  ASSERT_TRUE(rig.Run(targets).ok());
  for (size_t row = 0; row < cases.size(); ++row) {
    EXPECT_EQ(picked[row].log_prob, targets.values[PickModel::kLogProbs][row]) << "row " << row;
  }
  EXPECT_EQ(picked[cases.size()].id, kNone) << "not asked for";
}

std::vector<float> RandomLogits(int size, unsigned seed) {
  return RandomValues(size, seed, 3.0f, 1.0f);
}

TEST(CudaPickTest, PicksWhatTheEquationsSay) {
  for (const int size : {1, 2, 31, 255, 256, 257, 3000, kSmallVocabulary, kSmallVocabulary + 1}) {
    ExpectPicks(RandomLogits(size, 5), PickCases(size, 6));
  }
}

TEST(CudaPickTest, LargeVocabularies) {
  for (const int size : {50000, 130000}) ExpectPicks(RandomLogits(size, 7), PickCases(size, 8));
}

TEST(CudaPickTest, OfEqualsTheSmallestIdsStay) {
  for (const int size : {700, kSmallVocabulary + 100}) {
    ExpectPicks(std::vector<float>(size, -2.0f), PickCases(size, 9));
    std::vector<float> few(size);
    for (int v = 0; v < size; ++v) few[v] = static_cast<float>(v % 3);
    ExpectPicks(few, PickCases(size, 10));
    // 0 and -0 are equal.
    for (int v = 0; v < size; ++v) few[v] = v % 2 == 0 ? -0.0f : 0.0f;
    ExpectPicks(few, PickCases(size, 11));
  }
}

TEST(CudaPickTest, LogitsFarApart) {
  std::vector<float> logits = RandomLogits(700, 12);
  for (float& value : logits) value *= 1e30f;
  ExpectPicks(logits, PickCases(700, 13));
  logits.assign(700, -std::numeric_limits<float>::max());
  logits[650] = std::numeric_limits<float>::max() / 2;
  ExpectPicks(logits, PickCases(700, 14));
}

TEST(CudaPickTest, ThreadsMayRunInAnyOrder) {
  const PickModel model(RandomLogits(700, 15));
  const std::vector<PickCase> cases = PickCases(700, 16);
  const ShimMode before = GetShimMode();
  std::vector<Candidate> expected;
  for (const ShimMode& mode : kShimModes) {
    SetShimMode(mode);
    ProgramRig rig(model.program, PickModel::Limits(48));
    Call call = PickCall(model.program, cases);
    ASSERT_TRUE(rig.Run(call).ok());
    const std::vector<Candidate>& picked = call.candidates[PickModel::kPicked];
    if (expected.empty()) expected = picked;
    for (size_t row = 0; row < cases.size(); ++row) {
      EXPECT_EQ(Pair(picked[row]), Pair(expected[row]));
    }
  }
  SetShimMode(before);
}

TEST(CudaPickTest, RowsArePickedAsTheyAreAlone) {
  // More rows than have logits at a time.
  constexpr int kWords = 150000;
  constexpr int kRows = 118;
  const PickModel model(RandomLogits(kWords, 17));
  ProgramRig rig(model.program, PickModel::Limits(kRows));
  EXPECT_LT(rig.workspaces[0]->bytes(), kMaxLogitBytes + (size_t{16} << 20));
  std::vector<PickCase> cases(kRows);
  for (int row = 0; row < kRows; ++row) {
    if (row % 16 == 1)
      cases[row].sampling = {1.0f, row, 0.9f, 0, uint64_t{0x9e3779b97f4a7c15} * row};
    if (row % 3 == 1) cases[row].adjustments = {{row * 1000, 2.0f, 30.0f}};
  }
  Call all = PickCall(model.program, cases);
  all.data.features = RandomData(model.program, {{kRows}}, 18).features;
  ASSERT_TRUE(rig.Run(all).ok());
  for (const int row : {0, 1, 49, 65, 79, 81, 96, 97, 113, 115, kRows - 1}) {
    SCOPED_TRACE(row);
    Call one = PickCall(model.program, {cases[row]});
    const float* const x = &all.data.features[PickModel::kX][4 * row];
    one.data.features[PickModel::kX].assign(x, x + 4);
    ASSERT_TRUE(rig.Run(one).ok());
    const Candidate& expected = one.candidates[PickModel::kPicked][0];
    EXPECT_EQ(Pair(all.candidates[PickModel::kPicked][row]), Pair(expected));
  }
}

TEST(CudaPickTest, AGraphPicksByWhatEachBatchBrings) {
  const std::vector<float> logits = RandomLogits(300, 19);
  const PickModel model(logits);
  ProgramRig rig(model.program);
  std::mt19937_64 random(20);
  // With adjustments and without; of each there is one bucket.
  for (int batch = 0; batch < 8; ++batch) {
    SCOPED_TRACE(batch);
    std::vector<PickCase> cases(5 + batch % 2);
    for (size_t row = 0; row < cases.size(); ++row) {
      cases[row].sampling = Draw(row % 3 == 0 ? 0.0f : 1.0f, random());
      cases[row].sampling.top_k = static_cast<int32_t>(random() % 20);
      if (batch % 4 < 2) continue;
      for (int i = 0; i < static_cast<int>(row % 4); ++i) {
        cases[row].adjustments.push_back(
            {static_cast<int32_t>(50 * i + random() % 50), 1, static_cast<float>(random() % 9)});
      }
    }
    Call call = PickCall(model.program, cases);
    if (batch % 4 < 2) call.data.lengths[1].clear();  // not one sequence
    const int64_t to_host = rig.controls[0]->bytes_to_host;
    ASSERT_TRUE(rig.Run(call).ok());
    EXPECT_EQ(rig.controls[0]->bytes_to_host, to_host);  // the kernels write to the host's memory
    for (size_t row = 0; row < cases.size(); ++row) {
      EXPECT_EQ(call.candidates[PickModel::kPicked][row].id, ExpectedPick(logits, cases[row]));
    }
  }
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 2);
  EXPECT_EQ(rig.controls[0]->graph_launches, 6);
}

TEST(CudaPickTest, PicksCandidatesAndTargetsComeTogether) {
  const std::vector<float> logits = RandomLogits(500, 21);
  const PickModel model(logits);
  ProgramRig rig(model.program, PickModel::Limits(48));
  const std::vector<PickCase> cases = PickCases(500, 22);
  Call call = PickCall(model.program, cases);
  const size_t rows = cases.size();
  call.wanted.assign(3, true);
  call.data.ids[PickModel::kTargets].assign(rows, 7);
  call.data.ids[PickModel::kCounts].assign(rows, 4);
  ASSERT_TRUE(rig.Run(call).ok());
  // Adjustments are of the pick alone.
  std::vector<int> best(logits.size());
  std::iota(best.begin(), best.end(), 0);
  std::stable_sort(best.begin(), best.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (size_t row = 0; row < rows; ++row) {
    EXPECT_EQ(call.candidates[PickModel::kPicked][row].id, ExpectedPick(logits, cases[row]));
    EXPECT_EQ(call.values[PickModel::kLogProbs][row], call.values[PickModel::kLogProbs][0]);
    for (int i = 0; i < 4; ++i) {
      const Candidate& candidate = call.candidates[PickModel::kLists][4 * row + i];
      EXPECT_EQ(candidate.id, best[i]);
      EXPECT_EQ(candidate.log_prob, call.candidates[PickModel::kLists][i].log_prob);
    }
  }
}

constexpr int kMostCandidates = 12;

// A translator and a device that serves it.
struct TranslatingRig : ProgramRig {
  explicit TranslatingRig(int num_devices = 1, BackendOptions options = {})
      : ProgramRig(num_devices, options) {
    limits.max_attention_values = 2000;
    Prepare(model.program, {64, 16});
    MakeArena();
  }

  // A slot per sentence, which has been encoded.
  std::vector<StateArena::Slot> Encode(const std::vector<int>& lengths, unsigned seed) {
    Call call(model.program, {lengths, {}}, seed);
    GiveSlots(call, {model.source});
    call.wanted.assign(call.wanted.size(), false);
    EXPECT_THAT(Run(call), IsOk());
    return call.slots[model.source];
  }

  StateArena::Slot CopyOf(StateArena::Slot from) {
    StateArena::Slot slot = StateArena::kNoSlot;
    EXPECT_TRUE(arena->Copy(from, &slot).ok());
    return slot;
  }

  // One more token of each hypothesis, `count` candidates of each.
  Call Step(const std::vector<StateArena::Slot>& slots, unsigned seed, int count = 3) const {
    Call call(model.program, {{}, std::vector<int>(slots.size(), 1)}, seed);
    call.slots[model.target] = slots;
    call.data.ids[RandomTranslator::kTargets].assign(slots.size(), -1);
    call.data.ids[RandomTranslator::kCounts].assign(slots.size(), count);
    call.wanted[RandomTranslator::kLogProb] = false;
    return call;
  }

  const RandomTranslator model;
};

void ExpectSameCandidates(const Call& expected, size_t expected_row, const Call& found, size_t row,
                          int count) {
  for (int i = 0; i < count; ++i) {
    const Candidate& a =
        expected.candidates[RandomTranslator::kCandidates][expected_row * kMostCandidates + i];
    const Candidate& b = found.candidates[RandomTranslator::kCandidates][row * kMostCandidates + i];
    EXPECT_EQ(Pair(a), Pair(b)) << "row " << row << ", place " << i;
  }
}

// A beam search forks and reorders hypotheses at every step, whose last pages are shared then.
TEST(CudaProgramTest, SharedPagesAreCopiedByTheRunItself) {
  TranslatingRig rig;
  HostDeviceControl& control = *rig.controls[0];
  constexpr int kBeam = 5;
  std::vector<StateArena::Slot> beam = rig.Encode({7}, 1);
  const StateArena::Slot alone = rig.CopyOf(beam[0]);
  while (beam.size() < kBeam) beam.push_back(rig.CopyOf(beam[0]));
  std::mt19937 random(2);
  // Past the second page.
  for (unsigned step = 0; step < 2 * kStatePageRows + 4; ++step) {
    SCOPED_TRACE(step);
    // The hypothesis that is followed alone is always the parent of another one.
    Call call = rig.Step(beam, step);
    Call follow = rig.Step({alone}, step);
    follow.data.ids[RandomTranslator::kTargetIds][0] =
        call.data.ids[RandomTranslator::kTargetIds][0];
    const int64_t waits = control.waits;
    ASSERT_TRUE(rig.Run(call).ok());
    EXPECT_EQ(control.waits, waits + 1) << "for the results, and for no copy";
    ASSERT_TRUE(rig.Run(follow).ok());
    ExpectSameCandidates(follow, 0, call, 0, 3);
    int parents[kBeam] = {0, 0};
    for (int i = 2; i < kBeam; ++i) parents[i] = static_cast<int>(random() % kBeam);
    ASSERT_TRUE(rig.arena->Reorder(beam.data(), parents, kBeam).ok());
  }
  const StateArena::State expected = rig.Take(alone);
  for (const int i : {0, 1}) {
    const StateArena::State found = rig.Take(beam[i]);
    EXPECT_EQ(found.rows, expected.rows);
    EXPECT_EQ(found.values, expected.values);
  }
}

TEST(CudaProgramTest, ARunThatFailsLeavesSharedPagesAsTheyWere) {
  TranslatingRig rig;
  HostDeviceControl& control = *rig.controls[0];
  std::vector<StateArena::Slot> beam = rig.Encode({9}, 1);
  Call first = rig.Step(beam, 1);
  ASSERT_TRUE(rig.Run(first).ok());
  beam.push_back(rig.CopyOf(beam[0]));
  const StateArena::State before = rig.Take(beam[0]);
  const size_t used = rig.arena->stats().used_bytes;
  Call next = rig.Step(beam, 2);
  control.failing_waits = 1;
  EXPECT_EQ(rig.Run(next).code(), StatusCode::kInternal);
  EXPECT_EQ(rig.arena->stats().used_bytes, used);
  for (const StateArena::Slot slot : beam) {
    EXPECT_EQ(rig.Take(slot).values, before.values);
  }
  // Two hypotheses that go on with the same token stay the same.
  next.data.ids[RandomTranslator::kTargetIds] = {4, 4};
  ASSERT_TRUE(rig.Run(next).ok());
  ExpectSameCandidates(next, 0, next, 1, 3);
}

TEST(CudaProgramTest, OnlyWhatIsAskedForIsCopiedBack) {
  TranslatingRig rig;
  HostDeviceControl& control = *rig.controls[0];
  const std::vector<StateArena::Slot> sentences = rig.Encode({7, 40, 3}, 1);
  Call call = rig.Step(sentences, 2);
  call.data.ids[RandomTranslator::kCounts] = {3, 0, 4};
  for (const bool alignment : {false, true}) {
    call.wanted[RandomTranslator::kAlignment] = alignment;
    for (int run = 0; run < 2; ++run) {
      const int64_t before = control.bytes_to_host;
      ASSERT_TRUE(rig.Run(call).ok());
      const int64_t weights = (7 + 40 + 3) * sizeof(float);
      EXPECT_EQ(control.bytes_to_host - before, alignment ? weights : 0);
    }
  }
  EXPECT_EQ(call.candidates[RandomTranslator::kCandidates][kMostCandidates].id, kNone)
      << "not asked for";
  const std::vector<float>& weights = call.values[RandomTranslator::kAlignment];
  for (const auto& [begin, end] : {std::pair{0, 7}, {7, 47}, {47, 50}}) {
    EXPECT_NEAR(std::accumulate(&weights[begin], &weights[end], 0.0), 1.0, 1e-5);
  }
}

TEST(CudaProgramTest, AttentionIsTheSameInAnyBatchAndWithinItsLimit) {
  TranslatingRig rig;
  const std::vector<int> lengths = {33, 1, 64 - 34 - 5, 5};
  const std::vector<StateArena::Slot> sentences = rig.Encode(lengths, 1);
  // A prefix, of which each token has its weights.
  const std::vector<int> tokens = {3, 5, 1, 40};
  Call all(rig.model.program, {{}, tokens}, 3);
  for (const StateArena::Slot slot : sentences) {
    all.slots[rig.model.target].push_back(rig.CopyOf(slot));
  }
  ASSERT_TRUE(rig.Run(all).ok());
  const float* weights = all.values[RandomTranslator::kAlignment].data();
  const int32_t* ids = all.data.ids[RandomTranslator::kTargetIds].data();
  for (size_t b = 0; b < tokens.size(); ++b) {
    // Alone, and a token at a time.
    for (int t = 0; t < tokens[b]; ++t) {
      Call one = rig.Step({sentences[b]}, 4);
      one.data.ids[RandomTranslator::kTargetIds][0] = *ids++;
      ASSERT_TRUE(rig.Run(one).ok());
      for (int s = 0; s < lengths[b]; ++s) {
        EXPECT_EQ(one.values[RandomTranslator::kAlignment][s], *weights++)
            << b << " " << t << " " << s;
      }
    }
  }
  // A weight for each of 33 words and of each token, and some more.
  const std::vector<StateArena::Slot> more = rig.Encode({33, 31}, 5);
  Call refused(rig.model.program, {{}, {60, 1}}, 6);
  refused.slots[rig.model.target] = more;
  const Status status = rig.Run(refused);
  EXPECT_THAT(status, IsInvalid(HasSubstr("outputs[3] (alignment): expected at most 2000")));
  EXPECT_THAT(status.message(), HasSubstr("found 2011"));
  Call fits(rig.model.program, {{}, {59, 1}}, 6);
  fits.slots[rig.model.target] = more;
  EXPECT_TRUE(rig.Run(fits).ok()) << "nothing was added before";
}

TEST(CudaProgramTest, PartsThatShareNoValuesAreRecordedByThemselves) {
  TranslatingRig rig;
  HostDeviceControl& control = *rig.controls[0];
  control.graphs_recorded = 0;
  // Row counts of four buckets each. Every pair comes twice.
  for (const int words : {5, 20, 40, 60}) {
    for (const int hypotheses : {1, 2, 5, 16}) {
      const std::vector<StateArena::Slot> sentence = rig.Encode({3}, 1);
      std::vector<StateArena::Slot> slots;
      for (int i = 0; i < hypotheses; ++i) slots.push_back(rig.CopyOf(sentence[0]));
      for (int run = 0; run < 2; ++run) {
        Call step = rig.Step(slots, 2);
        ASSERT_TRUE(rig.Run(step).ok());
        Call both(rig.model.program, {{words}, std::vector<int>(hypotheses, 1)}, 2);
        both.slots[rig.model.source] = {rig.Slot()};
        both.slots[rig.model.target] = slots;
        both.data.ids[RandomTranslator::kTargets].assign(hypotheses, -1);
        both.data.ids[RandomTranslator::kCounts].assign(hypotheses, 3);
        both.wanted[RandomTranslator::kLogProb] = false;
        ASSERT_TRUE(rig.Run(both).ok());
        Call whole(rig.model.program, {{words}, {}}, 2);
        whole.data.ids[RandomTranslator::kSourceIds] = both.data.ids[RandomTranslator::kSourceIds];
        whole.slots[rig.model.source] = {rig.Slot()};
        ASSERT_TRUE(rig.Run(whole).ok());
        EXPECT_EQ(whole.values[RandomTranslator::kEncoded],
                  both.values[RandomTranslator::kEncoded]);
      }
    }
  }
  // Of sources, four row counts, and one without an output; of targets, three sequence counts.
  EXPECT_EQ(control.graphs_recorded, 5 + 3);
}

TEST(CudaProgramTest, ADeviceLostInABatchOfBothAxesIsNoticedAndNoSlotGoesOn) {
  bool succeeded = false;
  for (int operations = 0; !succeeded; ++operations) {
    SCOPED_TRACE(operations);
    ASSERT_LT(operations, 200);
    TranslatingRig rig(2);
    std::vector<StateArena::Slot> beam = rig.Encode({7}, 1);
    beam.push_back(rig.CopyOf(beam[0]));
    Call first = rig.Step(beam, 1);
    ASSERT_TRUE(rig.Run(first).ok());
    beam.push_back(rig.CopyOf(beam[1]));
    Call both(rig.model.program, {{6, 9}, {1, 1, 1}}, 2);
    rig.GiveSlots(both, {rig.model.source});
    both.slots[rig.model.target] = beam;
    const StateArena::Stats before = rig.arena->stats();
    rig.controls[0]->operations_until_lost = operations;
    const Status status = rig.Run(both);
    succeeded = status.ok();
    if (succeeded) break;
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.message();
    EXPECT_EQ(rig.arena->stats().used_bytes, before.used_bytes);
    EXPECT_TRUE(rig.backend->devices()[0].lost);
    // The other device serves, from slots of its own.
    ArenaOptions arena_options;
    arena_options.budget_bytes = size_t{1} << 20;
    arena_options.device = 1;
    ASSERT_TRUE(rig.executable->CreateArena(arena_options, &rig.arena).ok());
    Call again(rig.model.program, {{6, 9}, {}}, 2);
    rig.GiveSlots(again, {rig.model.source});
    EXPECT_TRUE(rig.Run(again, 1).ok());
  }
  EXPECT_TRUE(succeeded);
}

TEST(CudaProgramTest, TheAxisWithFewerRowsHasFewerBuckets) {
  const RandomReader model;
  ProgramRig rig(model.program, {256, 8});
  HostDeviceControl& control = *rig.controls[0];
  for (const int words : {33, 40, 47, 50, 55, 64}) {
    for (int run = 0; run < 2; ++run) {
      Call call(model.program, {{200}, {words}}, 1);
      ASSERT_TRUE(rig.Run(call).ok());
    }
  }
  EXPECT_EQ(control.graphs_recorded, 1) << "of 64 words";
  // Where questions have the most rows, they have the buckets: of 48 and of 64 words.
  for (const int words : {33, 48, 50, 64}) {
    Call call(model.program, {{20}, {words}}, 1);
    ASSERT_TRUE(rig.Run(call).ok());
  }
  EXPECT_EQ(control.graphs_recorded, 3);
  // Neither limits nor results depend on it.
  Call most(model.program, {{256}, {256}}, 2);
  ASSERT_TRUE(rig.Run(most).ok());
  Call also(model.program, {{256, 0}, {250, 6}}, 2);
  also.data.ids = most.data.ids;
  also.data.ids[RandomReader::kQuestionOf] = {0, 1};
  ASSERT_TRUE(rig.Run(also).ok());
}

TEST(CudaProgramTest, AWorkspaceGrowsByTheRow) {
  ReaderSizes sizes;
  sizes.width = sizes.hidden_size = 32;
  const RandomReader reader(sizes);
  const RandomTranslator translator;
  const auto bytes = [](const Program& program, int rows) {
    ProgramRig rig(program, {rows, 64});
    return static_cast<double>(rig.workspaces[0]->bytes() - kProductWorkspaceBytes);
  };
  for (const Program* program : {&reader.program, &translator.program}) {
    const double once = bytes(*program, 4096);
    EXPECT_LT(bytes(*program, 4 * 4096), 4.05 * once);
    // All values of a row at a time, and scratch of its largest operation.
    EXPECT_LT(once / 4096, 16 << 10);
  }
}

TEST(CudaProgramTest, SequencesWithoutRowsKeepTheirStates) {
  class WithLast : public RandomProgram {
   public:
    WithLast() : RandomProgram(23) {
      tokens = program.AddAxis("tokens");
      const AxisId sequences = program.AddSequenceAxis("sequences", tokens);
      StackOptions options;
      options.hidden_size = 8;
      options.directions = 1;
      const ValueId h = Stack(Features("x", tokens, 4), options, "state");
      const ValueId before = Shift(h, "last");
      Output(before, "before");
      Output(Last(h, sequences, LastOf(before)), "end");
    }
    AxisId tokens;
  };
  const WithLast model;
  ProgramRig rig(model.program);
  rig.MakeArena();
  Call call(model.program, {{3, 2, 4}}, 1);
  rig.GiveSlots(call, {model.tokens});
  ASSERT_TRUE(rig.Run(call).ok());
  const std::vector<float> ends(call.values[1].begin(), call.values[1].begin() + 3 * 8);
  std::vector<StateArena::State> states(3);
  for (int b = 0; b < 3; ++b) {
    ASSERT_TRUE(rig.arena->Take(call.slots[model.tokens][b], &states[b]).ok());
  }
  // No rows at all; then rows of the one in the middle alone. Twice each: without a graph and with
  // it.
  for (const std::vector<int>& lengths : std::vector<std::vector<int>>{{0, 0, 0}, {0, 5, 0}}) {
    for (int run = 0; run < 2; ++run) {
      Call next(model.program, {lengths}, 2);
      next.slots = call.slots;
      ASSERT_TRUE(rig.Run(next).ok());
      for (int b = 0; b < 3; ++b) {
        SCOPED_TRACE(b);
        const StateArena::State after = rig.Take(call.slots[model.tokens][b]);
        const std::vector<float> end(next.values[1].begin() + 8 * b,
                                     next.values[1].begin() + 8 * (b + 1));
        const std::vector<float> before(ends.begin() + 8 * b, ends.begin() + 8 * (b + 1));
        EXPECT_EQ(after.values == states[b].values, lengths[b] == 0);
        EXPECT_EQ(end == before, lengths[b] == 0);
      }
    }
  }
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 2);
}

TEST(CudaProgramTest, OperationsOfTheSameWeightsShareThem) {
  constexpr int kWords = 1000;
  constexpr int kWidth = 32;
  const auto weight_bytes = [](bool twice, bool shared) {
    RandomProgram p(24);
    const AxisId axis = p.program.AddAxis("rows");
    const InputId ids = p.program.AddIds("ids", axis, 0, kWords);
    for (int i = 0; i < (twice ? 2 : 1); ++i) {
      const std::string name = std::to_string(i);
      const ValueId embedded = p.Embed(ids, kWords, kWidth);
      const ValueId x = p.Linear(embedded, kWidth);
      p.Pick(name, x, axis, kWords, 3);
      if (i == 0 || !shared) continue;
      p.op<ops::Embed>(3).table = p.op<ops::Embed>(0).table;
      p.op<ops::Linear>(4).weight = p.op<ops::Linear>(1).weight;
      p.op<ops::Linear>(4).bias = p.op<ops::Linear>(1).bias;
      p.op<ops::Predict>(5).weight = p.op<ops::Predict>(2).weight;
      p.op<ops::Predict>(5).bias = p.op<ops::Predict>(2).bias;
    }
    ProgramRig rig(p.program);
    return rig.executable->weight_bytes();
  };
  const size_t once = weight_bytes(false, false);
  EXPECT_EQ(weight_bytes(true, true), once);
  EXPECT_EQ(weight_bytes(true, false), 2 * once);
}

// The kernels and products that a batch launches.
int64_t Launches(ProgramRig& rig, Call& call) {
  const HostDeviceControl& control = *rig.controls[0];
  const int64_t before = control.kernels + control.products;
  EXPECT_THAT(rig.Run(call), IsOk());
  return control.kernels + control.products - before;
}

// What a translator answers in steps of hypotheses that share pages, which become full, and are
// copied.
std::vector<float> Translated(DataType dtype, int own_microseconds, int64_t* normalized) {
  std::vector<float> answers;
  ::sru::testing::TranslatorSizes sizes;
  sizes.width = sizes.hidden_size = 24;
  sizes.layers = 2;
  const RandomTranslator model(sizes);
  ProgramRig rig(1, {}, own_microseconds);
  rig.compile.dtype = dtype;
  rig.limits.max_attention_values = 20000;
  rig.Prepare(model.program);
  rig.MakeArena();
  const auto take = [&](Call& call, size_t rows) {
    EXPECT_THAT(rig.Run(call), IsOk());
    const std::vector<float>& log_prob = call.values[RandomTranslator::kLogProb];
    answers.insert(answers.end(), log_prob.begin(), log_prob.begin() + rows);
    for (size_t i = 0; i < rows; ++i) {
      const Candidate& best = call.candidates[RandomTranslator::kCandidates][i];
      answers.push_back(static_cast<float>(best.id));
      answers.push_back(best.log_prob);
    }
  };
  Call encode(model.program, {{7, 5, 9}, {}}, 1);
  rig.GiveSlots(encode, {model.source});
  take(encode, 0);
  std::vector<StateArena::Slot> hypotheses;
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(
        rig.arena->Copy(encode.slots[model.source][i % 3], &hypotheses.emplace_back()).ok());
  }
  for (int step = 0; step < 20; ++step) {
    // All of one row, and once a text of several, whose keys fill a page and begin one.
    std::vector<int> lengths(6, 1);
    if (step == 5) lengths[2] = 14;
    if (step % 6 == 5) {
      const int parents[] = {1, 1, 2, 2, 4, 4};
      EXPECT_TRUE(rig.arena->Reorder(hypotheses.data(), parents, 6).ok());
    }
    Call call(model.program, {{}, lengths}, 2 + step);
    call.slots[model.target] = hypotheses;
    take(call, 6);
  }
  *normalized = rig.controls[0]->normalized_products;
  return answers;
}

TEST(CudaProgramTest, OurProductsGiveTheBitsOfTheLibrarys) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    int64_t normalized = 0;
    const std::vector<float> expected = Translated(dtype, -1, &normalized);
    EXPECT_EQ(normalized, 0);
    EXPECT_EQ(Translated(dtype, 1, &normalized), expected) << static_cast<int>(dtype);
    EXPECT_GT(normalized, 0);
  }
}

// At decoding's few rows a step takes as long as its launches.
TEST(CudaProgramTest, LaunchesOfATranslatorsStep) {
  const struct {
    DataType dtype;
    bool fuse_layers;
    int launches;  // of a decoder layer
    int own_microseconds = -1;
  } kCases[] = {
      // 6 products, 2 attentions, 3 layer norms with what comes before and after them, a scan, the
      // new keys and values.
      {DataType::kFloat32, false, 13},
      {DataType::kBFloat16, false, 13},
      // Our own products make layer norms and new keys and values as well.
      {DataType::kFloat32, false, 9, 1},
      {DataType::kBFloat16, false, 9, 1},
      // A product and the scan are one launch.
      {DataType::kBFloat16, true, 12},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.launches);
    BackendOptions options;
    options.cuda_fuse_layers = c.fuse_layers;
    int64_t launches[2];
    for (const int layers : {2, 3}) {
      ::sru::testing::TranslatorSizes sizes;
      sizes.layers = layers;
      const RandomTranslator model(sizes);
      ProgramRig rig(1, options, c.own_microseconds);
      rig.compile.dtype = c.dtype;
      rig.limits.max_attention_values = 2000;
      rig.Prepare(model.program);
      rig.MakeArena();
      Call encode(model.program, {{7}, {}}, 1);
      encode.slots[model.source] = {rig.Slot()};
      ASSERT_TRUE(rig.Run(encode).ok());
      Call step(model.program, {{}, {1}}, 2);
      step.slots[model.target] = encode.slots[model.source];
      launches[layers - 2] = Launches(rig, step);
    }
    EXPECT_EQ(launches[1] - launches[0], c.launches);
    // The embedding and its layer norm; the states, from the slots and to them; the rows, the
    // logits and the candidates of the prediction.
    EXPECT_EQ(launches[0] - 2 * (launches[1] - launches[0]), 7);
  }
}

TEST(CudaProgramTest, LaunchesOfALanguageModelsStep) {
  BackendOptions backend_options;
  backend_options.cuda_fuse_layers = false;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    int64_t launches[2];
    for (const int layers : {6, 12}) {
      RandomProgram p(3);
      const AxisId tokens = p.program.AddAxis("tokens");
      StackOptions options;
      options.input_size = 16;
      options.hidden_size = 32;
      options.num_layers = layers;
      options.directions = 1;
      options.projection_size = 16;
      const ValueId h =
          p.StackOfIds(p.program.AddIds("ids", tokens, 0, kVocabulary), options, "state");
      p.Pick("next", p.Shift(h, "last"), tokens, kVocabulary, kCandidates);
      ProgramRig rig(1, backend_options);
      rig.compile.dtype = dtype;
      rig.Prepare(p.program);
      rig.MakeArena();
      Call call(p.program, {{1, 1}, {}}, 1);
      rig.GiveSlots(call, {tokens});
      launches[layers / 6 - 1] = Launches(rig, call);
    }
    // A layer: the projection, the product, the scan.
    EXPECT_EQ(launches[1] - launches[0], 6 * 3) << static_cast<int>(dtype);
    // The states, the row before and the new one; the rows, the logits and the candidates.
    EXPECT_LE(launches[1], 12 * 3 + 7);
  }
}

// Two of its layers: the products are those of all twelve.
TEST(CudaProgramTest, APaperSizedLanguageModelWritesTheSameTokensAloneAndInABatch) {
  constexpr int kSessions = 16;
  ::sru::testing::LanguageModelSizes sizes;
  sizes.layers = 2;
  const RandomLanguageModel model(sizes);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    ProgramRig rig;
    rig.compile.dtype = dtype;
    rig.Prepare(model.program, {{kSessions, kSessions}, {0, 0}, {kSessions, kSessions}});
    rig.MakeArena();
    std::vector<Candidate> expected;
    for (const int sessions : {kSessions, 8, 1}) {
      std::vector<StateArena::Slot> slots;
      for (int i = 0; i < sessions; ++i) slots.push_back(rig.Slot());
      std::vector<Candidate> written;
      std::vector<int32_t> ids(sessions);
      for (int i = 0; i < sessions; ++i) ids[i] = 10 * i;
      for (int step = 0; step < 3; ++step) {
        Call call(model.program, {std::vector<int>(sessions, 1), {}, {}}, 1);
        call.slots[model.tokens] = slots;
        call.data.ids[RandomLanguageModel::kIds] = ids;
        call.data.sampling[RandomLanguageModel::kSampling].assign(sessions, Sampling());
        ASSERT_TRUE(rig.Run(call).ok());
        const std::vector<Candidate>& picked = call.candidates[RandomLanguageModel::kPicked];
        written.push_back(picked[0]);
        for (int i = 0; i < sessions; ++i) ids[i] = picked[i].id;
      }
      if (expected.empty()) expected = written;
      for (size_t step = 0; step < written.size(); ++step) {
        EXPECT_EQ(Pair(written[step]), Pair(expected[step])) << sessions << " at step " << step;
      }
    }
    EXPECT_NE(expected[0].log_prob, expected[2].log_prob);
  }
}

}  // namespace
}  // namespace sru::kernels::cuda
