// Validate(const Program&): whether a program agrees with itself, and what follows for its values.
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/program.h"

namespace sru::kernels {

namespace {

template <typename T>
bool IsIndexOf(const std::vector<T>& list, int index) {
  return index >= 0 && static_cast<size_t>(index) < list.size();
}

// "an axis, 0 to 2" of 3.
std::string OneOf(const std::string& what, size_t size) {
  return what + (size == 0 ? ", of which there is none" : ", 0 to " + std::to_string(size - 1));
}

std::string IdOrNone(int id) { return id == kNone ? "none" : std::to_string(id); }

// Goes over a program from its axes to its outputs and fills in its shape. Of an operation it
// checks each item of the list; the first error counts.
class Validator : public ProgramVisitor {
 public:
  explicit Validator(const Program& program) : ProgramVisitor(program, shape_) {}

  Status Run() {
    SRU_RETURN_IF_ERROR(CheckAxes());
    SRU_RETURN_IF_ERROR(CheckInputs());
    SRU_RETURN_IF_ERROR(CheckFields());
    SRU_RETURN_IF_ERROR(CheckOperations());
    SRU_RETURN_IF_ERROR(CheckReaders());
    return CheckOutputs();
  }

  ProgramShape&& TakeShape() { return std::move(shape_); }

 private:
  // Of what where_ names.
  template <typename Found>
  Status Error(const std::string& field, const std::string& expected, const Found& found) const {
    return InvalidArgument(where_, ": ", field, ": expected ", expected, ", found ", found);
  }

  Status CheckRange(const std::string& field, int64_t value, int64_t low, int64_t high) const {
    if (value >= low && value <= high) return OkStatus();
    const std::string from = std::to_string(low);
    return Error(field, low == high ? from : from + " to " + std::to_string(high), value);
  }

  // A view of rows x columns values; of `columns` with rows = 1.
  template <typename View>
  Status CheckView(const std::string& field, const View& view, int64_t rows,
                   int64_t columns) const {
    const int64_t size = rows * columns;
    if (view.size == static_cast<size_t>(size)) {
      if (view.data != nullptr) return OkStatus();
      return Error(field, std::to_string(size) + " values", "a null pointer");
    }
    const std::string expected =
        rows == 1
            ? std::to_string(size)
            : std::to_string(rows) + " x " + std::to_string(columns) + " = " + std::to_string(size);
    return Error(field, expected + " values", view.size);
  }

  // Sets where_ to the item and checks that it has a name of its own in its list.
  Status Enter(const char* list, size_t index, const std::string& name) {
    where_ = ItemName(list, index, name);
    if (index == 0) names_.clear();
    if (name.empty()) return Error("name", "a name", "none");
    if (!names_.insert(name).second) return Error("name", "a name of its own", "'" + name + "'");
    return OkStatus();
  }

  std::string AxisName(AxisId axis) const {
    return IsIndexOf(program_.axes, axis) ? ItemName("axes", axis, program_.axes[axis].name)
                                          : IdOrNone(axis);
  }

  std::string ValueName(ValueId value) const {
    return ItemName("operations", value, OperationName(program_.operations[value]));
  }

  bool IsSequenceAxis(AxisId axis) const { return program_.axes[axis].sequences_of != kNone; }

  Status CheckAxis(const std::string& field, AxisId axis) const {
    if (IsIndexOf(program_.axes, axis)) return OkStatus();
    return Error(field, OneOf("an axis", program_.axes.size()), IdOrNone(axis));
  }

  Status ExpectAxis(const std::string& field, AxisId expected, AxisId found) const {
    if (expected == found) return OkStatus();
    return Error(field, "the axis " + AxisName(expected), AxisName(found));
  }

  Status CheckAxes() {
    if (program_.axes.size() > kMaxAxes) {
      where_ = "program";
      return Error("axes", "at most " + std::to_string(kMaxAxes), program_.axes.size());
    }
    for (size_t i = 0; i < program_.axes.size(); ++i) {
      const AxisSpec& axis = program_.axes[i];
      SRU_RETURN_IF_ERROR(Enter("axes", i, axis.name));
      if (axis.sequences_of == kNone) continue;
      SRU_RETURN_IF_ERROR(CheckAxis("sequences_of", axis.sequences_of));
      if (IsSequenceAxis(axis.sequences_of)) {
        return Error("sequences_of", "an axis that is not a sequence axis",
                     AxisName(axis.sequences_of));
      }
    }
    return OkStatus();
  }

  Status CheckInputs() {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const InputSpec& input = program_.inputs[i];
      SRU_RETURN_IF_ERROR(Enter("inputs", i, input.name));
      SRU_RETURN_IF_ERROR(CheckAxis("axis", input.axis));
      if (static_cast<size_t>(input.type) >= std::size(kInputTypeRows)) {
        return Error("type", "ids, features, a map, rows, sampling or adjustments",
                     static_cast<int>(input.type));
      }
      if (input.type == InputType::kIds && input.limit <= input.least) {
        return Error("limit", "more than least, which is " + std::to_string(input.least),
                     input.limit);
      }
      if (input.type == InputType::kFeatures) {
        SRU_RETURN_IF_ERROR(CheckRange("width", input.width, 1, kMaxSize));
      }
      if (input.type == InputType::kMap || input.type == InputType::kRows) {
        SRU_RETURN_IF_ERROR(CheckAxis("target", input.target));
      }
      if (input.type != InputType::kAdjustments) continue;
      SRU_RETURN_IF_ERROR(CheckRange("limit", input.limit, 1, kMaxVocabulary));
      if (IsSequenceAxis(input.axis)) {
        return Error("axis", "an axis that is not a sequence axis", AxisName(input.axis));
      }
    }
    return OkStatus();
  }

  Status CheckFields() {
    for (size_t i = 0; i < program_.fields.size(); ++i) {
      SRU_RETURN_IF_ERROR(Enter("fields", i, program_.fields[i].name));
      SRU_RETURN_IF_ERROR(CheckRange("width", program_.fields[i].width, 1, kMaxSize));
    }
    shape_.field_writers.assign(program_.fields.size(), kNone);
    shape_.field_axes.assign(program_.fields.size(), kNone);
    return OkStatus();
  }

  void Fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  std::string InputName(InputId id) const {
    return ItemName("inputs", id, program_.inputs[id].name);
  }
  std::string FieldName(FieldId id) const {
    return ItemName("fields", id, program_.fields[id].name);
  }

 public:  // what the operations' lists call
  void Value(const char* name, ValueId id, AxisId axis = kAny, int64_t width = kAny,
             int index = kNone) {
    const std::string field = index < 0 ? name : name + ("[" + std::to_string(index) + "]");
    if (!IsIndexOf(shape_.values, id)) {
      return Fail(Error(field, OneOf("a value of an operation before it", shape_.values.size()),
                        IdOrNone(id)));
    }
    if (WidthOf(id) == 0) return Fail(Error(field, "a value with rows", ValueName(id)));
    uses_.back().push_back(id);
    if (axis != kAny) Fail(ExpectAxis(field, axis, AxisOf(id)));
    if (width == kAny || WidthOf(id) == width) return;
    Fail(Error(field, "width " + std::to_string(width), WidthOf(id)));
  }

  void Input(const char* name, InputId id, const InputRule& rule) {
    const std::string expected = std::string("an input of ") + RowOf(rule.type).name;
    if (!IsIndexOf(program_.inputs, id)) return Fail(Error(name, expected, IdOrNone(id)));
    const InputSpec& input = program_.inputs[id];
    if (input.type != rule.type) {
      return Fail(Error(name, expected, InputName(id) + " of " + RowOf(input.type).name));
    }
    if (rule.type == InputType::kIds && (input.least != rule.least || input.limit != rule.limit)) {
      const auto range = [](int from, int to) {
        return std::to_string(from) + " to " + std::to_string(to - 1);
      };
      return Fail(Error(name, "ids from " + range(rule.least, rule.limit),
                        InputName(id) + " of " + range(input.least, input.limit)));
    }
    if (rule.type == InputType::kAdjustments && input.limit != rule.limit) {
      return Fail(Error(name, "limit " + std::to_string(rule.limit),
                        InputName(id) + " of limit " + std::to_string(input.limit)));
    }
    if (rule.rows_of != kAny && input.axis == rule.rows_of) {
      return Fail(Error(name, "an axis other than x's", AxisName(input.axis)));
    }
    if (rule.axis != kAny) Fail(ExpectAxis(name, rule.axis, input.axis));
    if (rule.target == kAny) return;
    if (rule.or_sequences && IsIndexOf(program_.axes, rule.target) &&
        input.target == program_.axes[rule.target].sequences_of) {
      return;
    }
    Fail(ExpectAxis(name, rule.target, input.target));
  }

  void Field(const char* name, FieldId id, const FieldRule& rule) {
    const std::string expected = rule.grows ? "a growing field" : "a field that does not grow";
    if (!IsIndexOf(program_.fields, id)) return Fail(Error(name, expected, IdOrNone(id)));
    const FieldSpec& spec = program_.fields[id];
    if (spec.grows != rule.grows) return Fail(Error(name, expected, FieldName(id)));
    if (rule.width != kAny && spec.width != rule.width) {
      return Fail(Error(name, "width " + std::to_string(rule.width),
                        FieldName(id) + " of width " + std::to_string(spec.width)));
    }
    if (IsIndexOf(program_.axes, rule.axis) && IsSequenceAxis(rule.axis)) {
      return Fail(Error(name, "an axis with slots", AxisName(rule.axis) + ", a sequence axis"));
    }
    if (rule.access != FieldRule::Access::kWrites) return;
    if (shape_.field_writers[id] != kNone) {
      return Fail(
          Error(name, "a field that no other operation writes",
                FieldName(id) + ", which " + ValueName(shape_.field_writers[id]) + " writes"));
    }
    shape_.field_writers[id] = static_cast<ValueId>(shape_.values.size());
    shape_.field_axes[id] = rule.axis;
  }

  void SequenceAxis(const char* name, AxisId axis, AxisId of, const char* why = "") {
    if (!IsIndexOf(program_.axes, axis)) return Fail(CheckAxis(name, axis));
    if (of == kAny && !IsSequenceAxis(axis)) {
      Fail(Error(name, "a value of a sequence axis", AxisName(axis)));
    }
    if (of == kAny || program_.axes[axis].sequences_of == of) return;
    Fail(Error(name, "a sequence axis of " + AxisName(of) + why, AxisName(axis)));
  }

  void Matrix(const char* name, const FloatView& view, int64_t rows, int64_t columns) {
    Fail(CheckView(name, view, rows, columns));
  }
  void Vector(const char* name, const FloatView& view, int64_t size,
              Presence presence = Presence::kNeeded) {
    if (presence == Presence::kNeeded || !view.empty()) Fail(CheckView(name, view, 1, size));
  }

  void Int8Matrix(const char* name, const Int8View& view, int64_t rows, int64_t columns) {
    Fail(CheckView(name, view, rows, columns));
    Fail(CheckRange(std::string(name) + "'s columns", columns, 1, kMaxInt8Size));
    if (!(std::isfinite(view.multiplier) && view.multiplier > 0)) {
      Fail(Error(std::string(name) + ".multiplier", "a positive number", view.multiplier));
    }
    if (!(std::isfinite(view.activation) && view.activation >= 0)) {
      Fail(Error(std::string(name) + ".activation", "a positive number or 0", view.activation));
    }
  }

  int Layers(const std::string& name, const StackSpec& spec, bool one_direction) {
    const Status status = kernels::Validate(spec);
    if (!status.ok()) Fail(InvalidArgument(where_, ": ", name, ".", status.message()));
    if (!status_.ok()) return 0;
    if (spec.pooling != Pooling::kNone) {
      Fail(Error(name + ".pooling", "none", PoolingName(spec.pooling)));
    }
    Fail(CheckRange(name + ".num_labels", spec.num_labels, 0, 0));
    for (size_t i = 0; one_direction && i < spec.layers.size(); ++i) {
      if (spec.layers[i].directions == 1) continue;
      Fail(Error(name + ".layers[" + std::to_string(i) + "].directions", "1, since state is set",
                 spec.layers[i].directions));
    }
    return spec.output_size();
  }

  void Range(const char* name, int64_t value, int64_t low, int64_t high) {
    Fail(CheckRange(name, value, low, high));
  }
  void Finite(const char* name, float value) {
    if (!std::isfinite(value)) Fail(Error(name, "a finite number", value));
  }
  void Positive(const char* name, float value) {
    if (std::isfinite(value) && value > 0) return;
    Fail(Error(name, "a positive number", value));
  }
  void Divides(const char* name, int value, const char* what, int size) {
    if (value > 0 && size % value == 0) return;
    Fail(Error(name, std::string("a divisor of ") + what + ", " + std::to_string(size), value));
  }
  void None(const char* name, int id, const char* why) {
    if (id != kNone) Fail(Error(name, std::string("none, ") + why, id));
  }
  void PoolingOr(const char* name, Pooling pooling, bool has_instead, const std::string& instead) {
    if ((pooling == Pooling::kNone) == has_instead && IsNamed<PoolingName>(pooling)) return;
    std::string expected = "none, since there are " + instead;
    if (!has_instead) expected = ListNames<PoolingName>(1);
    if (!has_instead && pooling == Pooling::kNone) expected += " or " + instead;
    Fail(Error(name, expected,
               IsNamed<PoolingName>(pooling) ? PoolingName(pooling)
                                             : std::to_string(static_cast<int>(pooling))));
  }
  void Rule(bool holds, const char* name, const char* expected, const char* found) {
    if (!holds) Fail(Error(name, expected, found));
  }

  void Makes(AxisId axis, int width) { y_ = {axis, width}; }

 private:
  Status CheckOperations() {
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      where_ = ValueName(static_cast<ValueId>(i));
      uses_.emplace_back();
      VisitOperation(program_, static_cast<ValueId>(i), *this);
      SRU_RETURN_IF_ERROR(status_);
      shape_.values.push_back(y_);
    }
    for (size_t i = 0; i < program_.fields.size(); ++i) {
      if (shape_.field_writers[i] != kNone) continue;
      where_ = ItemName("fields", i, program_.fields[i].name);
      return InvalidArgument(where_, ": expected an operation that writes it, found none");
    }
    return OkStatus();
  }

  // What an operation asks of the one that writes a field which it reads, and which may come after
  // it.
  struct ReaderCheck : ProgramVisitor {
    Validator& validator;
    ValueId id;

    ReaderCheck(Validator& validator, ValueId id)
        : ProgramVisitor(validator.program_, validator.shape_), validator(validator), id(id) {}
    void Field(const char* name, FieldId field, const FieldRule& rule) {
      validator.Fail(validator.CheckWriter(id, name, field, rule));
    }
  };

  Status CheckReaders() {
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      where_ = ValueName(static_cast<ValueId>(i));
      ReaderCheck check(*this, static_cast<ValueId>(i));
      VisitOperation(program_, check.id, check);
    }
    return status_;
  }

  Status CheckWriter(ValueId id, const char* name, FieldId field, const FieldRule& rule) const {
    const ValueId writer = shape_.field_writers[field];
    if (rule.access == FieldRule::Access::kReadsAppended) {
      if (shape_.field_axes[field] == AxisOf(id) && writer > id) {
        return Error(name, "a field that an operation before it appends to", ValueName(writer));
      }
      return ExpectAxis(name, shape_.field_axes[rule.as], shape_.field_axes[field]);
    }
    if (rule.access != FieldRule::Access::kReadsShifted) return OkStatus();
    const auto* const shift = std::get_if<ops::Shift>(&program_.operations[writer]);
    if (shift != nullptr && shift->x == rule.of_x) return OkStatus();
    return Error(name, "a field that a shift of " + ValueName(rule.of_x) + " writes",
                 FieldName(field) + ", which " + ValueName(writer) + " writes");
  }

  // The operation that has a type of output, and with what, in the enum's order.
  static constexpr const char* kMakers[] = {"rows", "a predict with targets",
                                            "a predict with counts", "a predict with sampling",
                                            "an attend"};

  // Whether an operation has results of a type, and whether this one does.
  struct ResultCheck : OperationVisitor {
    OutputType type;
    bool is_known = false;
    bool is_there = false;

    explicit ResultCheck(OutputType type) : type(type) {}
    void Result(OutputType result, bool there) {
      if (result == type) is_known = true, is_there = there;
    }
  };

  // The type of output that a value has.
  Status CheckOutputType(const OutputSpec& output) const {
    const auto type = static_cast<size_t>(output.type);
    if (type >= std::size(kMakers)) {
      return Error("type", "rows, log_prob, candidates, picked or attention",
                   static_cast<int>(output.type));
    }
    if (output.type == OutputType::kRows) {
      return WidthOf(output.value) > 0
                 ? OkStatus()
                 : Error("type", "log_prob, candidates or picked", kMakers[type]);
    }
    ResultCheck check(output.type);
    VisitOperation(program_, output.value, check);
    if (check.is_there) return OkStatus();
    return Error("value", kMakers[type],
                 ValueName(output.value) + (check.is_known ? " without" : ""));
  }

  Status CheckOutputs() {
    if (program_.outputs.size() > kMaxOutputs) {
      where_ = "program";
      return Error("outputs", "at most " + std::to_string(kMaxOutputs), program_.outputs.size());
    }
    shape_.users.assign(program_.operations.size(), 0);
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const OutputSpec& output = program_.outputs[i];
      SRU_RETURN_IF_ERROR(Enter("outputs", i, output.name));
      if (!IsIndexOf(program_.operations, output.value)) {
        return Error("value", OneOf("a value", uses_.size()), IdOrNone(output.value));
      }
      SRU_RETURN_IF_ERROR(CheckOutputType(output));
      shape_.users[output.value] |= uint64_t{1} << i;
    }
    for (size_t i = 0; i < program_.fields.size(); ++i) {
      shape_.users[shape_.field_writers[i]] |= ProgramShape::StateBit(shape_.field_axes[i]);
    }
    for (size_t i = program_.operations.size(); i-- > 0;) {
      for (ValueId used : uses_[i]) shape_.users[used] |= shape_.users[i];
    }
    return OkStatus();
  }

  ProgramShape shape_;
  Status status_;                           // of the operations: the first error
  ValueSpec y_;                             // what the operation that is being checked makes
  std::string where_;                       // the item that is being checked
  std::unordered_set<std::string> names_;   // of the list that is being checked, so far
  std::vector<std::vector<ValueId>> uses_;  // [operation]
};

}  // namespace

Status Validate(const Program& program, ProgramShape* shape) {
  Validator validator(program);
  Status status = validator.Run();
  if (status.ok()) *shape = validator.TakeShape();
  return status;
}

}  // namespace sru::kernels
