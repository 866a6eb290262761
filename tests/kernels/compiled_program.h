// What the tests of programs share: a program compiled by the backend under test
// (tested_backend.h), runs with poison around everything that they read and write, and comparisons
// with the reference backend.
#ifndef SRU_TESTS_KERNELS_COMPILED_PROGRAM_H_
#define SRU_TESTS_KERNELS_COMPILED_PROGRAM_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/program.h"
#include "kernels/testing/guarded.h"
#include "kernels/testing/random_program.h"
#include "tests/kernels/status_matchers.h"
#include "tests/testing/tested_backend.h"

namespace sru::kernels {

using ::sru::testing::Guarded;
using ::sru::testing::HasCandidates;
using ::sru::testing::Piece;
using ::sru::testing::ProgramData;
using ::sru::testing::RandomData;
using ::sru::testing::RandomProgram;
using ::sru::testing::SliceOf;
using ::sru::testing::Slots;
using ::sru::testing::StackOptions;
using ::sru::testing::TestedBackend;
using Slot = StateArena::Slot;
using Lengths = std::vector<std::vector<int>>;  // [axis][sequence]

// Whether kernels run thread by thread on the host, which takes a hundred times as long: fewer
// widths and shorter sequences do.
inline bool IsEmulated() { return TestedBackend::FromEnvironment().name == "cuda_host"; }

// The tolerances are relative to the larger of 1 and the largest value of an output, whose values
// are sums of up to a few hundred terms of about 1. Against float64 in float32:
inline constexpr double kTolerance = 1e-5;
// In bfloat16 the reference rounds the same weights and rows. An operation that gets the same rows
// to the bit rounds them alike, so that its sums alone differ:
inline constexpr double kSameRowsTolerance = 1e-5;
// After other operations a value that is almost halfway may be rounded the other way, by 2^-8 of
// it, and reaches the result weakened by a row of weights.
inline constexpr double kBFloat16Tolerance = 2e-2;
// In int8 the reference rounds the same weights, and rows are taken in fixed point, which is off by
// 1 / 65024 of a row's largest value: with one of 4, and weights whose magnitudes add up to 8, by
// 5e-4.
inline constexpr double kInt8Tolerance = 5e-4;
// The CUDA backend's stacks fold another factor into the gates' weights before they round them, and
// take the hardware's tanh (backend_test.cc).
inline constexpr double kCudaBFloat16Tolerance = 5e-2;

// What a program is made of, for its tolerance.
enum class Rounding {
  kNone,      // float32 in every data type
  kSameRows,  // products of inputs
  kChained,   // products of what other products have made, or a stack
};

inline double Tolerance(Rounding rounding) {
  const TestedBackend tested = TestedBackend::FromEnvironment();
  if (tested.dtype == DataType::kFloat32 || rounding == Rounding::kNone) return kTolerance;
  if (tested.dtype == DataType::kInt8) return kInt8Tolerance;
  if (rounding == Rounding::kSameRows) return kSameRowsTolerance;
  return tested.is_cuda() ? kCudaBFloat16Tolerance : kBFloat16Tolerance;
}

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr int32_t kBadId = std::numeric_limits<int32_t>::max();
inline constexpr Candidate kNoCandidate = {-77, -12345.0f};
inline constexpr Sampling kBadSampling = {kNaN, -1, kNaN, kNaN, ~uint64_t{0}};
inline constexpr Adjustment kBadAdjustment = {kBadId, kNaN, kNaN};

// What a run has written, [output].
struct Results {
  std::vector<std::vector<float>> values;
  std::vector<std::vector<Candidate>> candidates;
  std::vector<std::vector<int>> keys;  // of kAttention: the values of a row, [sequence]
};

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline bool SameBits(const std::vector<Candidate>& a, const std::vector<Candidate>& b) {
  static_assert(sizeof(Candidate) == sizeof(int32_t) + sizeof(float));  // no padding
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Candidate)) == 0);
}

inline constexpr uint64_t kEverything = ~uint64_t{0};

// The keys that each sequence of an Attend's axis sees or may see in a batch that has not run yet.
inline std::vector<int> KeysOf(const Program& program, const ProgramShape& shape,
                               const ProgramData& data, const Slots& slots, const StateArena* arena,
                               ValueId attend) {
  const auto& op = std::get<ops::Attend>(program.operations[attend]);
  const AxisId axis = shape.values[attend].axis;
  std::vector<int> keys;
  for (int b = 0; b < data.num_sequences(program, axis); ++b) {
    if (op.key_field == kNone) {
      const std::vector<int32_t> offsets = data.Offsets(program, shape.values[op.keys].axis);
      const int sequence = op.map == kNone ? b : data.ids[op.map][b];
      keys.push_back(offsets[sequence + 1] - offsets[sequence]);
      continue;
    }
    StateArena::State state;
    const bool has_state = static_cast<size_t>(axis) < slots.size() &&
                           static_cast<size_t>(b) < slots[axis].size() && arena != nullptr &&
                           arena->Take(slots[axis][b], &state).ok();
    keys.push_back(has_state ? state.rows[op.key_field] : 0);
    if (shape.field_axes[op.key_field] == axis) keys.back() += data.lengths[axis][b];
  }
  return keys;
}

// A batch in memory of its own, with poison around every input and output.
class GuardedRun {
 public:
  // `slots` is [axis][sequence]; empty ones are null. Bit i of `wanted` asks for output i.
  GuardedRun(const Program& program, const ProgramShape& shape, const ProgramData& data,
             const Slots& slots, StateArena* arena, uint64_t wanted)
      : program_(program), slots_(slots) {
    slots_.resize(program.axes.size());
    for (size_t a = 0; a < program.axes.size(); ++a) {
      const auto axis = static_cast<AxisId>(a);
      AxisBatch given;
      if (program.axes[a].sequences_of == kNone) {
        given.num_sequences = data.num_sequences(program, axis);
        offsets_.emplace_back(data.Offsets(program, axis), kBadId);
        given.offsets = offsets_.back().data();
        if (!slots_[a].empty()) given.slots = slots_[a].data();
      }
      axes_.push_back(given);
    }
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      InputBatch given;
      ids_.emplace_back(data.ids[i], kBadId);
      features_.emplace_back(data.features[i], kNaN);
      sampling_.emplace_back(data.sampling[i], kBadSampling);
      adjustments_.emplace_back(data.adjustments[i], kBadAdjustment);
      if (!data.ids[i].empty()) given.ids = ids_.back().data();
      if (!data.features[i].empty()) given.values = features_.back().data();
      if (!data.sampling[i].empty()) given.sampling = sampling_.back().data();
      if (!data.adjustments[i].empty()) given.adjustments = adjustments_.back().data();
      inputs_.push_back(given);
    }
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const OutputSpec& output = program.outputs[i];
      const bool candidates = HasCandidates(output);
      size_t size = OutputSize(program, shape, data, output);
      keys_.emplace_back();
      if (output.type == OutputType::kAttention) {
        keys_.back() = KeysOf(program, shape, data, slots, arena, output.value);
        const std::vector<int32_t> offsets = data.Offsets(program, shape.values[output.value].axis);
        size = 0;
        for (size_t b = 0; b < keys_.back().size(); ++b) {
          size += static_cast<size_t>(keys_.back()[b]) * (offsets[b + 1] - offsets[b]);
        }
      }
      values_.emplace_back(candidates ? 0 : size, kNaN);
      candidates_.emplace_back(candidates ? size : 0, kNoCandidate);
      OutputBatch given;
      if ((wanted >> i & 1) != 0) {
        if (candidates) given.candidates = candidates_.back().data();
        if (!candidates) given.values = values_.back().data();
      }
      outputs_.push_back(given);
    }
    batch_.axes = axes_.data();
    batch_.inputs = inputs_.data();
    batch_.arena = arena;
  }

  Status On(const ProgramExecutable& executable, ProgramWorkspace& workspace) {
    return executable.Run(batch_, outputs_.data(), workspace);
  }

  Results results() const {
    Results results;
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      EXPECT_TRUE(values_[i].IsIntact()) << "output " << i << " was written past its ends";
      EXPECT_TRUE(candidates_[i].IsIntact()) << "output " << i << " was written past its ends";
      results.values.push_back(values_[i].values());
      results.candidates.push_back(candidates_[i].values());
    }
    results.keys = keys_;
    return results;
  }

  ProgramBatch& batch() { return batch_; }
  std::vector<AxisBatch>& axes() { return axes_; }
  std::vector<InputBatch>& inputs() { return inputs_; }
  std::vector<OutputBatch>& outputs() { return outputs_; }

 private:
  const Program& program_;
  Slots slots_;
  std::vector<Guarded<int32_t>> offsets_, ids_;
  std::vector<Guarded<float>> features_, values_;
  std::vector<Guarded<Sampling>> sampling_;
  std::vector<Guarded<Adjustment>> adjustments_;
  std::vector<Guarded<Candidate>> candidates_;
  std::vector<std::vector<int>> keys_;
  std::vector<AxisBatch> axes_;
  std::vector<InputBatch> inputs_;
  std::vector<OutputBatch> outputs_;
  ProgramBatch batch_;
};

inline constexpr AxisLimits kWideLimits = {4096, 512};
inline constexpr int64_t kWideAttention = int64_t{1} << 20;

// A program on a backend, with one workspace and one arena.
class Compiled {
 public:
  Compiled(std::unique_ptr<Backend> backend, DataType dtype, const Program& program,
           WeightSource* weights = nullptr)
      : program_(program), backend_(std::move(backend)) {
    EXPECT_THAT(Validate(program, &shape_), IsOk());
    CompileOptions options;
    options.dtype = dtype;
    options.weights = weights;
    EXPECT_THAT(backend_->Compile(program, options, &executable_), IsOk());
    ProgramLimits limits;
    limits.axes.assign(program.axes.size(), kWideLimits);
    limits.max_attention_values = kWideAttention;
    MakeWorkspace(limits);
    ArenaOptions arena_options;
    arena_options.budget_bytes = size_t{64} << 20;
    EXPECT_THAT(executable_->CreateArena(arena_options, &arena_), IsOk());
  }

  // In place of the workspace that there is.
  void MakeWorkspace(const ProgramLimits& limits) {
    EXPECT_THAT(executable_->CreateWorkspace(limits, &workspace_), IsOk());
  }

  Status TryRun(const ProgramData& data, const Slots& slots = {}, Results* results = nullptr,
                uint64_t wanted = kEverything) {
    GuardedRun run(program_, shape_, data, slots, arena_.get(), wanted);
    const Status status = run.On(*executable_, *workspace_);
    if (results != nullptr) *results = run.results();
    return status;
  }

  Results Run(const ProgramData& data, const Slots& slots = {}, uint64_t wanted = kEverything) {
    Results results;
    EXPECT_THAT(TryRun(data, slots, &results, wanted), IsOk());
    return results;
  }

  Slot NewSlot() {
    Slot slot = StateArena::kNoSlot;
    EXPECT_THAT(arena_->Allocate(&slot), IsOk());
    return slot;
  }

  // For every sequence of the axes that have fields.
  Slots NewSlots(const ProgramData& data) {
    Slots slots(program_.axes.size());
    for (AxisId axis : std::set<AxisId>(shape_.field_axes.begin(), shape_.field_axes.end())) {
      for (size_t b = 0; b < data.lengths[axis].size(); ++b) slots[axis].push_back(NewSlot());
    }
    return slots;
  }

  StateArena::State Take(Slot slot) {
    StateArena::State state;
    EXPECT_THAT(arena_->Take(slot, &state), IsOk());
    return state;
  }

  void Free(const Slots& slots) {
    for (const std::vector<Slot>& of_axis : slots) {
      for (Slot slot : of_axis) arena_->Free(slot);
    }
  }

  const Program& program() const { return program_; }
  const ProgramShape& shape() const { return shape_; }
  StateArena& arena() { return *arena_; }
  Backend& backend() { return *backend_; }
  ProgramExecutable& executable() { return *executable_; }
  ProgramWorkspace& workspace() { return *workspace_; }

 private:
  const Program program_;
  ProgramShape shape_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProgramExecutable> executable_;
  std::unique_ptr<ProgramWorkspace> workspace_;
  std::unique_ptr<StateArena> arena_;
};

inline std::unique_ptr<Backend> MakeBackend(const TestedBackend& tested) {
  std::unique_ptr<Backend> backend;
  EXPECT_THAT(tested.Create(&backend), IsOk());
  return backend;
}

inline Compiled CompileTested(const Program& program, WeightSource* weights = nullptr) {
  const TestedBackend tested = TestedBackend::FromEnvironment();
  return Compiled(MakeBackend(tested), tested.dtype, program, weights);
}

inline Compiled CompileReference(const Program& program, Rounding rounding) {
  TestedBackend tested = TestedBackend::FromEnvironment();
  DataType dtype = tested.dtype;
  if (tested.is_cuda() && rounding == Rounding::kChained) dtype = DataType::kFloat32;
  tested.name = "reference";
  return Compiled(MakeBackend(tested), dtype, program);
}

// Candidates of nearly the same probability may change places: each rank must have the expected
// probability, and none may come twice.
inline void ExpectCandidatesNear(const std::vector<Candidate>& expected,
                                 const std::vector<Candidate>& found, int max_candidates,
                                 double tolerance, const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (size_t first = 0; first < expected.size(); first += max_candidates) {
    std::set<int32_t> ids;
    for (size_t k = first; k < first + max_candidates; ++k) {
      if (expected[k].id == kNoCandidate.id) {
        ASSERT_EQ(found[k].id, kNoCandidate.id) << what << " " << k << " was not asked for";
        ASSERT_EQ(found[k].log_prob, kNoCandidate.log_prob) << what << " " << k;
        continue;
      }
      ASSERT_EQ(expected[k].id == kNone, found[k].id == kNone) << what << " " << k;
      if (expected[k].id == kNone) {
        ASSERT_EQ(expected[k].log_prob, found[k].log_prob) << what << " " << k;
        continue;
      }
      ASSERT_NEAR(expected[k].log_prob, found[k].log_prob,
                  tolerance * std::max(1.0f, std::abs(expected[k].log_prob)))
          << what << " " << k;
      ASSERT_TRUE(ids.insert(found[k].id).second) << what << " " << k << " comes twice";
    }
  }
}

// With the same logits, to their rounding, the same symbols are picked: that a sum is next to the
// border of two symbols is as rare as rounding is small.
inline void ExpectPicksNear(const std::vector<Candidate>& expected,
                            const std::vector<Candidate>& found, double tolerance,
                            const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (size_t k = 0; k < expected.size(); ++k) {
    if (tolerance <= kTolerance) {
      ASSERT_EQ(expected[k].id, found[k].id) << what << " " << k;
    }
    if (expected[k].id != found[k].id) continue;
    ASSERT_NEAR(expected[k].log_prob, found[k].log_prob,
                tolerance * std::max(1.0f, std::abs(expected[k].log_prob)))
        << what << " " << k;
  }
}

inline void ExpectNear(const Program& program, const Results& expected, const Results& found,
                       double tolerance, const std::string& what) {
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::string name = what + ": " + program.outputs[i].name;
    ASSERT_EQ(expected.values[i].size(), found.values[i].size()) << name;
    double scale = 1;
    for (float value : expected.values[i]) {
      if (std::isfinite(value)) scale = std::max(scale, std::abs(double{value}));
    }
    for (size_t k = 0; k < expected.values[i].size(); ++k) {
      if (expected.values[i][k] == found.values[i][k]) continue;  // -infinity too
      ASSERT_NEAR(expected.values[i][k], found.values[i][k], tolerance * scale) << name << " " << k;
    }
    if (program.outputs[i].type == OutputType::kPicked) {
      ExpectPicksNear(expected.candidates[i], found.candidates[i], tolerance, name);
    }
    if (program.outputs[i].type != OutputType::kCandidates) continue;
    const auto& predict = std::get<ops::Predict>(program.operations[program.outputs[i].value]);
    ExpectCandidatesNear(expected.candidates[i], found.candidates[i], predict.max_candidates,
                         tolerance, name);
  }
}

inline void ExpectSameBits(const Program& program, const Results& expected, const Results& found,
                           const std::string& what) {
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    EXPECT_TRUE(SameBits(expected.values[i], found.values[i]))
        << what << ": " << program.outputs[i].name;
    EXPECT_TRUE(SameBits(expected.candidates[i], found.candidates[i]))
        << what << ": " << program.outputs[i].name;
  }
}

// The attention of the rows of `pieces`, each without the keys that come after the last one that it
// sees by the rule of `causal`, which must be zeros: of how many there are depends on the cut into
// runs.
inline std::vector<float> AttentionOf(const Compiled& c, const ProgramData& data,
                                      const Results& results, size_t output,
                                      const std::vector<Piece>& pieces) {
  const ValueId value = c.program().outputs[output].value;
  const auto& op = std::get<ops::Attend>(c.program().operations[value]);
  const std::vector<int32_t> offsets = data.Offsets(c.program(), c.shape().values[value].axis);
  const std::vector<int>& keys = results.keys[output];
  std::vector<float> attention;
  for (const Piece& piece : pieces) {
    size_t first = 0;
    for (int b = 0; b < piece.sequence; ++b) {
      first += static_cast<size_t>(keys[b]) * (offsets[b + 1] - offsets[b]);
    }
    const int length = offsets[piece.sequence + 1] - offsets[piece.sequence];
    const int all = keys[piece.sequence];
    for (int t = piece.begin; t < std::min(piece.end, length); ++t) {
      const float* const row = results.values[output].data() + first + static_cast<size_t>(t) * all;
      const int seen = op.causal ? std::max(0, all - (length - 1 - t)) : all;
      attention.insert(attention.end(), row, row + seen);
      for (int s = seen; s < all; ++s) EXPECT_EQ(row[s], 0.0f) << "row " << t << ", key " << s;
    }
  }
  return attention;
}

// What the rows of one axis, or of the axis of its sequences, have become in a larger batch: the
// concatenated rows of `pieces`.
inline Results RowsOf(const Compiled& c, const ProgramData& data, const Results& results,
                      AxisId axis, const std::vector<Piece>& pieces) {
  const Program& program = c.program();
  Results rows;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    rows.values.emplace_back();
    rows.candidates.emplace_back();
    const AxisId of = c.shape().values[program.outputs[i].value].axis;
    if (data.SequencesOf(program, of) != axis) continue;
    if (program.outputs[i].type == OutputType::kAttention) {
      rows.values.back() = AttentionOf(c, data, results, i, pieces);
      continue;
    }
    const std::vector<int32_t> offsets = data.Offsets(program, of);
    const size_t width = results.values[i].size() / std::max(1, offsets.back());
    const size_t candidates = results.candidates[i].size() / std::max(1, offsets.back());
    for (const Piece& piece : pieces) {
      const size_t begin = offsets[piece.sequence] + (of == axis ? piece.begin : 0);
      const size_t end = of == axis ? offsets[piece.sequence] + piece.end : begin + 1;
      const auto copy = [&](const auto& from, size_t size, auto* to) {
        to->insert(to->end(), from.begin() + static_cast<std::ptrdiff_t>(begin * size),
                   from.begin() + static_cast<std::ptrdiff_t>(end * size));
      };
      copy(results.values[i], width, &rows.values.back());
      copy(results.candidates[i], candidates, &rows.candidates.back());
    }
  }
  return rows;
}

inline Piece Whole(const ProgramData& data, AxisId axis, int sequence) {
  return {sequence, 0, data.lengths[axis][sequence]};
}

// A sequence with all that its maps and rows point to.
inline std::vector<std::vector<Piece>> Alone(const Program& program, const ProgramData& data,
                                             AxisId axis, int sequence) {
  std::vector<std::set<int>> chosen(program.axes.size());
  chosen[axis].insert(sequence);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec& input = program.inputs[i];
    if (input.type != InputType::kMap && input.type != InputType::kRows) continue;
    if (data.SequencesOf(program, input.axis) != axis) continue;
    const AxisId target = data.SequencesOf(program, input.target);
    if (input.type == InputType::kMap) {
      chosen[target].insert(data.ids[i][sequence]);
      continue;
    }
    const std::vector<int32_t> offsets = data.Offsets(program, input.axis);
    const std::vector<int32_t> ends = data.Offsets(program, input.target);
    for (int t = offsets[sequence]; t < offsets[sequence + 1]; ++t) {
      const auto end = std::upper_bound(ends.begin(), ends.end(), data.ids[i][t]);
      chosen[target].insert(static_cast<int>(end - ends.begin()) - 1);
    }
  }
  std::vector<std::vector<Piece>> pieces(program.axes.size());
  for (size_t a = 0; a < chosen.size(); ++a) {
    for (int b : chosen[a]) pieces[a].push_back(Whole(data, static_cast<AxisId>(a), b));
  }
  return pieces;
}

}  // namespace sru::kernels

#endif  // SRU_TESTS_KERNELS_COMPILED_PROGRAM_H_
