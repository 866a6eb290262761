// Programs on the host side of the CUDA backend, on a device that is the host (cuda_host/): graphs
// per bucket, memory and its budget, failing devices, and what the kernels do at sizes that
// program_test does not reach. program_cuda_host checks what the operations compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/program_workspace.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "kernels/testing/random_program.h"
#include "tests/kernels/cuda_host/host_device.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::HostDeviceControl;
using ::sru::testing::HostDeviceOptions;
using ::sru::testing::MakeHostDevice;
using ::sru::testing::ProgramData;
using ::sru::testing::RandomData;
using ::sru::testing::RandomProgram;
using ::sru::testing::StackOptions;
using ::testing::HasSubstr;

constexpr int kVocabulary = 20;
constexpr int kCandidates = 3;

// A language model whose words also remember all words before: a stack with a state, a growing
// field, the row before, log-probabilities and candidates.
class Model : public RandomProgram {
 public:
  Model() : RandomProgram(1) {
    tokens = program.AddAxis("tokens");
    const InputId ids = program.AddIds("ids", tokens, 0, kVocabulary);
    StackOptions options;
    options.input_size = 8;
    options.hidden_size = 8;
    options.directions = 1;
    options.vocabulary_size = kVocabulary;
    const ValueId h = StackOfIds(ids, options, "state");
    // A growing field wants a slot for every sequence, so it is on an axis of its own.
    cached = program.AddAxis("cached");
    const ValueId x = Features("x", cached, 8);
    cache = program.AddField("cache", 8, /*grows=*/true);
    Append(x, cache);
    ops::Attend attend;
    attend.q = x;
    attend.key_field = cache;
    attend.value_field = cache;
    attend.causal = true;
    Output(Attend(attend, 8), "attended");
    Output(h, "h");
    Predict("next", Shift(h, "last"), tokens, kVocabulary, kCandidates);
  }

  AxisId tokens, cached;
  FieldId cache;
};

enum Output { kAttended, kH, kLogProb, kCandidateLists };

// A batch of a program and where its results go.
struct Call {
  Call(const Program& of, std::vector<std::vector<int>> lengths, unsigned seed)
      : program(of), data(RandomData(of, std::move(lengths), seed)) {
    slots.resize(program.axes.size());
    for (size_t a = 0; a < program.axes.size(); ++a) {
      offsets.push_back(data.Offsets(program, static_cast<AxisId>(a)));
    }
    for (const OutputSpec& output : program.outputs) {
      // Wider than any output.
      const size_t rows = 100000;
      values.emplace_back(output.type == OutputType::kCandidates ? 0 : rows);
      candidates.emplace_back(output.type == OutputType::kCandidates ? rows : 0);
    }
    wanted.assign(program.outputs.size(), true);
  }

  Status Run(const ProgramExecutable& executable, ProgramWorkspace& workspace,
             StateArena* arena = nullptr) {
    std::vector<AxisBatch> axes(program.axes.size());
    for (size_t a = 0; a < axes.size(); ++a) {
      axes[a].num_sequences = static_cast<int>(offsets[a].size()) - 1;
      axes[a].offsets = offsets[a].data();
      if (!slots[a].empty()) axes[a].slots = slots[a].data();
    }
    std::vector<InputBatch> inputs(program.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!data.ids[i].empty()) inputs[i].ids = data.ids[i].data();
      if (!data.features[i].empty()) inputs[i].values = data.features[i].data();
    }
    std::vector<OutputBatch> outputs(program.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!wanted[i]) continue;
      if (!values[i].empty()) outputs[i].values = values[i].data();
      if (!candidates[i].empty()) outputs[i].candidates = candidates[i].data();
    }
    ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = arena;
    return executable.Run(batch, outputs.data(), workspace);
  }

  const Program& program;
  ProgramData data;
  std::vector<std::vector<int32_t>> offsets;
  std::vector<std::vector<StateArena::Slot>> slots;  // [axis]; empty = none
  std::vector<std::vector<float>> values;
  std::vector<std::vector<Candidate>> candidates;
  std::vector<bool> wanted;
};

// A backend on host devices, and a program on it. The devices outlive workspaces and arenas.
struct Rig {
  explicit Rig(int num_devices = 1, BackendOptions options = {}) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < num_devices; ++i) {
      controls.push_back(std::make_unique<HostDeviceControl>());
      HostDeviceOptions device;
      device.ordinal = i;
      devices.push_back(MakeHostDevice(device, controls.back().get()));
    }
    backend = MakeCudaBackend(options, std::move(devices));
  }

  // Compiles and makes one workspace per device.
  void Prepare(const Program& program, AxisLimits of_axes = {64, 8}) {
    Status status = backend->Compile(program, CompileOptions(), &executable);
    ASSERT_TRUE(status.ok()) << status.message();
    limits.axes.assign(program.axes.size(), of_axes);
    for (int i = 0; i < executable->num_devices(); ++i) {
      limits.device = i;
      status = executable->CreateWorkspace(limits, &workspaces.emplace_back());
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  void MakeArena(size_t budget_bytes = size_t{1} << 24) {
    ArenaOptions options;
    options.budget_bytes = budget_bytes;
    const Status status = executable->CreateArena(options, &arena);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  StateArena::Slot Slot() {
    StateArena::Slot slot = StateArena::kNoSlot;
    EXPECT_TRUE(arena->Allocate(&slot).ok());
    return slot;
  }
  Status Run(Call& call, size_t workspace = 0) {
    return call.Run(*executable, *workspaces[workspace], arena.get());
  }

  std::vector<std::unique_ptr<HostDeviceControl>> controls;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ProgramExecutable> executable;
  ProgramLimits limits;
  std::vector<std::unique_ptr<ProgramWorkspace>> workspaces;
  std::unique_ptr<StateArena> arena;
};

TEST(CudaProgramTest, RecordsOncePerBucketAndReplaysWithEachBatch) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  // All are in the bucket of 48 rows and 4 sequences.
  std::vector<std::vector<float>> results;
  const std::vector<std::vector<int>> batches = {{10, 20, 5}, {1, 2, 3, 40}, {30, 9, 1, 1}};
  for (size_t i = 0; i < batches.size(); ++i) {
    Call call(model.program, {batches[i]}, static_cast<unsigned>(i));
    // Of which something is asked of as many rows in each batch.
    for (std::vector<int32_t>& ids : call.data.ids) {
      if (&ids != &call.data.ids[0]) std::fill(ids.begin(), ids.end(), 1);
    }
    ASSERT_TRUE(rig.Run(call).ok());
    results.push_back(call.values[kH]);
  }
  // The first batch of a bucket runs without a graph.
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 1);
  EXPECT_EQ(rig.controls[0]->graph_launches, 2);
  EXPECT_EQ(rig.backend->devices()[0].graph_hits, 1);
  EXPECT_EQ(rig.backend->devices()[0].graph_misses, 2);
  EXPECT_NE(results[0], results[1]);

  Call other(model.program, {batches[0]}, 0);
  other.wanted[kLogProb] = other.wanted[kCandidateLists] = false;
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(rig.Run(other).ok());
    EXPECT_EQ(rig.controls[0]->graphs_recorded, 1 + run) << "other outputs";
    EXPECT_EQ(other.values[kH], results[0]);
  }

  ASSERT_NO_FATAL_FAILURE(rig.MakeArena());
  other.slots[model.tokens] = {rig.Slot(), StateArena::kNoSlot, rig.Slot()};
  ASSERT_TRUE(rig.Run(other).ok());
  EXPECT_EQ(other.values[kH], results[0]);
  ASSERT_TRUE(rig.Run(other).ok());
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 3) << "slots";
}

TEST(CudaProgramTest, NothingIsRunForNothing) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  Call empty(model.program, {}, 1);
  EXPECT_TRUE(rig.Run(empty).ok());
  Call unwanted(model.program, {{3, 4}}, 1);
  unwanted.wanted.assign(unwanted.wanted.size(), false);
  EXPECT_TRUE(rig.Run(unwanted).ok());
  EXPECT_EQ(rig.controls[0]->graph_launches, 0);
}

TEST(CudaProgramTest, GraphsAreBoundedAndServingAllocatesNothing) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program, {256, 64}));
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
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program, {64, 2}));
  ASSERT_NO_FATAL_FAILURE(rig.MakeArena());
  const StateArena::Slot slot = rig.Slot();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  struct Step {
    int rows;  // that the slot has
    int graphs;
  };
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
    for (int row = 0; row < 3; ++row) {
      const std::vector<double> expected =
          Attended(state.values, call.data.features[1], row, 1 / std::sqrt(8.0f));
      for (int j = 0; j < 8; ++j) {
        EXPECT_NEAR(call.values[kAttended][8 * row + j], expected[j], 1e-5);
      }
    }
  }
}

TEST(CudaProgramTest, EveryByteOfAWorkspaceIsWrittenBeforeItIsUsed) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  const DeviceInfo info = rig.backend->devices()[0];
  EXPECT_EQ(static_cast<size_t>(rig.controls[0]->bytes_initialized) + kProductWorkspaceBytes,
            info.memory_in_use - info.weight_bytes);
}

TEST(CudaProgramTest, AWorkspaceThatTheBudgetDoesNotHoldIsRefused) {
  const Model model;
  BackendOptions options;
  options.cuda_memory_limit_bytes = size_t{16} << 20;
  Rig rig(1, options);
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  const int64_t in_use = rig.controls[0]->bytes_in_use;
  ProgramLimits limits = rig.limits;
  limits.axes[model.tokens] = {100000, 100};
  std::unique_ptr<ProgramWorkspace> workspace;
  const Status status = rig.executable->CreateWorkspace(limits, &workspace);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("100000 rows and 100 sequences of tokens"));
  EXPECT_EQ(workspace, nullptr);
  EXPECT_LE(rig.controls[0]->bytes_in_use, in_use) << "a table may be given up, and no more taken";
}

TEST(CudaProgramTest, BadDevicesAreRefused) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  for (const int device : {-1, 1}) {
    rig.limits.device = device;
    std::unique_ptr<ProgramWorkspace> workspace;
    Status status = rig.executable->CreateWorkspace(rig.limits, &workspace);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("workspace.device: expected 0 to 0"));
    ArenaOptions options;
    options.device = device;
    status = rig.executable->CreateArena(options, &rig.arena);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("arena.device: expected 0 to 0"));
  }
}

TEST(CudaProgramTest, AnArenasMemoryIsTheDevicesAndCounted) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  const size_t before = rig.backend->devices()[0].memory_in_use;
  ASSERT_NO_FATAL_FAILURE(rig.MakeArena());
  Call call(model.program, {{3}, {20}}, 1);
  call.slots[model.tokens] = {rig.Slot()};
  call.slots[model.cached] = {rig.Slot()};
  ASSERT_TRUE(rig.Run(call).ok());
  const StateArena::Stats stats = rig.arena->stats();
  EXPECT_GT(stats.held_bytes, 0u);
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, before + stats.held_bytes);
  // It may outlive the executable.
  rig.workspaces.clear();
  rig.executable.reset();
  StateArena::State state;
  ASSERT_TRUE(rig.arena->Take(call.slots[model.cached][0], &state).ok());
  ASSERT_EQ(state.rows[model.cache], 20);
  const std::vector<float>& x = call.data.features[1];
  EXPECT_EQ(state.values, x) << "nothing else is in this slot";
  rig.arena.reset();
  EXPECT_LT(rig.backend->devices()[0].memory_in_use, before);
}

TEST(CudaProgramTest, ARunThatTheArenaHasNoRoomForChangesNoSlot) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  ASSERT_NO_FATAL_FAILURE(rig.MakeArena(4096));
  const StateArena::Slot slot = rig.Slot();
  Call small(model.program, {{}, {5}}, 1);
  small.slots[model.cached] = {slot};
  ASSERT_TRUE(rig.Run(small).ok());
  StateArena::State before, after;
  ASSERT_TRUE(rig.arena->Take(slot, &before).ok());
  const int64_t launches = rig.controls[0]->graph_launches;
  Call large(model.program, {{}, {64, 64}}, 2);
  large.data = RandomData(model.program, {{}, {64}}, 2);
  large.offsets[model.cached] = {0, 64};
  large.slots[model.cached] = {slot};
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    ASSERT_TRUE(rig.arena->Take(slot, &before).ok());
    status = rig.Run(large);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_LT(rig.controls[0]->graph_launches - launches, 10);
  ASSERT_TRUE(rig.arena->Take(slot, &after).ok());
  EXPECT_EQ(before.rows, after.rows);
  EXPECT_EQ(before.values, after.values);
}

TEST(CudaProgramTest, ADeviceLostInAnyOperationFailsTheRunAndNoSlotGoesOn) {
  const Model model;
  bool succeeded = false;
  for (int operations = 0; !succeeded; ++operations) {
    SCOPED_TRACE(operations);
    ASSERT_LT(operations, 100);
    Rig rig(2);
    ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
    ASSERT_NO_FATAL_FAILURE(rig.MakeArena());
    Call call(model.program, {{3, 2}, {20}}, 1);
    call.slots[model.tokens] = {rig.Slot(), rig.Slot()};
    call.slots[model.cached] = {rig.Slot()};
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

TEST(CudaProgramTest, ADeviceLostInACopyOfAStateIsNoticed) {
  const Model model;
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(model.program));
  ASSERT_NO_FATAL_FAILURE(rig.MakeArena());
  Call call(model.program, {{3}}, 1);
  call.slots[model.tokens] = {rig.Slot()};
  ASSERT_TRUE(rig.Run(call).ok());
  rig.controls[0]->operations_until_lost = 0;
  StateArena::State state;
  EXPECT_EQ(rig.arena->Take(call.slots[model.tokens][0], &state).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(rig.backend->devices()[0].lost);
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
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(predictor.program, {16, 1}));
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
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const int size : {1, 2, 31, 255, 256, 257, 3000}) {
    std::vector<float> bias(size);
    for (float& value : bias) value = normal(random);
    for (const int count : {1, 2, 128, 256, 257, size}) {
      if (count <= size) ExpectBestOf(bias, count);
    }
  }
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
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(predictor.program, {kRows, 1}));
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
      EXPECT_EQ(found.id, expected.id);
      EXPECT_EQ(found.log_prob, expected.log_prob);
    }
  }
}

}  // namespace
}  // namespace sru::kernels::cuda
