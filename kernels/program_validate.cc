// Validate(const Program&): whether a program agrees with itself, and what follows for its values.
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/program.h"

namespace sru::kernels {

namespace {

constexpr int kMaxVocabulary = 1 << 30;

template <typename T>
bool IsIndexOf(const std::vector<T>& list, int index) {
  return index >= 0 && static_cast<size_t>(index) < list.size();
}

// "an axis, 0 to 2" of 3.
std::string OneOf(const std::string& what, size_t size) {
  return what + (size == 0 ? ", of which there is none" : ", 0 to " + std::to_string(size - 1));
}

std::string IdOrNone(int id) { return id == kNone ? "none" : std::to_string(id); }

const char* InputTypeName(InputType type) {
  switch (type) {
    case InputType::kIds:
      return "ids";
    case InputType::kFeatures:
      return "features";
    case InputType::kMap:
      return "a map";
    case InputType::kRows:
      return "rows";
    case InputType::kSampling:
      return "sampling";
    case InputType::kAdjustments:
      return "adjustments";
  }
  return "an unknown type";
}

// Goes over a program from its axes to its outputs and fills in its shape.
class Validator {
 public:
  explicit Validator(const Program& program) : program_(program) {}

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
  Status Error(const std::string& field, const std::string& expected,
               const std::string& found) const {
    return InvalidArgument(where_ + ": " + field + ": expected " + expected + ", found " + found);
  }

  Status CheckRange(const std::string& field, int64_t value, int64_t low, int64_t high) const {
    if (value >= low && value <= high) return OkStatus();
    const std::string from = std::to_string(low);
    return Error(field, low == high ? from : from + " to " + std::to_string(high),
                 std::to_string(value));
  }

  // A view of rows x columns values; of `columns` with rows = 1.
  Status CheckView(const std::string& field, const FloatView& view, int64_t rows,
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
    return Error(field, expected + " values", std::to_string(view.size));
  }

  Status CheckOptionalView(const std::string& field, const FloatView& view, int64_t size) const {
    return view.empty() ? OkStatus() : CheckView(field, view, 1, size);
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
      return Error("axes", "at most " + std::to_string(kMaxAxes),
                   std::to_string(program_.axes.size()));
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
      bool known = false;
      switch (input.type) {
        case InputType::kIds:
          known = true;
          if (input.limit <= input.least) {
            return Error("limit", "more than least, which is " + std::to_string(input.least),
                         std::to_string(input.limit));
          }
          break;
        case InputType::kFeatures:
          known = true;
          SRU_RETURN_IF_ERROR(CheckRange("width", input.width, 1, kMaxSize));
          break;
        case InputType::kMap:
        case InputType::kRows:
          known = true;
          SRU_RETURN_IF_ERROR(CheckAxis("target", input.target));
          break;
        case InputType::kSampling:
          known = true;
          break;
        case InputType::kAdjustments:
          known = true;
          SRU_RETURN_IF_ERROR(CheckRange("limit", input.limit, 1, kMaxVocabulary));
          if (!IsSequenceAxis(input.axis)) break;
          return Error("axis", "an axis that is not a sequence axis", AxisName(input.axis));
      }
      if (!known) {
        return Error("type", "ids, features, a map, rows, sampling or adjustments",
                     std::to_string(static_cast<int>(input.type)));
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

  // Checks that `id` is an operation before the current one that has rows, and remembers the use.
  Status Use(const std::string& field, ValueId id) {
    if (!IsIndexOf(shape_.values, id)) {
      return Error(field, OneOf("a value of an operation before it", shape_.values.size()),
                   IdOrNone(id));
    }
    if (shape_.values[id].width == 0) {
      return Error(field, "a value with rows", ValueName(id));
    }
    uses_.back().push_back(id);
    return OkStatus();
  }

  AxisId axis(ValueId id) const { return shape_.values[id].axis; }
  int width(ValueId id) const { return shape_.values[id].width; }

  Status ExpectWidth(const std::string& field, ValueId id, int64_t expected) const {
    if (width(id) == expected) return OkStatus();
    return Error(field, "width " + std::to_string(expected), std::to_string(width(id)));
  }

  Status CheckInput(const std::string& field, InputId id, InputType type) const {
    if (!IsIndexOf(program_.inputs, id)) {
      return Error(field, std::string("an input of ") + InputTypeName(type), IdOrNone(id));
    }
    const InputSpec& input = program_.inputs[id];
    if (input.type == type) return OkStatus();
    return Error(field, std::string("an input of ") + InputTypeName(type),
                 ItemName("inputs", id, input.name) + " of " + InputTypeName(input.type));
  }

  // An input of ids in [least, limit).
  Status CheckIds(const std::string& field, InputId id, int least, int limit) const {
    SRU_RETURN_IF_ERROR(CheckInput(field, id, InputType::kIds));
    const InputSpec& input = program_.inputs[id];
    if (input.least == least && input.limit == limit) return OkStatus();
    const auto range = [](int from, int to) {
      return std::to_string(from) + " to " + std::to_string(to - 1);
    };
    return Error(field, "ids from " + range(least, limit),
                 ItemName("inputs", id, input.name) + " of " + range(input.least, input.limit));
  }

  // A field of the operation's axis.
  Status CheckField(const std::string& field, FieldId id, bool grows, int64_t width,
                    AxisId axis) const {
    const std::string expected = grows ? "a growing field" : "a field that does not grow";
    if (!IsIndexOf(program_.fields, id)) {
      return Error(field, expected, IdOrNone(id));
    }
    const FieldSpec& spec = program_.fields[id];
    const std::string name = ItemName("fields", id, spec.name);
    if (spec.grows != grows) return Error(field, expected, name);
    if (width > 0 && spec.width != width) {
      return Error(field, "width " + std::to_string(width),
                   name + " of width " + std::to_string(spec.width));
    }
    if (IsSequenceAxis(axis)) {
      return Error(field, "an axis with slots", AxisName(axis) + ", a sequence axis");
    }
    return OkStatus();
  }

  // As CheckField(), and the current operation is the one that writes it.
  Status WriteField(const std::string& field, FieldId id, bool grows, int64_t width, AxisId axis) {
    SRU_RETURN_IF_ERROR(CheckField(field, id, grows, width, axis));
    if (shape_.field_writers[id] != kNone) {
      return Error(field, "a field that no other operation writes",
                   ItemName("fields", id, program_.fields[id].name) + ", which " +
                       ValueName(shape_.field_writers[id]) + " writes");
    }
    shape_.field_writers[id] = static_cast<ValueId>(shape_.values.size());
    shape_.field_axes[id] = axis;
    return OkStatus();
  }

  Status ExpectNone(const std::string& field, int id, const std::string& why) const {
    return id == kNone ? OkStatus() : Error(field, "none, " + why, std::to_string(id));
  }

  Status Check(const ops::Features& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(CheckInput("input", op.input, InputType::kFeatures));
    *y = {program_.inputs[op.input].axis, program_.inputs[op.input].width};
    return OkStatus();
  }

  Status Check(const ops::Embed& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(CheckRange("vocabulary_size", op.vocabulary_size, 1, kMaxVocabulary));
    SRU_RETURN_IF_ERROR(CheckRange("width", op.width, 1, kMaxSize));
    SRU_RETURN_IF_ERROR(CheckView("table", op.table, op.vocabulary_size, op.width));
    SRU_RETURN_IF_ERROR(CheckIds("ids", op.ids, 0, op.vocabulary_size));
    SRU_RETURN_IF_ERROR(CheckFinite("scale", op.scale));
    *y = {program_.inputs[op.ids].axis, op.width};
    if (op.position_field == kNone) return OkStatus();
    if (!op.positions) {
      return ExpectNone("position_field", op.position_field, "since positions is not set");
    }
    return CheckField("position_field", op.position_field, true, 0, y->axis);
  }

  Status Check(const ops::Linear& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(CheckRange("width", op.width, 1, kMaxSize));
    SRU_RETURN_IF_ERROR(CheckView("weight", op.weight, op.width, width(op.x)));
    SRU_RETURN_IF_ERROR(CheckOptionalView("bias", op.bias, op.width));
    *y = {axis(op.x), op.width};
    return OkStatus();
  }

  Status Check(const ops::Normalize& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(CheckView("weight", op.weight, 1, width(op.x)));
    SRU_RETURN_IF_ERROR(CheckView("bias", op.bias, 1, width(op.x)));
    if (!(std::isfinite(op.epsilon) && op.epsilon > 0)) {
      return Error("epsilon", "a positive number", std::to_string(op.epsilon));
    }
    *y = {axis(op.x), width(op.x)};
    return OkStatus();
  }

  Status Check(const ops::Stack& op, ValueSpec* y) {
    if (Status status = kernels::Validate(op.spec); !status.ok()) {
      return InvalidArgument(where_ + ": spec." + status.message());
    }
    if (op.spec.pooling != Pooling::kNone) {
      return Error("spec.pooling", "none", PoolingName(op.spec.pooling));
    }
    SRU_RETURN_IF_ERROR(CheckRange("spec.num_labels", op.spec.num_labels, 0, 0));
    if ((op.ids == kNone) == (op.x == kNone)) {
      return Error("ids, x", "exactly one of them", op.x == kNone ? "none" : "both");
    }
    if (op.x == kNone) {
      if (op.spec.vocabulary_size == 0) {
        return Error("spec.vocabulary_size", "an embedding, since ids is set", "0");
      }
      SRU_RETURN_IF_ERROR(CheckIds("ids", op.ids, 0, op.spec.vocabulary_size));
      *y = {program_.inputs[op.ids].axis, op.spec.output_size()};
    } else {
      SRU_RETURN_IF_ERROR(Use("x", op.x));
      SRU_RETURN_IF_ERROR(CheckRange("spec.vocabulary_size", op.spec.vocabulary_size, 0, 0));
      SRU_RETURN_IF_ERROR(ExpectWidth("x", op.x, op.spec.input_size));
      *y = {axis(op.x), op.spec.output_size()};
    }
    if (op.state == kNone) return OkStatus();
    for (size_t i = 0; i < op.spec.layers.size(); ++i) {
      if (op.spec.layers[i].directions != 1) {
        return Error("spec.layers[" + std::to_string(i) + "].directions", "1, since state is set",
                     std::to_string(op.spec.layers[i].directions));
      }
    }
    return WriteField("state", op.state, false,
                      static_cast<int64_t>(op.spec.layers.size()) * op.spec.output_size(), y->axis);
  }

  Status Check(const ops::Attend& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("q", op.q));
    SRU_RETURN_IF_ERROR(CheckRange("heads", op.heads, 1, kMaxSize));
    SRU_RETURN_IF_ERROR(CheckFinite("scale", op.scale));
    if (width(op.q) % op.heads != 0) {
      return Error("heads", "a divisor of q's width, " + std::to_string(width(op.q)),
                   std::to_string(op.heads));
    }
    const bool of_fields = op.key_field != kNone || op.value_field != kNone;
    int value_width = 0;
    if (of_fields) {
      SRU_RETURN_IF_ERROR(ExpectNone("keys", op.keys, "since there are fields"));
      SRU_RETURN_IF_ERROR(ExpectNone("values", op.values, "since there are fields"));
      SRU_RETURN_IF_ERROR(ExpectNone("map", op.map, "since there are fields"));
      SRU_RETURN_IF_ERROR(CheckField("key_field", op.key_field, true, width(op.q), axis(op.q)));
      SRU_RETURN_IF_ERROR(CheckField("value_field", op.value_field, true, 0, axis(op.q)));
      value_width = program_.fields[op.value_field].width;
    } else {
      SRU_RETURN_IF_ERROR(Use("keys", op.keys));
      SRU_RETURN_IF_ERROR(Use("values", op.values));
      SRU_RETURN_IF_ERROR(ExpectWidth("keys", op.keys, width(op.q)));
      SRU_RETURN_IF_ERROR(ExpectAxis("values", axis(op.keys), axis(op.values)));
      if (op.map == kNone) {
        SRU_RETURN_IF_ERROR(ExpectAxis("keys", axis(op.q), axis(op.keys)));
      } else {
        SRU_RETURN_IF_ERROR(CheckInput("map", op.map, InputType::kMap));
        SRU_RETURN_IF_ERROR(ExpectAxis("map", axis(op.q), program_.inputs[op.map].axis));
        SRU_RETURN_IF_ERROR(ExpectAxis("map", axis(op.keys), program_.inputs[op.map].target));
      }
      value_width = width(op.values);
    }
    if (value_width % op.heads != 0) {
      return Error("heads", "a divisor of the values' width, " + std::to_string(value_width),
                   std::to_string(op.heads));
    }
    *y = {axis(op.q), value_width};
    return OkStatus();
  }

  Status Check(const ops::Concat& op, ValueSpec* y) {
    if (op.xs.empty()) return Error("xs", "a value", "none");
    int64_t sum = 0;
    for (size_t i = 0; i < op.xs.size(); ++i) {
      const std::string field = "xs[" + std::to_string(i) + "]";
      SRU_RETURN_IF_ERROR(Use(field, op.xs[i]));
      SRU_RETURN_IF_ERROR(ExpectAxis(field, axis(op.xs[0]), axis(op.xs[i])));
      sum += width(op.xs[i]);
    }
    SRU_RETURN_IF_ERROR(CheckRange("width of all xs", sum, 1, kMaxSize));
    *y = {axis(op.xs[0]), static_cast<int>(sum)};
    return OkStatus();
  }

  Status Check(const ops::Add& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("a", op.a));
    SRU_RETURN_IF_ERROR(Use("b", op.b));
    SRU_RETURN_IF_ERROR(ExpectAxis("b", axis(op.a), axis(op.b)));
    SRU_RETURN_IF_ERROR(ExpectWidth("b", op.b, width(op.a)));
    *y = shape_.values[op.a];
    return OkStatus();
  }

  // That there is a row of `axis` for each sequence of the axis of x.
  Status CheckSequenceAxis(ValueId x, AxisId axis) const {
    SRU_RETURN_IF_ERROR(CheckAxis("axis", axis));
    if (program_.axes[axis].sequences_of == this->axis(x)) return OkStatus();
    return Error("axis", "a sequence axis of " + AxisName(this->axis(x)), AxisName(axis));
  }

  Status Check(const ops::Pool& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(CheckSequenceAxis(op.x, op.axis));
    if (op.weights == kNone) {
      if (!IsNamed<PoolingName>(op.pooling)) {
        return Error("pooling", ListNames<PoolingName>(1),
                     std::to_string(static_cast<int>(op.pooling)));
      }
      if (op.pooling == Pooling::kNone) {
        return Error("pooling", ListNames<PoolingName>(1) + " or weights", "none");
      }
      SRU_RETURN_IF_ERROR(CheckRange("directions", op.directions, 1, 2));
      if (width(op.x) % op.directions != 0) {
        return Error("directions", "a divisor of x's width, " + std::to_string(width(op.x)),
                     std::to_string(op.directions));
      }
    } else {
      SRU_RETURN_IF_ERROR(Use("weights", op.weights));
      SRU_RETURN_IF_ERROR(ExpectAxis("weights", axis(op.x), axis(op.weights)));
      SRU_RETURN_IF_ERROR(ExpectWidth("weights", op.weights, 1));
      if (op.pooling != Pooling::kNone) {
        return Error("pooling", "none, since there are weights",
                     IsNamed<PoolingName>(op.pooling)
                         ? PoolingName(op.pooling)
                         : std::to_string(static_cast<int>(op.pooling)));
      }
    }
    *y = {op.axis, width(op.x)};
    return OkStatus();
  }

  Status Check(const ops::RowDot& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(Use("v", op.v));
    SRU_RETURN_IF_ERROR(ExpectWidth("v", op.v, width(op.x)));
    if (!IsSequenceAxis(axis(op.v))) {
      return Error("v", "a value of a sequence axis", AxisName(axis(op.v)));
    }
    const AxisId of = program_.axes[axis(op.v)].sequences_of;
    if (op.map == kNone) {
      if (of != axis(op.x)) {
        return Error("v", "a sequence axis of " + AxisName(axis(op.x)) + ", since there is no map",
                     AxisName(axis(op.v)));
      }
    } else {
      SRU_RETURN_IF_ERROR(CheckInput("map", op.map, InputType::kMap));
      const InputSpec& map = program_.inputs[op.map];
      SRU_RETURN_IF_ERROR(ExpectAxis("map", axis(op.x), map.axis));
      if (map.target != of) SRU_RETURN_IF_ERROR(ExpectAxis("map", axis(op.v), map.target));
    }
    *y = {axis(op.x), 1};
    return OkStatus();
  }

  Status Check(const ops::Shift& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    *y = shape_.values[op.x];
    return WriteField("last", op.last, false, width(op.x), axis(op.x));
  }

  Status Check(const ops::Last& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(CheckSequenceAxis(op.x, op.axis));
    *y = {op.axis, width(op.x)};
    if (op.last == kNone) return OkStatus();
    return CheckField("last", op.last, false, width(op.x), axis(op.x));
  }

  Status Check(const ops::Select& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(CheckInput("rows", op.rows, InputType::kRows));
    SRU_RETURN_IF_ERROR(ExpectAxis("rows", axis(op.x), program_.inputs[op.rows].target));
    *y = {program_.inputs[op.rows].axis, width(op.x)};
    return OkStatus();
  }

  Status Check(const ops::Append& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    *y = shape_.values[op.x];
    return WriteField("field", op.field, true, width(op.x), axis(op.x));
  }

  Status Check(const ops::Predict& op, ValueSpec* y) {
    SRU_RETURN_IF_ERROR(Use("x", op.x));
    SRU_RETURN_IF_ERROR(CheckRange("vocabulary_size", op.vocabulary_size, 1, kMaxVocabulary));
    SRU_RETURN_IF_ERROR(CheckView("weight", op.weight, op.vocabulary_size, width(op.x)));
    SRU_RETURN_IF_ERROR(CheckOptionalView("bias", op.bias, op.vocabulary_size));
    if (op.targets == kNone && op.counts == kNone && op.sampling == kNone) {
      return Error("targets, counts, sampling", "at least one of them", "none");
    }
    if (op.targets != kNone) {
      SRU_RETURN_IF_ERROR(CheckIds("targets", op.targets, -1, op.vocabulary_size));
      SRU_RETURN_IF_ERROR(ExpectAxis("targets", axis(op.x), program_.inputs[op.targets].axis));
    }
    if (op.counts == kNone) {
      SRU_RETURN_IF_ERROR(CheckRange("max_candidates", op.max_candidates, 0, 0));
    } else {
      SRU_RETURN_IF_ERROR(CheckRange("max_candidates", op.max_candidates, 1, op.vocabulary_size));
      SRU_RETURN_IF_ERROR(CheckIds("counts", op.counts, 0, op.max_candidates + 1));
      SRU_RETURN_IF_ERROR(ExpectAxis("counts", axis(op.x), program_.inputs[op.counts].axis));
    }
    if (op.sampling == kNone) {
      SRU_RETURN_IF_ERROR(ExpectNone("adjustments", op.adjustments, "since there is no sampling"));
    } else {
      SRU_RETURN_IF_ERROR(CheckInput("sampling", op.sampling, InputType::kSampling));
      SRU_RETURN_IF_ERROR(ExpectAxis("sampling", axis(op.x), program_.inputs[op.sampling].axis));
      if (op.adjustments != kNone) SRU_RETURN_IF_ERROR(CheckAdjustments(op));
    }
    *y = {axis(op.x), 0};
    return OkStatus();
  }

  Status CheckAdjustments(const ops::Predict& op) const {
    SRU_RETURN_IF_ERROR(CheckInput("adjustments", op.adjustments, InputType::kAdjustments));
    const InputSpec& input = program_.inputs[op.adjustments];
    if (input.limit != op.vocabulary_size) {
      return Error("adjustments", "limit " + std::to_string(op.vocabulary_size),
                   ItemName("inputs", op.adjustments, input.name) + " of limit " +
                       std::to_string(input.limit));
    }
    if (input.axis == axis(op.x)) {
      return Error("adjustments", "an axis other than x's", AxisName(input.axis));
    }
    return OkStatus();
  }

  Status CheckFinite(const std::string& field, float value) const {
    return std::isfinite(value) ? OkStatus()
                                : Error(field, "a finite number", std::to_string(value));
  }

  Status CheckOperations() {
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      where_ = ValueName(static_cast<ValueId>(i));
      uses_.emplace_back();
      ValueSpec y;
      SRU_RETURN_IF_ERROR(
          std::visit([&](const auto& op) { return Check(op, &y); }, program_.operations[i]));
      shape_.values.push_back(y);
    }
    for (size_t i = 0; i < program_.fields.size(); ++i) {
      if (shape_.field_writers[i] != kNone) continue;
      where_ = ItemName("fields", i, program_.fields[i].name);
      return InvalidArgument(where_ + ": expected an operation that writes it, found none");
    }
    return OkStatus();
  }

  // What operations ask of the one that writes a field that they read, which may come after them.
  Status CheckReaders() {
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      where_ = ValueName(static_cast<ValueId>(i));
      if (const auto* const last = std::get_if<ops::Last>(&program_.operations[i])) {
        SRU_RETURN_IF_ERROR(CheckShiftOf(*last));
      }
      const auto* const attend = std::get_if<ops::Attend>(&program_.operations[i]);
      if (attend == nullptr || attend->key_field == kNone) continue;
      for (const auto& [field, id] : {std::pair{"key_field", attend->key_field},
                                      std::pair{"value_field", attend->value_field}}) {
        const ValueId writer = shape_.field_writers[id];
        if (shape_.field_axes[id] == shape_.values[i].axis && writer > static_cast<int>(i)) {
          return Error(field, "a field that an operation before it appends to", ValueName(writer));
        }
      }
      SRU_RETURN_IF_ERROR(ExpectAxis("value_field", shape_.field_axes[attend->key_field],
                                     shape_.field_axes[attend->value_field]));
    }
    return OkStatus();
  }

  // That the field of a Last, if it has one, is that of a Shift of the same value.
  Status CheckShiftOf(const ops::Last& last) const {
    if (last.last == kNone) return OkStatus();
    const ValueId writer = shape_.field_writers[last.last];
    const auto* const shift = std::get_if<ops::Shift>(&program_.operations[writer]);
    if (shift != nullptr && shift->x == last.x) return OkStatus();
    return Error("last", "a field that a shift of " + ValueName(last.x) + " writes",
                 ItemName("fields", last.last, program_.fields[last.last].name) + ", which " +
                     ValueName(writer) + " writes");
  }

  // The type of output that a value has.
  Status CheckOutputType(const OutputSpec& output) const {
    const auto* const predict = std::get_if<ops::Predict>(&program_.operations[output.value]);
    const std::string found = ValueName(output.value);
    switch (output.type) {
      case OutputType::kRows:
        return predict == nullptr ? OkStatus()
                                  : Error("type", "log_prob, candidates or picked", "rows");
      case OutputType::kLogProb:
        if (predict == nullptr) return Error("value", "a predict with targets", found);
        return predict->targets != kNone
                   ? OkStatus()
                   : Error("value", "a predict with targets", found + " without");
      case OutputType::kCandidates:
        if (predict == nullptr) return Error("value", "a predict with counts", found);
        return predict->counts != kNone
                   ? OkStatus()
                   : Error("value", "a predict with counts", found + " without");
      case OutputType::kPicked:
        if (predict == nullptr) return Error("value", "a predict with sampling", found);
        return predict->sampling != kNone
                   ? OkStatus()
                   : Error("value", "a predict with sampling", found + " without");
      case OutputType::kAttention:
        return std::holds_alternative<ops::Attend>(program_.operations[output.value])
                   ? OkStatus()
                   : Error("value", "an attend", found);
    }
    return Error("type", "rows, log_prob, candidates, picked or attention",
                 std::to_string(static_cast<int>(output.type)));
  }

  Status CheckOutputs() {
    if (program_.outputs.size() > kMaxOutputs) {
      where_ = "program";
      return Error("outputs", "at most " + std::to_string(kMaxOutputs),
                   std::to_string(program_.outputs.size()));
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

  const Program& program_;
  ProgramShape shape_;
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
