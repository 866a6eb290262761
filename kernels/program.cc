#include "kernels/program.h"

#include <iterator>
#include <utility>

namespace sru::kernels {

namespace {

template <typename T>
int AppendTo(std::vector<T>* list, T item) {
  list->push_back(std::move(item));
  return static_cast<int>(list->size()) - 1;
}

// An overload for each operation, so that one that is added does not compile without.
class WeightVisitor {
 public:
  explicit WeightVisitor(const std::function<void(FloatView*)>& visit) : visit_(visit) {}

  void operator()(ops::Embed& op) const { visit_(&op.table); }
  void operator()(ops::Linear& op) const { VisitBoth(op); }
  void operator()(ops::Normalize& op) const { VisitBoth(op); }
  void operator()(ops::Stack& op) const { ForEachWeight(&op.spec, visit_); }
  void operator()(ops::Predict& op) const { VisitBoth(op); }

  void operator()(ops::Features&) const {}
  void operator()(ops::Attend&) const {}
  void operator()(ops::Concat&) const {}
  void operator()(ops::Add&) const {}
  void operator()(ops::Pool&) const {}
  void operator()(ops::RowDot&) const {}
  void operator()(ops::Shift&) const {}
  void operator()(ops::Last&) const {}
  void operator()(ops::Select&) const {}
  void operator()(ops::Append&) const {}

 private:
  template <typename Op>
  void VisitBoth(Op& op) const {
    visit_(&op.weight);
    visit_(&op.bias);
  }

  const std::function<void(FloatView*)>& visit_;
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
  for (Operation& operation : program->operations) std::visit(WeightVisitor(visit), operation);
}

std::string ItemName(const char* list, size_t index, const std::string& name) {
  return list + ("[" + std::to_string(index) + "] (") + name + ")";
}

const char* OperationName(const Operation& operation) {
  static constexpr const char* kNames[] = {"features", "embed",  "linear", "normalize", "stack",
                                           "attend",   "concat", "add",    "pool",      "row_dot",
                                           "shift",    "last",   "select", "append",    "predict"};
  static_assert(std::size(kNames) == std::variant_size_v<Operation>);
  return kNames[operation.index()];
}

}  // namespace sru::kernels
