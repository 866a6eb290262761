// Programs with random weights and random ragged batches for them, for tests and benchmarks of
// backends.
#ifndef SRU_KERNELS_TESTING_RANDOM_PROGRAM_H_
#define SRU_KERNELS_TESTING_RANDOM_PROGRAM_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "kernels/testing/random_stack.h"

namespace sru::testing {

// A program that owns what its views point to. Its functions append operations with weights that
// keep values at about 1.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed) {}
  RandomProgram(const RandomProgram&) = delete;
  RandomProgram& operator=(const RandomProgram&) = delete;

  kernels::Program program;

  kernels::FloatView Values(size_t count, float deviation = 1.0f) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return Keep(std::move(values));
  }

  kernels::FloatView Keep(std::vector<float> values) {
    storage_.push_back(std::move(values));
    return {storage_.back().data(), storage_.back().size()};
  }

  // Rounded weights [rows][columns] of about 1 / sqrt(columns), the largest being 4 times that.
  kernels::Int8View Int8Values(int rows, int columns, float activation = 30.0f) {
    std::normal_distribution<float> normal(0.0f, 127.0f / 4);
    std::vector<int8_t>& values = int8_storage_.emplace_back(static_cast<size_t>(rows) * columns);
    for (int8_t& value : values) {
      value = static_cast<int8_t>(std::clamp(std::nearbyint(normal(random_)), -127.0f, 127.0f));
    }
    return {values.data(), values.size(), 127.0f / 4 / Deviation(columns), activation};
  }

  // Overwrites all weights, for a test that nothing reads them any more.
  void PoisonWeights() {
    for (std::vector<float>& values : storage_) {
      values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
    }
    for (std::vector<int8_t>& values : int8_storage_) values.assign(values.size(), -128);
    stacks_.clear();
  }

  // An operation that has what it needs and makes rows of `width` values.
  kernels::ValueId Apply(kernels::Operation operation, int width) {
    widths_.push_back(width);
    return program.Apply(std::move(operation));
  }

  kernels::ValueId Features(const std::string& name, kernels::AxisId axis, int width) {
    return Apply(kernels::ops::Features{program.AddFeatures(name, axis, width)}, width);
  }

  kernels::ValueId Embed(kernels::InputId ids, int vocabulary_size, int width,
                         bool positions = false, kernels::FieldId position_field = kernels::kNone,
                         float scale = 1.0f) {
    kernels::ops::Embed op;
    op.ids = ids;
    op.table = Values(static_cast<size_t>(vocabulary_size) * width);
    op.vocabulary_size = vocabulary_size;
    op.width = width;
    op.scale = scale;
    op.positions =
        positions ? kernels::ops::Positions::kInterleaved : kernels::ops::Positions::kNone;
    op.position_field = position_field;
    return Apply(op, width);
  }

  kernels::ValueId Linear(kernels::ValueId x, int width, bool bias = true, bool relu = false) {
    kernels::ops::Linear op;
    op.x = x;
    op.width = width;
    op.weight = Values(static_cast<size_t>(width) * this->width(x), Deviation(this->width(x)));
    if (bias) op.bias = Values(width, 0.5f);
    op.relu = relu;
    return Apply(op, width);
  }

  // A product with rounded weights. With an activation of 0 each row has its own multiplier.
  kernels::ValueId Int8Linear(kernels::ValueId x, int width, float activation = 30.0f,
                              bool bias = true, bool relu = false) {
    kernels::ops::Linear op;
    op.x = x;
    op.width = width;
    op.int8_weight = Int8Values(width, this->width(x), activation);
    if (bias) op.bias = Values(width, 0.5f);
    op.relu = relu;
    return Apply(op, width);
  }

  // With a state in a new field of this name.
  kernels::ValueId Ssru(kernels::ValueId x, kernels::ValueId forget, const std::string& state) {
    return Apply(kernels::ops::Ssru{x, forget, program.AddField(state, width(x))}, width(x));
  }

  kernels::ValueId Normalize(kernels::ValueId x, float epsilon = kernels::kLayerNormEpsilon) {
    return Apply(kernels::ops::Normalize{x, Values(width(x)), Values(width(x), 0.3f), epsilon},
                 width(x));
  }

  // Of rows, whose width is the stack's input_size; with a state in a new field if it has a name.
  kernels::ValueId Stack(kernels::ValueId x, StackOptions options, const std::string& state = "") {
    options.input_size = width(x);
    options.vocabulary_size = 0;
    return Stack(kernels::kNone, x, options, state);
  }
  // Of token ids, whose limit is the stack's vocabulary.
  kernels::ValueId StackOfIds(kernels::InputId ids, StackOptions options,
                              const std::string& state = "") {
    options.vocabulary_size = program.inputs[ids].limit;
    return Stack(ids, kernels::kNone, options, state);
  }

  // To rows of keys and values on q's axis, or on the axis that `map` names.
  kernels::ValueId Attend(kernels::ValueId q, kernels::ValueId keys, kernels::ValueId values,
                          int heads = 1, bool causal = false,
                          kernels::InputId map = kernels::kNone) {
    kernels::ops::Attend op{q, keys, values};
    op.map = map;
    return Attend(op, heads, causal, width(values));
  }
  // To growing fields.
  kernels::ValueId AttendFields(kernels::ValueId q, kernels::FieldId keys, kernels::FieldId values,
                                int heads = 1, bool causal = false) {
    const kernels::ops::Attend op{q, kernels::kNone, kernels::kNone, keys, values};
    return Attend(op, heads, causal, program.fields[values].width);
  }

  kernels::ValueId Append(kernels::ValueId x, kernels::FieldId field) {
    return Apply(kernels::ops::Append{x, field}, width(x));
  }

  kernels::ValueId Concat(const std::vector<kernels::ValueId>& xs) {
    int sum = 0;
    for (kernels::ValueId x : xs) sum += width(x);
    return Apply(kernels::ops::Concat{xs}, sum);
  }

  kernels::ValueId Add(kernels::ValueId a, kernels::ValueId b) {
    return Apply(kernels::ops::Add{a, b}, width(a));
  }

  // With the last row in a new field.
  kernels::ValueId Shift(kernels::ValueId x, const std::string& field) {
    return Apply(kernels::ops::Shift{x, program.AddField(field, width(x))}, width(x));
  }

  kernels::ValueId Pool(kernels::ValueId x, kernels::AxisId axis, kernels::Pooling pooling,
                        int directions = 1) {
    return Apply(kernels::ops::Pool{x, axis, pooling, directions}, width(x));
  }
  kernels::ValueId WeightedPool(kernels::ValueId x, kernels::AxisId axis,
                                kernels::ValueId weights) {
    return Apply(kernels::ops::Pool{x, axis, kernels::Pooling::kNone, 1, weights}, width(x));
  }

  kernels::ValueId RowDot(kernels::ValueId x, kernels::ValueId v,
                          kernels::InputId map = kernels::kNone) {
    return Apply(kernels::ops::RowDot{x, v, map}, 1);
  }

  // On `axis`, the sequence axis of x's; with the field of a Shift of x, if there is one.
  kernels::ValueId Last(kernels::ValueId x, kernels::AxisId axis,
                        kernels::FieldId field = kernels::kNone) {
    return Apply(kernels::ops::Last{x, axis, field}, width(x));
  }

  kernels::ValueId Select(kernels::ValueId x, kernels::InputId rows) {
    return Apply(kernels::ops::Select{x, rows}, width(x));
  }

  // On x's axis, with the inputs NAME_targets and NAME_counts and the outputs NAME_log_prob and
  // NAME_candidates.
  kernels::ValueId Predict(const std::string& name, kernels::ValueId x, kernels::AxisId axis,
                           int vocabulary_size, int max_candidates, float deviation = 0) {
    kernels::ops::Predict op;
    op.x = x;
    op.vocabulary_size = vocabulary_size;
    op.weight = Values(static_cast<size_t>(vocabulary_size) * width(x),
                       deviation > 0 ? deviation : Deviation(width(x)));
    op.bias = Values(vocabulary_size, 0.5f);
    op.targets = program.AddIds(name + "_targets", axis, -1, vocabulary_size);
    op.counts = program.AddIds(name + "_counts", axis, 0, max_candidates + 1);
    op.max_candidates = max_candidates;
    const kernels::ValueId value = Apply(op, 0);
    program.AddOutput(name + "_log_prob", value, kernels::OutputType::kLogProb);
    program.AddOutput(name + "_candidates", value, kernels::OutputType::kCandidates);
    return value;
  }

  // As Predict(), with NAME_sampling and NAME_adjustments as well, the latter on a new axis of that
  // name, and the output NAME_picked.
  kernels::ValueId Pick(const std::string& name, kernels::ValueId x, kernels::AxisId axis,
                        int vocabulary_size, int max_candidates, float deviation = 0) {
    const kernels::ValueId value =
        Predict(name, x, axis, vocabulary_size, max_candidates, deviation);
    auto& op = this->op<kernels::ops::Predict>(value);
    op.sampling = program.AddSampling(name + "_sampling", axis);
    op.adjustments = program.AddAdjustments(
        name + "_adjustments", program.AddAxis(name + "_adjustments"), vocabulary_size);
    program.AddOutput(name + "_picked", value, kernels::OutputType::kPicked);
    return value;
  }

  // As Predict(), among the choices on an axis, with the inputs NAME_choices and NAME_choices_of.
  kernels::ValueId Choose(const std::string& name, kernels::ValueId x, kernels::AxisId axis,
                          kernels::AxisId choices, int vocabulary_size, int max_candidates,
                          std::vector<int32_t> never = {}) {
    const kernels::ValueId value = Predict(name, x, axis, vocabulary_size, max_candidates);
    auto& op = this->op<kernels::ops::Predict>(value);
    op.choices = program.AddIds(name + "_choices", choices, 0, vocabulary_size);
    op.choices_map = program.AddMap(name + "_choices_of", axis, choices);
    op.never = std::move(never);
    return value;
  }

  // An output of its own for rows.
  int Output(kernels::ValueId value, const std::string& name) {
    return program.AddOutput(name, value);
  }

  // The operation that makes the value.
  template <typename Op>
  Op& op(kernels::ValueId value) {
    return std::get<Op>(program.operations[value]);
  }

  // The field that a Shift keeps its last row in.
  kernels::FieldId LastOf(kernels::ValueId shifted) {
    return op<kernels::ops::Shift>(shifted).last;
  }

  int width(kernels::ValueId value) const { return widths_[value]; }
  std::mt19937& random() { return random_; }

 private:
  static float Deviation(int width) { return 1.0f / std::sqrt(static_cast<float>(width)); }

  kernels::ValueId Attend(kernels::ops::Attend op, int heads, bool causal, int value_width) {
    op.heads = heads;
    op.scale = Deviation(width(op.q) / heads);
    op.causal = causal;
    return Apply(op, value_width);
  }

  kernels::ValueId Stack(kernels::InputId ids, kernels::ValueId x, StackOptions options,
                         const std::string& state) {
    options.pooling = kernels::Pooling::kNone;
    options.num_labels = 0;
    kernels::ops::Stack op{ids, x, stacks_.emplace_back(options, random_()).spec()};
    if (!state.empty()) {
      op.state =
          program.AddField(state, static_cast<int>(op.spec.layers.size()) * op.spec.output_size());
    }
    const int width = op.spec.output_size();
    return Apply(std::move(op), width);
  }

  std::mt19937 random_;
  std::deque<std::vector<float>> storage_;
  std::deque<std::vector<int8_t>> int8_storage_;
  std::deque<RandomStack> stacks_;
  std::vector<int> widths_;  // [operation]
};

// What a batch of a program brings, but for its slots.
struct ProgramData {
  ProgramData() = default;
  // Without a sequence and without values.
  explicit ProgramData(const kernels::Program& program)
      : lengths(program.axes.size()),
        ids(program.inputs.size()),
        features(program.inputs.size()),
        sampling(program.inputs.size()),
        adjustments(program.inputs.size()) {}

  std::vector<std::vector<int>> lengths;     // [axis]: rows of each sequence; none of sequence axes
  std::vector<std::vector<int32_t>> ids;     // [input]
  std::vector<std::vector<float>> features;  // [input]
  std::vector<std::vector<kernels::Sampling>> sampling;       // [input]
  std::vector<std::vector<kernels::Adjustment>> adjustments;  // [input]

  kernels::AxisId SequencesOf(const kernels::Program& program, kernels::AxisId axis) const {
    const kernels::AxisId of = program.axes[axis].sequences_of;
    return of == kernels::kNone ? axis : of;
  }
  int num_sequences(const kernels::Program& program, kernels::AxisId axis) const {
    return static_cast<int>(lengths[SequencesOf(program, axis)].size());
  }
  // [sequences + 1]
  std::vector<int32_t> Offsets(const kernels::Program& program, kernels::AxisId axis) const {
    std::vector<int32_t> offsets = {0};
    for (int b = 0; b < num_sequences(program, axis); ++b) {
      const bool of_sequences = program.axes[axis].sequences_of != kernels::kNone;
      offsets.push_back(offsets.back() + (of_sequences ? 1 : lengths[axis][b]));
    }
    return offsets;
  }
  int num_rows(const kernels::Program& program, kernels::AxisId axis) const {
    return Offsets(program, axis).back();
  }
};

// One of every kind: greedy, and with each member of Sampling or several.
inline kernels::Sampling RandomSampling(std::mt19937& random) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  std::uniform_real_distribution<float> uniform;
  kernels::Sampling sampling;
  if (!one_in(4)) sampling.temperature = 0.2f + 2.0f * uniform(random);
  if (one_in(2)) sampling.top_k = static_cast<int32_t>(1 + random() % 40);
  if (one_in(2)) sampling.top_p = uniform(random);
  if (one_in(3)) sampling.min_p = 0.3f * uniform(random);
  sampling.random = uint64_t{random()} << 32 | random();
  return sampling;
}

// True if a Predict takes its choices from the input.
inline bool HasChoices(const kernels::Program& program, size_t input) {
  return std::any_of(program.operations.begin(), program.operations.end(), [&](const auto& any) {
    const auto* const predict = std::get_if<kernels::ops::Predict>(&any);
    return predict != nullptr && predict->choices == static_cast<kernels::InputId>(input);
  });
}

// Every input, with ids of their whole range. `lengths` is [axis]; a list that is missing is empty.
// Ids of adjustments and choices are as far from each other as their number allows.
inline ProgramData RandomData(const kernels::Program& program,
                              std::vector<std::vector<int>> lengths, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  ProgramData data(program);
  data.lengths = std::move(lengths);
  data.lengths.resize(program.axes.size());
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const kernels::InputSpec& input = program.inputs[i];
    const int rows = data.num_rows(program, input.axis);
    const auto fill = [&](int count, int least, int limit) {
      if (count == 0) return;  // there may be nothing to point to, either
      std::uniform_int_distribution<int32_t> id(least, limit - 1);
      for (int k = 0; k < count; ++k) data.ids[i].push_back(id(random));
    };
    switch (input.type) {
      case kernels::InputType::kIds:
        if (!HasChoices(program, i)) {
          fill(rows, input.least, input.limit);
          break;
        }
        for (int count : data.lengths[input.axis]) {
          for (int64_t k = 0; k < count; ++k) {
            data.ids[i].push_back(static_cast<int32_t>(k * input.limit / count));
          }
        }
        break;
      case kernels::InputType::kFeatures:
        for (int k = 0; k < rows * input.width; ++k) data.features[i].push_back(normal(random));
        break;
      case kernels::InputType::kMap:
        fill(data.num_sequences(program, input.axis), 0, data.num_sequences(program, input.target));
        break;
      case kernels::InputType::kRows:
        fill(rows, 0, data.num_rows(program, input.target));
        break;
      case kernels::InputType::kSampling:
        for (int k = 0; k < rows; ++k) data.sampling[i].push_back(RandomSampling(random));
        break;
      case kernels::InputType::kAdjustments:
        for (int count : data.lengths[input.axis]) {
          for (int k = 0; k < count; ++k) {
            kernels::Adjustment adjustment;
            adjustment.id = static_cast<int32_t>(int64_t{k} * input.limit / count);
            if (random() % 2 == 0) adjustment.scale = 1.3f;
            if (random() % 2 == 0) adjustment.add = normal(random);
            if (random() % 8 == 0) adjustment.add = -std::numeric_limits<float>::infinity();
            data.adjustments[i].push_back(adjustment);
          }
        }
        break;
    }
  }
  return data;
}

using Slots = std::vector<std::vector<kernels::StateArena::Slot>>;  // [axis][sequence]

// What Run() takes of a batch. The data and the slots are borrowed; an axis that has no slots may
// be missing.
class BatchViews {
 public:
  BatchViews(const kernels::Program& program, const ProgramData& data, const Slots& slots = {}) {
    for (size_t a = 0; a < program.axes.size(); ++a) {
      offsets_.push_back(data.Offsets(program, static_cast<kernels::AxisId>(a)));
      const bool has_slots = a < slots.size() && !slots[a].empty();
      axes_.push_back({static_cast<int>(offsets_[a].size()) - 1, offsets_[a].data(),
                       has_slots ? slots[a].data() : nullptr});
    }
    const auto view = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      inputs_.push_back({view(data.ids[i]), view(data.features[i]), view(data.sampling[i]),
                         view(data.adjustments[i])});
    }
  }

  kernels::ProgramBatch batch(kernels::StateArena* arena) const {
    return {axes_.data(), inputs_.data(), arena};
  }

 private:
  std::vector<std::vector<int32_t>> offsets_;
  std::vector<kernels::AxisBatch> axes_;
  std::vector<kernels::InputBatch> inputs_;
};

inline bool HasCandidates(const kernels::OutputSpec& output) {
  return output.type == kernels::OutputType::kCandidates ||
         output.type == kernels::OutputType::kPicked;
}

// How many values or candidates an output has that is no attention.
inline size_t OutputSize(const kernels::Program& program, const kernels::ProgramShape& shape,
                         const ProgramData& data, const kernels::OutputSpec& output) {
  const kernels::ValueSpec& value = shape.values[output.value];
  const size_t rows = data.num_rows(program, value.axis);
  if (output.type == kernels::OutputType::kRows) return rows * value.width;
  if (output.type != kernels::OutputType::kCandidates) return rows;
  return rows * std::get<kernels::ops::Predict>(program.operations[output.value]).max_candidates;
}

// Rows [begin, end) of a sequence.
struct Piece {
  int sequence = 0;
  int begin = 0;
  int end = 0;
};

// A batch of pieces of another one's sequences; `pieces` is [axis], none of sequence axes. What
// maps and rows point to must be among the pieces. Adjustments come along with the rows that they
// are of.
inline ProgramData SliceOf(const kernels::Program& program, const ProgramData& data,
                           std::vector<std::vector<Piece>> pieces) {
  for (const kernels::Operation& operation : program.operations) {
    const auto* const predict = std::get_if<kernels::ops::Predict>(&operation);
    if (predict == nullptr || predict->adjustments == kernels::kNone) continue;
    const kernels::AxisId axis = program.inputs[predict->sampling].axis;
    const kernels::AxisId of = data.SequencesOf(program, axis);
    const kernels::AxisId adjusted = program.inputs[predict->adjustments].axis;
    const std::vector<int32_t> offsets = data.Offsets(program, axis);
    pieces[adjusted].clear();
    if (data.lengths[adjusted].empty()) continue;
    for (const Piece& piece : pieces[of]) {
      const int begin = of == axis ? piece.begin : 0;
      const int end = of == axis ? piece.end : 1;
      for (int t = offsets[piece.sequence] + begin; t < offsets[piece.sequence] + end; ++t) {
        pieces[adjusted].push_back({t, 0, data.lengths[adjusted][t]});
      }
    }
  }
  ProgramData slice(program);
  // [axis]: the rows of the slice, as rows of `data`, and the place of each.
  std::vector<std::vector<int>> rows(program.axes.size());
  std::vector<std::map<int, int>> row_places(program.axes.size());
  std::vector<std::map<int, int>> sequence_places(program.axes.size());
  for (size_t a = 0; a < program.axes.size(); ++a) {
    const auto axis = static_cast<kernels::AxisId>(a);
    const kernels::AxisId of = data.SequencesOf(program, axis);
    const std::vector<int32_t> offsets = data.Offsets(program, axis);
    for (const Piece& piece : pieces[of]) {
      const int place = static_cast<int>(sequence_places[a].size());
      sequence_places[a][piece.sequence] = place;
      if (of == axis) slice.lengths[a].push_back(piece.end - piece.begin);
      const int begin = of == axis ? piece.begin : 0;
      const int end = of == axis ? piece.end : 1;
      for (int t = begin; t < end; ++t) {
        row_places[a][offsets[piece.sequence] + t] = static_cast<int>(rows[a].size());
        rows[a].push_back(offsets[piece.sequence] + t);
      }
    }
  }
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const kernels::InputSpec& input = program.inputs[i];
    switch (input.type) {
      case kernels::InputType::kIds:
        for (int t : rows[input.axis]) slice.ids[i].push_back(data.ids[i][t]);
        break;
      case kernels::InputType::kFeatures:
        for (int t : rows[input.axis]) {
          const float* const row = &data.features[i][static_cast<size_t>(t) * input.width];
          slice.features[i].insert(slice.features[i].end(), row, row + input.width);
        }
        break;
      case kernels::InputType::kMap:
        for (const Piece& piece : pieces[data.SequencesOf(program, input.axis)]) {
          slice.ids[i].push_back(sequence_places[input.target].at(data.ids[i][piece.sequence]));
        }
        break;
      case kernels::InputType::kRows:
        for (int t : rows[input.axis]) {
          slice.ids[i].push_back(row_places[input.target].at(data.ids[i][t]));
        }
        break;
      case kernels::InputType::kSampling:
        for (int t : rows[input.axis]) slice.sampling[i].push_back(data.sampling[i][t]);
        break;
      case kernels::InputType::kAdjustments:
        for (int t : rows[input.axis]) slice.adjustments[i].push_back(data.adjustments[i][t]);
        break;
    }
  }
  return slice;
}

}  // namespace sru::testing

#endif  // SRU_KERNELS_TESTING_RANDOM_PROGRAM_H_
