#include "kernels/program.h"

#include <utility>

namespace sru::kernels {

namespace {

template <typename T>
int AppendTo(std::vector<T>* list, typename std::vector<T>::value_type item) {
  list->push_back(std::move(item));
  return static_cast<int>(list->size()) - 1;
}

struct Int8Visitor : OperationVisitor {
  const std::function<void(Int8View*)>& visit;

  explicit Int8Visitor(const std::function<void(Int8View*)>& visit) : visit(visit) {}
  void Int8Matrix(const char* /*name*/, const Int8View& view, int64_t, int64_t) const {
    visit(const_cast<Int8View*>(&view));  // as of WeightVisitor
  }
};

struct WeightVisitor : OperationVisitor {
  const std::function<void(FloatView*)>& visit;

  explicit WeightVisitor(const std::function<void(FloatView*)>& visit) : visit(visit) {}
  // The operations are the caller's to change; a list shows them as constants.
  void Matrix(const char* /*name*/, const FloatView& view, int64_t, int64_t) const {
    visit(const_cast<FloatView*>(&view));
  }
  void Vector(const char* /*name*/, const FloatView& view, int64_t, Presence = {}) const {
    visit(const_cast<FloatView*>(&view));
  }
  int Layers(const char* /*name*/, const StackSpec& spec, bool) const {
    ForEachWeight(const_cast<StackSpec*>(&spec), visit);
    return 0;
  }
};

}  // namespace

AxisId Program::AddAxis(std::string name) { return AddSequenceAxis(std::move(name), kNone); }
AxisId Program::AddSequenceAxis(std::string name, AxisId of) {
  return AppendTo(&axes, {std::move(name), of});
}

InputId Program::AddIds(std::string name, AxisId axis, int least, int limit) {
  return AppendTo(&inputs, {std::move(name), InputType::kIds, axis, kNone, 0, least, limit});
}
InputId Program::AddFeatures(std::string name, AxisId axis, int width) {
  return AppendTo(&inputs, {std::move(name), InputType::kFeatures, axis, kNone, width});
}
InputId Program::AddMap(std::string name, AxisId axis, AxisId target) {
  return AppendTo(&inputs, {std::move(name), InputType::kMap, axis, target});
}
InputId Program::AddRows(std::string name, AxisId axis, AxisId target) {
  return AppendTo(&inputs, {std::move(name), InputType::kRows, axis, target});
}
InputId Program::AddSampling(std::string name, AxisId axis) {
  return AppendTo(&inputs, {std::move(name), InputType::kSampling, axis});
}
InputId Program::AddAdjustments(std::string name, AxisId axis, int limit) {
  return AppendTo(&inputs, {std::move(name), InputType::kAdjustments, axis, kNone, 0, 0, limit});
}

FieldId Program::AddField(std::string name, int width, bool grows) {
  return AppendTo(&fields, {std::move(name), width, grows});
}
ValueId Program::Apply(Operation operation) { return AppendTo(&operations, std::move(operation)); }
int Program::AddOutput(std::string name, ValueId value, OutputType type) {
  return AppendTo(&outputs, {std::move(name), value, type});
}

void ForEachWeight(Program* program, const std::function<void(FloatView*)>& visit) {
  WeightVisitor visitor(visit);
  for (size_t i = 0; i < program->operations.size(); ++i) {
    VisitOperation(*program, static_cast<ValueId>(i), visitor);
  }
}

void ForEachInt8Weight(Program* program, const std::function<void(Int8View*)>& visit) {
  Int8Visitor visitor(visit);
  for (size_t i = 0; i < program->operations.size(); ++i) {
    VisitOperation(*program, static_cast<ValueId>(i), visitor);
  }
}

std::string ItemName(const char* list, size_t index, const std::string& name) {
  return list + ("[" + std::to_string(index) + "] (") + name + ")";
}

const char* OperationName(const Operation& operation) {
  return std::visit([](const auto& op) { return op.kName; }, operation);
}

}  // namespace sru::kernels
