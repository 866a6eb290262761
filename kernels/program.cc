#include "kernels/program.h"

#include <utility>

namespace sru::kernels {

namespace {

template <typename T>
int AppendTo(std::vector<T>* list, T item) {
  list->push_back(std::move(item));
  return static_cast<int>(list->size()) - 1;
}

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
  AxisSpec axis;
  axis.name = std::move(name);
  axis.sequences_of = of;
  return AppendTo(&axes, std::move(axis));
}

InputId Program::AddIds(std::string name, AxisId axis, int least, int limit) {
  InputSpec input;
  input.name = std::move(name);
  input.type = InputType::kIds;
  input.axis = axis;
  input.least = least;
  input.limit = limit;
  return AppendTo(&inputs, std::move(input));
}

InputId Program::AddFeatures(std::string name, AxisId axis, int width) {
  InputSpec input;
  input.name = std::move(name);
  input.type = InputType::kFeatures;
  input.axis = axis;
  input.width = width;
  return AppendTo(&inputs, std::move(input));
}

InputId Program::AddMap(std::string name, AxisId axis, AxisId target) {
  InputSpec input;
  input.name = std::move(name);
  input.type = InputType::kMap;
  input.axis = axis;
  input.target = target;
  return AppendTo(&inputs, std::move(input));
}

InputId Program::AddRows(std::string name, AxisId axis, AxisId target) {
  InputSpec input;
  input.name = std::move(name);
  input.type = InputType::kRows;
  input.axis = axis;
  input.target = target;
  return AppendTo(&inputs, std::move(input));
}

InputId Program::AddSampling(std::string name, AxisId axis) {
  InputSpec input;
  input.name = std::move(name);
  input.type = InputType::kSampling;
  input.axis = axis;
  return AppendTo(&inputs, std::move(input));
}

InputId Program::AddAdjustments(std::string name, AxisId axis, int limit) {
  InputSpec input;
  input.name = std::move(name);
  input.type = InputType::kAdjustments;
  input.axis = axis;
  input.limit = limit;
  return AppendTo(&inputs, std::move(input));
}

FieldId Program::AddField(std::string name, int width, bool grows) {
  FieldSpec field;
  field.name = std::move(name);
  field.width = width;
  field.grows = grows;
  return AppendTo(&fields, std::move(field));
}

ValueId Program::Apply(Operation operation) { return AppendTo(&operations, std::move(operation)); }

int Program::AddOutput(std::string name, ValueId value, OutputType type) {
  OutputSpec output;
  output.name = std::move(name);
  output.value = value;
  output.type = type;
  return AppendTo(&outputs, std::move(output));
}

void ForEachWeight(Program* program, const std::function<void(FloatView*)>& visit) {
  WeightVisitor visitor(visit);
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
