// What every backend checks of a program's limits and batches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/program_executable.h"

namespace sru::kernels {

namespace {

bool HasSlot(const AxisBatch& axis) {
  if (axis.slots == nullptr) return false;
  return std::any_of(axis.slots, axis.slots + axis.num_sequences,
                     [](StateArena::Slot slot) { return slot != StateArena::kNoSlot; });
}

// That output `index`, which is of type kAttention, is within the limits.
Status CheckAttentionSize(const Program& program, const ProgramShape& shape,
                          const ProgramLimits& limits, const ProgramBatch& batch, size_t index,
                          const StateArena::Run* run) {
  const OutputSpec& output = program.outputs[index];
  const int64_t values = CountAttention(program, shape, batch, output.value, run);
  if (values <= limits.max_attention_values) return OkStatus();
  return InvalidArgument(ItemName("outputs", index, output.name), ": expected at most ",
                         limits.max_attention_values,
                         " values of attention (limits.max_attention_values), found ", values);
}

class BatchValidator : public OperationVisitor {
 public:
  BatchValidator(const Program& program, const ProgramShape& shape, const ProgramLimits& limits,
                 const ProgramBatch& batch, const OutputBatch* outputs)
      : program_(program), shape_(shape), limits_(limits), batch_(batch), outputs_(outputs) {}

  Status Run() {
    for (size_t i = 0; i < program_.axes.size(); ++i) {
      SRU_RETURN_IF_ERROR(CheckAxis(static_cast<AxisId>(i)));
    }
    SRU_RETURN_IF_ERROR(CheckSlots());
    SRU_RETURN_IF_ERROR(CheckOutputs());
    users_ = BatchUsers(program_, batch_, outputs_);
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      if ((shape_.users[i] & users_) == 0) continue;
      operation_ = static_cast<ValueId>(i);
      needs_inputs_ = true;
      VisitOperation(program_, operation_, *this);
      SRU_RETURN_IF_ERROR(status_);
    }
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      SRU_RETURN_IF_ERROR(CheckInput(static_cast<InputId>(i)));
    }
    return CheckAttention();
  }

  // What an operation that runs needs beside the values of others.
  void Input(const char* /*name*/, InputId id, const InputRule& rule) {
    if (!needs_inputs_ || !status_.ok()) return;
    if (rule.type == InputType::kAdjustments) status_ = CheckAdjusted(id);
    if (status_.ok()) status_ = CheckPresent(id);
    if (status_.ok() && rule.ascending) status_ = CheckAscending(id);
  }
  void Field(const char* /*name*/, FieldId id, const FieldRule& rule) {
    // Once for an axis: many operations of a decoder use growing fields, in batches of many
    // sequences.
    const AxisId axis = shape_.values[operation_].axis;
    if (!rule.grows || axis == every_slot_checked_ || !status_.ok()) return;
    status_ = CheckEverySlot(id);
    every_slot_checked_ = axis;
  }
  void Result(OutputType type, bool /*is_there*/) {
    needs_inputs_ = false;
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const OutputSpec& output = program_.outputs[i];
      if (output.value != operation_ || output.type != type) continue;
      if ((users_ >> i & 1) != 0) needs_inputs_ = true;
    }
  }

 private:
  AxisId SequencesOf(AxisId axis) const {
    const AxisId of = program_.axes[axis].sequences_of;
    return of == kNone ? axis : of;
  }
  int num_sequences(AxisId axis) const { return batch_.axes[SequencesOf(axis)].num_sequences; }
  int num_rows(AxisId axis) const {
    return program_.axes[axis].sequences_of == kNone ? batch_.axes[axis].num_rows()
                                                     : num_sequences(axis);
  }

  std::string AxisName(AxisId axis) const {
    return ItemName("axes", axis, program_.axes[axis].name);
  }

  Status CheckAxis(AxisId i) const {
    if (program_.axes[i].sequences_of != kNone) return OkStatus();
    const AxisBatch& axis = batch_.axes[i];
    const AxisLimits& limits = limits_.axes[i];
    if (axis.num_sequences < 0 || axis.num_sequences > limits.max_sequences) {
      return InvalidArgument(AxisName(i), ": expected at most ", limits.max_sequences,
                             " sequences, found ", axis.num_sequences);
    }
    if (axis.num_sequences == 0) return OkStatus();
    if (axis.offsets == nullptr) {
      return InvalidArgument(AxisName(i), ": offsets: expected ", axis.num_sequences + 1,
                             ", found none");
    }
    if (axis.offsets[0] != 0) {
      return InvalidArgument(AxisName(i), ": offsets[0]: expected 0, found ", axis.offsets[0]);
    }
    for (int b = 0; b < axis.num_sequences; ++b) {
      if (axis.offsets[b + 1] < axis.offsets[b]) {
        return InvalidArgument(AxisName(i), ": offsets[", b + 1, "]: expected at least ",
                               axis.offsets[b], ", found ", axis.offsets[b + 1]);
      }
    }
    if (axis.num_rows() > limits.max_rows) {
      return InvalidArgument(AxisName(i), ": expected at most ", limits.max_rows, " rows, found ",
                             axis.num_rows());
    }
    return OkStatus();
  }

  Status CheckSlots() const {
    // Slot, axis and sequence.
    std::vector<std::pair<StateArena::Slot, std::pair<AxisId, int>>> slots;
    for (size_t i = 0; i < program_.axes.size(); ++i) {
      if (program_.axes[i].sequences_of != kNone || batch_.axes[i].slots == nullptr) continue;
      for (int b = 0; b < batch_.axes[i].num_sequences; ++b) {
        const StateArena::Slot slot = batch_.axes[i].slots[b];
        if (slot == StateArena::kNoSlot) continue;
        if (slot < 0) {
          return InvalidArgument(SlotName(static_cast<AxisId>(i), b),
                                 ": expected a slot or kNoSlot, found ", slot);
        }
        slots.push_back({slot, {static_cast<AxisId>(i), b}});
      }
    }
    if (slots.empty()) return OkStatus();
    if (batch_.arena == nullptr) {
      return InvalidArgument("arena: expected one, since ",
                             SlotName(slots[0].second.first, slots[0].second.second),
                             " is set, found none");
    }
    if (batch_.arena->device() != limits_.device) {
      return InvalidArgument("arena: expected one of device ", limits_.device,
                             ", found one of device ", batch_.arena->device());
    }
    std::sort(slots.begin(), slots.end());
    for (size_t i = 1; i < slots.size(); ++i) {
      if (slots[i].first != slots[i - 1].first) continue;
      const auto [axis, sequence] = slots[i].second;
      const auto [other_axis, other] = slots[i - 1].second;
      return InvalidArgument(SlotName(axis, sequence), ": expected a slot of its own, found ",
                             slots[i].first, ", which is that of ", SlotName(other_axis, other));
    }
    return OkStatus();
  }

  std::string SlotName(AxisId axis, int sequence) const {
    return AxisName(axis) + ": slots[" + std::to_string(sequence) + "]";
  }

  Status CheckOutputs() const {
    for (size_t i = 0; outputs_ != nullptr && i < program_.outputs.size(); ++i) {
      const bool candidates = program_.outputs[i].type == OutputType::kCandidates ||
                              program_.outputs[i].type == OutputType::kPicked;
      if (candidates ? outputs_[i].values == nullptr : outputs_[i].candidates == nullptr) continue;
      return InvalidArgument(ItemName("outputs", i, program_.outputs[i].name), ": expected ",
                             candidates ? "candidates, found values" : "values, found candidates");
    }
    return OkStatus();
  }

  // Of keys that are not in fields; BeginStates() looks at those that are. Maps are valid.
  Status CheckAttention() const {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (program_.outputs[i].type != OutputType::kAttention || (users_ >> i & 1) == 0) continue;
      const auto& attend = std::get<ops::Attend>(program_.operations[program_.outputs[i].value]);
      if (attend.key_field != kNone) continue;
      SRU_RETURN_IF_ERROR(CheckAttentionSize(program_, shape_, limits_, batch_, i, nullptr));
    }
    return OkStatus();
  }

  // That the input is given where its axis is not empty.
  Status CheckPresent(InputId id) const {
    if (input(id) != nullptr || input_size(id) == 0) return OkStatus();
    const InputType type = program_.inputs[id].type;
    const bool ids = type == InputType::kIds || type == InputType::kMap || type == InputType::kRows;
    return InvalidArgument(InputName(id), ": expected ", input_size(id), ids ? " ids" : " rows",
                           ", since ", OperationText(), " runs, found none");
  }

  // That there are adjustments for each row of the operation, or none at all.
  Status CheckAdjusted(InputId id) const {
    const AxisId axis = program_.inputs[id].axis;
    const int rows = num_rows(shape_.values[operation_].axis);
    if (num_sequences(axis) != 0 && num_sequences(axis) != rows) {
      return InvalidArgument(AxisName(axis), ": expected ", rows,
                             " sequences, one for each row of ", OperationText(),
                             ", or none, found ", num_sequences(axis));
    }
    return OkStatus();
  }

  // Checks that each sequence of an input has ids, in ascending order.
  Status CheckAscending(InputId id) const {
    const AxisId axis = program_.inputs[id].axis;
    const int32_t* const ids = batch_.inputs[id].ids;
    const bool of_sequences = program_.axes[axis].sequences_of != kNone;
    for (int b = 0; b < num_sequences(axis) && !of_sequences; ++b) {
      const int32_t* const offsets = batch_.axes[axis].offsets;
      if (offsets[b] == offsets[b + 1]) {
        return InvalidArgument(AxisName(axis), ": expected an id or more in sequence ", b,
                               ", since ", OperationText(), " runs, found none");
      }
      for (int t = offsets[b] + 1; t < offsets[b + 1]; ++t) {
        if (ids[t] > ids[t - 1]) continue;
        return InvalidArgument(InputName(id), "[", t,
                               "]: expected more than that before it in sequence ", b, ", ",
                               ids[t - 1], ", found ", ids[t]);
      }
    }
    return OkStatus();
  }

  // That every sequence has a slot, since the operation uses the field, which grows.
  Status CheckEverySlot(FieldId field) const {
    const AxisId axis = shape_.values[operation_].axis;
    const AxisBatch& given = batch_.axes[axis];
    for (int b = 0; b < given.num_sequences; ++b) {
      if (given.slots != nullptr && given.slots[b] != StateArena::kNoSlot) continue;
      return InvalidArgument(SlotName(axis, b), ": expected a slot, since ", OperationText(),
                             " uses ", ItemName("fields", field, program_.fields[field].name),
                             ", which grows, found none");
    }
    return OkStatus();
  }

  std::string OperationText() const {
    return ItemName("operations", operation_, OperationName(program_.operations[operation_]));
  }
  std::string InputName(InputId id) const {
    return ItemName("inputs", id, program_.inputs[id].name);
  }

  // Null where it is not given.
  const void* input(InputId id) const {
    return batch_.inputs == nullptr ? nullptr : batch_.inputs[id].Data(program_.inputs[id].type);
  }
  // Rows, or entries of a map.
  int input_size(InputId id) const {
    const InputSpec& spec = program_.inputs[id];
    return RowOf(spec.type).of_sequences ? num_sequences(spec.axis) : num_rows(spec.axis);
  }

  Status CheckInput(InputId id) const {
    if (input(id) == nullptr) return OkStatus();
    const InputSpec& spec = program_.inputs[id];
    switch (spec.type) {
      case InputType::kFeatures:
        return OkStatus();
      case InputType::kIds:
        return CheckIds(id, spec.least, spec.limit);
      case InputType::kMap:
        return CheckIds(id, 0, num_sequences(spec.target));
      case InputType::kRows:
        return CheckIds(id, 0, num_rows(spec.target));
      case InputType::kSampling:
        return CheckSampling(id);
      case InputType::kAdjustments:
        return CheckAdjustments(id);
    }
    return OkStatus();
  }

  // Of a member of one value of an input.
  template <typename Found>
  Status MemberError(InputId id, int row, const char* member, const std::string& expected,
                     const Found& found) const {
    return InvalidArgument(InputName(id), "[", row, "].", member, ": expected ", expected,
                           ", found ", found);
  }

  Status CheckSampling(InputId id) const {
    const Sampling* const sampling = batch_.inputs[id].sampling;
    for (int t = 0; t < input_size(id); ++t) {
      const Sampling& s = sampling[t];
      if (!(std::isfinite(s.temperature) && s.temperature >= 0)) {
        return MemberError(id, t, "temperature", "a number that is not negative", s.temperature);
      }
      if (s.temperature == 0) continue;
      if (s.top_k < 0) {
        return MemberError(id, t, "top_k", "at least 0", s.top_k);
      }
      for (const auto& [member, value] :
           {std::pair{"top_p", s.top_p}, std::pair{"min_p", s.min_p}}) {
        if (value >= 0 && value <= 1) continue;
        return MemberError(id, t, member, "0 to 1", value);
      }
    }
    return OkStatus();
  }

  Status CheckAdjustments(InputId id) const {
    const AxisBatch& axis = batch_.axes[program_.inputs[id].axis];
    const Adjustment* const adjustments = batch_.inputs[id].adjustments;
    const int limit = program_.inputs[id].limit;
    for (int b = 0; b < axis.num_sequences; ++b) {
      int least = 0;
      for (int t = axis.offsets[b]; t < axis.offsets[b + 1]; ++t) {
        const Adjustment& a = adjustments[t];
        if (a.id < 0 || a.id >= limit) {
          return MemberError(id, t, "id", "0 to " + std::to_string(limit - 1), a.id);
        }
        if (a.id < least) {
          return MemberError(id, t, "id",
                             "more than that before it in sequence " + std::to_string(b) + ", " +
                                 std::to_string(least - 1),
                             a.id);
        }
        if (!(std::isfinite(a.scale) && a.scale > 0)) {
          return MemberError(id, t, "scale", "a positive number", a.scale);
        }
        if (!(std::isfinite(a.add) || a.add == -std::numeric_limits<float>::infinity())) {
          return MemberError(id, t, "add", "a number or -infinity", a.add);
        }
        least = a.id + 1;
      }
    }
    return OkStatus();
  }

  // That each id is in [least, limit).
  Status CheckIds(InputId id, int least, int limit) const {
    const int32_t* const ids = batch_.inputs[id].ids;
    const int size = input_size(id);
    for (int i = 0; i < size; ++i) {
      if (ids[i] >= least && ids[i] < limit) continue;
      const InputSpec& spec = program_.inputs[id];
      std::string expected = std::to_string(least) + " to " + std::to_string(limit - 1);
      if (spec.type != InputType::kIds) {
        expected = "one of the " + std::to_string(limit) +
                   (spec.type == InputType::kMap ? " sequences" : " rows") + " of " +
                   AxisName(spec.target);
      }
      return InvalidArgument(InputName(id), "[", i, "]: expected ", expected, ", found ", ids[i]);
    }
    return OkStatus();
  }

  const Program& program_;
  const ProgramShape& shape_;
  const ProgramLimits& limits_;
  const ProgramBatch& batch_;
  const OutputBatch* const outputs_;
  AxisId every_slot_checked_ = kNone;
  uint64_t users_ = 0;
  ValueId operation_ = kNone;  // that is being checked
  bool needs_inputs_ = false;  // those that its list names next
  Status status_;              // of the operations: the first error
};

}  // namespace

Status ValidateLimits(const Program& program, const ProgramLimits& limits) {
  if (limits.axes.size() != program.axes.size()) {
    return InvalidArgument("limits.axes: expected ", program.axes.size(), ", found ",
                           limits.axes.size());
  }
  for (size_t i = 0; i < program.axes.size(); ++i) {
    if (program.axes[i].sequences_of != kNone) continue;
    for (const auto& [field, value] : {std::pair{"max_rows", limits.axes[i].max_rows},
                                       std::pair{"max_sequences", limits.axes[i].max_sequences}}) {
      if (value >= 0) continue;
      return InvalidArgument("limits.", ItemName("axes", i, program.axes[i].name), ".", field,
                             ": expected at least 0, found ", value);
    }
  }
  if (limits.max_attention_values < 0) {
    return InvalidArgument("limits.max_attention_values: expected at least 0, found ",
                           limits.max_attention_values);
  }
  return OkStatus();
}

uint64_t BatchUsers(const Program& program, const ProgramBatch& batch, const OutputBatch* outputs) {
  uint64_t users = 0;
  for (size_t i = 0; outputs != nullptr && i < program.outputs.size(); ++i) {
    const bool wanted = outputs[i].values != nullptr || outputs[i].candidates != nullptr;
    if (wanted) users |= uint64_t{1} << i;
  }
  for (size_t i = 0; i < program.axes.size(); ++i) {
    if (program.axes[i].sequences_of != kNone || !HasSlot(batch.axes[i])) continue;
    users |= ProgramShape::StateBit(static_cast<AxisId>(i));
  }
  return users;
}

Status ValidateBatch(const Program& program, const ProgramShape& shape, const ProgramLimits& limits,
                     const ProgramBatch& batch, const OutputBatch* outputs) {
  if (batch.axes == nullptr && !program.axes.empty()) {
    return InvalidArgument("axes: expected ", program.axes.size(), ", found none");
  }
  return BatchValidator(program, shape, limits, batch, outputs).Run();
}

int64_t CountAttention(const Program& program, const ProgramShape& shape, const ProgramBatch& batch,
                       ValueId attend, const StateArena::Run* run, int64_t* begins) {
  const auto& op = std::get<ops::Attend>(program.operations[attend]);
  const AxisId axis = shape.values[attend].axis;
  const bool of_sequences = program.axes[axis].sequences_of != kNone;
  const AxisBatch& given = batch.axes[of_sequences ? program.axes[axis].sequences_of : axis];
  // Of a sequence axis each sequence has one row.
  const auto length = [&](AxisId of, int b) {
    if (program.axes[of].sequences_of != kNone) return 1;
    return static_cast<int>(batch.axes[of].offsets[b + 1] - batch.axes[of].offsets[b]);
  };
  int64_t values = 0;
  for (int b = 0; b < given.num_sequences; ++b) {
    if (begins != nullptr) begins[b] = values;
    const int rows = length(axis, b);
    if (rows == 0) continue;
    int keys = 0;
    if (op.key_field != kNone) {
      keys = run->rows(op.key_field, b) + (shape.field_axes[op.key_field] == axis ? rows : 0);
    } else {
      keys = length(shape.values[op.keys].axis, op.map == kNone ? b : batch.inputs[op.map].ids[b]);
    }
    values += int64_t{rows} * keys;
  }
  return values;
}

Status BeginStates(const Program& program, const ProgramShape& shape, const ProgramLimits& limits,
                   const ProgramBatch& batch, const OutputBatch* outputs,
                   std::vector<int>* rows_added, std::vector<StateArena::Run>* runs) {
  const uint64_t users = BatchUsers(program, batch, outputs);
  runs->resize(program.axes.size());
  for (size_t a = 0; a < program.axes.size(); ++a) {
    const AxisId axis = static_cast<AxisId>(a);
    if ((users & ProgramShape::StateBit(axis)) == 0) continue;
    const AxisBatch& given = batch.axes[a];
    rows_added->resize(given.num_sequences);
    for (int b = 0; b < given.num_sequences; ++b) {
      (*rows_added)[b] = given.offsets[b + 1] - given.offsets[b];
    }
    StateArena::Run& run = (*runs)[a];
    SRU_RETURN_IF_ERROR(
        batch.arena->BeginRun(given.slots, rows_added->data(), given.num_sequences, axis, &run));
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const OutputSpec& output = program.outputs[i];
      if (output.type != OutputType::kAttention || (users >> i & 1) == 0) continue;
      const auto& attend = std::get<ops::Attend>(program.operations[output.value]);
      if (attend.key_field == kNone || shape.values[output.value].axis != axis) continue;
      SRU_RETURN_IF_ERROR(CheckAttentionSize(program, shape, limits, batch, i, &run));
    }
  }
  return OkStatus();
}

}  // namespace sru::kernels
