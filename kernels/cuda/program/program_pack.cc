#include "kernels/cuda/program/program_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <variant>

#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {
namespace {

// Makes the tensors and the lists of a program, operation after operation: as their lists name
// them, but for the weights of Embed, Linear and Predict, which are packed in ways of their own.
class ProgramPacker : public ProgramVisitor {
 public:
  ProgramPacker(const Program& program, PackedProgram* packed, const PackOptions& options,
                WeightSource* source)
      : ProgramVisitor(program, packed->shape),
        packed_(*packed),
        options_(options),
        source_(source) {}

  void Pack(ValueId id) {
    id_ = id;
    VisitOperation(program_, id, *this);
    std::visit([this](const auto& op) { PackMatrix(op); }, program_.operations[id]);
  }

  void Value(const char* /*name*/, ValueId value, AxisId = kAny, int64_t = kAny, int = kNone) {
    operation().arguments.push_back(value);
  }
  void Field(const char* /*name*/, FieldId field, const FieldRule& rule) {
    std::vector<FieldUse>& uses = packed_.field_uses;
    if (packed_.use_of(field, rule.axis) < static_cast<int>(uses.size())) return;
    uses.push_back({packed_.places[field].first, rule.axis});
  }
  void Vector(const char* /*name*/, const FloatView& view, int64_t size, Presence = {}) {
    if (std::holds_alternative<ops::Linear>(program_.operations[id_])) return;  // PackLinears()
    operation().vectors.push_back(AddVector(view, static_cast<int>(size)));
  }
  int Layers(const char* /*name*/, const StackSpec& spec, bool /*one_direction*/) {
    operation().stack = static_cast<int>(packed_.stacks.size());
    packed_.stacks.push_back(std::make_unique<PackedStack>(spec, options_, source_));
    packed_.has_stack[axis()] = true;
    return 0;
  }

  // When the readers of every value are known.
  void PackLinears() {
    const size_t count = program_.operations.size();
    readers_.assign(count, {});
    is_output_.assign(count, false);
    for (size_t i = 0; i < count; ++i) {
      for (ValueId argument : packed_.operations[i].arguments) {
        readers_[argument].push_back(static_cast<ValueId>(i));
      }
    }
    for (const OutputSpec& output : program_.outputs) is_output_[output.value] = true;
    for (size_t i = 0; i < count; ++i) {
      const auto* const linear = std::get_if<ops::Linear>(&program_.operations[i]);
      if (linear == nullptr || packed_.operations[i].first != kNone) continue;
      id_ = static_cast<ValueId>(i);
      const std::vector<ValueId> together = Together(id_);
      if (together.size() > 1) {
        PackTogether(together);
        continue;
      }
      PackedOperation& packed = packed_.operations[i];
      packed.product.weights =
          AddRows(options_.dtype, linear->weight, packed_.shape.values[linear->x].width);
      AddProduct(GroupOf(axis(), kNone), linear->x, RowLayout::RoundUp(linear->width), &packed);
      packed.vectors = {AddVector(linear->bias, linear->width)};
      if (packed.vectors[0] == kNoTensor || linear->relu || is_output_[i]) continue;
      packed.adds_bias_later = ReadersAddBias(id_);
      if (packed.adds_bias_later || readers_[i].size() != 1) continue;
      PackedOperation& reader = packed_.operations[readers_[i][0]];
      if (!std::holds_alternative<ops::Add>(program_.operations[readers_[i][0]])) continue;
      if (reader.bias_of != kNone) continue;
      packed.adds_bias_later = true;
      reader.bias_of = id_;
    }
  }

 private:
  // Operations that make one product, the first of which is `first`.
  std::vector<ValueId> Together(ValueId first) const {
    constexpr size_t kMost = 3;  // all their rows are in memory at a time
    std::vector<ValueId> together = {first};
    if (!IsForAttention(first)) return together;
    const ValueId x = std::get<ops::Linear>(program_.operations[first]).x;
    for (size_t i = first + 1; i < program_.operations.size() && together.size() < kMost; ++i) {
      const ValueId id = static_cast<ValueId>(i);
      const auto* const linear = std::get_if<ops::Linear>(&program_.operations[i]);
      if (linear == nullptr || linear->x != x || packed_.operations[i].first != kNone) continue;
      if (!RunTogether(first, id)) continue;
      if (IsForAttention(id)) together.push_back(id);
    }
    return together;
  }

  // Whether none of two operations runs without the other, at least in batches with slots: there
  // the keys and values of rows are wanted for the slots alone, and the queries for what comes of
  // them too.
  bool RunTogether(ValueId a, ValueId b) const {
    const std::vector<uint64_t>& users = packed_.shape.users;
    return users[a] == users[b] || (users[a] & users[b] & ProgramShape::StateBit(axis())) != 0;
  }

  // Whether all that reads a value are fields that it is appended to, and attention for which `is`
  // holds.
  template <typename Is>
  bool IsReadByAttention(ValueId id, const Is& is) const {
    return std::all_of(readers_[id].begin(), readers_[id].end(), [&](ValueId reader) {
      const Operation& operation = program_.operations[reader];
      if (std::holds_alternative<ops::Append>(operation)) {
        return readers_[reader].empty() && !is_output_[reader];
      }
      const auto* const attend = std::get_if<ops::Attend>(&operation);
      return attend != nullptr && is(*attend);
    });
  }

  // Whether all that reads a Linear's value takes rows of any stride.
  bool IsForAttention(ValueId id) const {
    if (std::get<ops::Linear>(program_.operations[id]).relu || is_output_[id]) return false;
    return IsReadByAttention(id, [](const ops::Attend& /*attend*/) { return true; });
  }

  // Whether all that reads a Linear's value adds its bias to what it reads: fields that it is
  // appended to, and attention of which it is the query.
  bool ReadersAddBias(ValueId id) const {
    return IsReadByAttention(
        id, [id](const ops::Attend& attend) { return attend.keys != id && attend.values != id; });
  }

  void PackTogether(const std::vector<ValueId>& together) {
    const ValueId x = std::get<ops::Linear>(program_.operations[together[0]]).x;
    const int width = packed_.shape.values[x].width;
    std::vector<uint8_t> weights;
    std::vector<float> biases;
    bool has_bias = false;
    int n = 0;
    for (ValueId id : together) {
      const auto& linear = std::get<ops::Linear>(program_.operations[id]);
      packed_.operations[id].first = together[0];
      packed_.operations[id].column = n;
      n += RowLayout::RoundUp(linear.width);
      AppendRows(options_.dtype, linear.weight, width, &weights);
      ReadRows(source_, linear.bias, 1, [&](size_t, size_t count, const float* values) {
        biases.insert(biases.end(), values, values + count);
        has_bias = true;
      });
      biases.resize(n);
    }
    const bool later = has_bias && std::all_of(together.begin(), together.end(),
                                               [this](ValueId id) { return ReadersAddBias(id); });
    for (ValueId id : together) {
      packed_.shape.users[together[0]] |= packed_.shape.users[id];
      packed_.operations[id].row_stride = n;
      packed_.operations[id].adds_bias_later = later;
    }
    PackedOperation& packed = packed_.operations[together[0]];
    packed.product.weights = Add(std::move(weights));
    AddProduct(GroupOf(axis(), kNone), x, n, &packed);
    packed.vectors = {has_bias ? Add(BytesOf(biases)) : kNoTensor};
  }

  void PackMatrix(const ops::Embed& op) {
    operation().table = AddRows(options_.dtype, op.table, op.width);
    if (op.positions == ops::Positions::kNone) return;
    std::vector<double> divisors((op.width + 1) / 2);
    const double size = op.positions == ops::Positions::kHalves
                            ? static_cast<double>(divisors.size() - 1)
                            : op.width / 2.0;
    for (size_t i = 0; i < divisors.size(); ++i) {
      divisors[i] = std::pow(10000.0, static_cast<double>(i) / size);
    }
    operation().divisors = Add(BytesOf(divisors));
  }
  void PackMatrix(const ops::Predict& op) {
    if (!op.never.empty()) operation().never = Add(BytesOf(op.never));
    operation().product.weights = AddRows(options_.dtype, op.weight, WidthOf(op.x));
    AddProduct(GroupOf(axis(), id_), op.x, RowLayout::RoundUp(op.vocabulary_size), &operation());
  }
  template <typename Op>
  void PackMatrix(const Op& /*op*/) {}

  template <typename T>
  static std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  PackedOperation& operation() { return packed_.operations[id_]; }

  // Of the operation that is packed.
  AxisId axis() const { return packed_.shape.values[id_].axis; }

  TensorIndex Add(std::vector<uint8_t> bytes) {
    packed_.tensors.push_back(std::move(bytes));
    return static_cast<TensorIndex>(packed_.tensors.size()) - 1;
  }

  // A tensor [rows][width] with both padded by zeros. Tied weights are packed once.
  TensorIndex AddRows(DataType dtype, const FloatView& values, int width) {
    const auto [known, is_new] =
        known_.try_emplace({values.data, values.size, width, dtype}, kNoTensor);
    if (!is_new) return known->second;
    std::vector<uint8_t> bytes;
    AppendRows(dtype, values, width, &bytes);
    return known->second = Add(std::move(bytes));
  }

  void AppendRows(DataType dtype, const FloatView& values, int width, std::vector<uint8_t>* bytes) {
    const size_t stride = RowLayout::RoundUp(width);
    const size_t rows = RowLayout::RoundUp(static_cast<int>(values.size / width));
    const size_t begin = bytes->size();
    bytes->resize(begin + rows * stride * ValueBytes(dtype));
    ReadRows(source_, values, width, [&](size_t first, size_t count, const float* from) {
      for (size_t row = 0; row < count; ++row) {
        StoreAs(dtype, from + row * width, width,
                bytes->data() + begin + (first + row) * stride * ValueBytes(dtype));
      }
    });
  }

  TensorIndex AddVector(const FloatView& view, int width) {
    return view.empty() ? kNoTensor : AddRows(DataType::kFloat32, view, width);
  }

  int GroupOf(AxisId axis, ValueId predict) {
    std::vector<ProductGroup>& groups = packed_.groups;
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const ProductGroup& group) {
      return group.axis == axis && group.predict == predict;
    });
    const int index = static_cast<int>(found - groups.begin());
    if (found == groups.end()) groups.push_back({axis, predict, {}, {}});
    return index;
  }

  // With rows of n values; the weights are packed.
  void AddProduct(int group_index, ValueId x, int n, PackedOperation* packed) {
    ProductGroup& group = packed_.groups[group_index];
    ProductShape shape;
    shape.k = packed_.stride(x);
    shape.n = n;
    shape.dtype = options_.dtype;
    shape.float32_result = true;
    packed->group = group_index;
    const auto found = std::find(group.shapes.begin(), group.shapes.end(), shape);
    packed->product.shape = static_cast<int>(found - group.shapes.begin());
    if (found != group.shapes.end()) return;
    group.shapes.push_back(shape);
    group.weights.push_back(packed->product.weights);
  }

  PackedProgram& packed_;
  const PackOptions options_;
  WeightSource* const source_;
  ValueId id_ = kNone;
  std::vector<std::vector<ValueId>> readers_;  // [value]
  std::vector<bool> is_output_;                // [value]
  std::map<std::tuple<const float*, size_t, int, DataType>, TensorIndex> known_;
};

// Joins the axis of an operation and those of what it reads to one set.
struct AxisJoiner : ProgramVisitor {
  std::vector<int> sets;  // [axis]: the same number for the axes of one set
  ValueId id = 0;

  AxisJoiner(const Program& program, const ProgramShape& shape)
      : ProgramVisitor(program, shape), sets(program.axes.size()) {
    std::iota(sets.begin(), sets.end(), 0);
  }
  void Join(AxisId a, AxisId b) {
    std::replace(sets.begin(), sets.end(), int{sets[a]}, int{sets[b]});
  }
  void Value(const char* /*name*/, ValueId value, AxisId = kAny, int64_t = kAny, int = kNone) {
    Join(AxisOf(id), AxisOf(value));
  }
  void Input(const char* /*name*/, InputId input, const InputRule& /*rule*/) {
    Join(AxisOf(id), InputAxis(input));
  }
};

// The part of each axis, counted from 0 in the order of their first axes.
std::vector<int> PartsOf(const PackedProgram& packed) {
  const Program& program = packed.program;
  AxisJoiner joiner(program, packed.shape);
  for (size_t a = 0; a < program.axes.size(); ++a) {
    joiner.Join(static_cast<AxisId>(a), packed.sequences_of(static_cast<AxisId>(a)));
  }
  for (const InputSpec& input : program.inputs) {
    if (input.target != kNone) joiner.Join(input.axis, input.target);
  }
  for (; joiner.id < static_cast<ValueId>(packed.operations.size()); ++joiner.id) {
    VisitOperation(program, joiner.id, joiner);
  }
  std::map<int, int> places;
  std::vector<int> parts;
  for (const int set : joiner.sets) {
    parts.push_back(places.try_emplace(set, static_cast<int>(places.size())).first->second);
  }
  return parts;
}

}  // namespace

PackedProgram::PackedProgram(const Program& given, ProgramShape program_shape,
                             const PackOptions& options, WeightSource* source)
    : program(WithoutWeights(given)),
      shape(std::move(program_shape)),
      dtype(options.dtype),
      operations(given.operations.size()),
      places(PlaceFields(given.fields, shape.field_axes)),
      has_stack(given.axes.size()),
      has_operations(given.axes.size()) {
  for (const ValueSpec& value : shape.values) has_operations[value.axis] = true;
  ProgramPacker packer(given, this, options, source);
  for (size_t i = 0; i < operations.size(); ++i) packer.Pack(static_cast<ValueId>(i));
  packer.PackLinears();
  parts = PartsOf(*this);
  JoinOperations(this);
  for (size_t a = 0; a < parts.size(); ++a) {
    if (static_cast<size_t>(parts[a]) == part_users.size()) part_users.push_back(0);
    part_users[parts[a]] |= ProgramShape::StateBit(static_cast<AxisId>(a));
  }
  for (size_t i = 0; i < given.outputs.size(); ++i) {
    part_users[parts[shape.values[given.outputs[i].value].axis]] |= uint64_t{1} << i;
  }
}

const PackedProduct* FirstProduct(const PackedStack& stack) {
  if (stack.input_to_hidden.exists()) return &stack.input_to_hidden;
  const PackedLayer& layer = stack.layers.front();
  if (layer.layer_norm == LayerNorm::kBefore) return nullptr;
  if (layer.projection.exists()) return &layer.projection;
  return layer.fused_k > 0 ? nullptr : &layer.product;
}

ValueId PackedProgram::OriginalOf(ValueId value) const {
  const auto* const append = std::get_if<ops::Append>(&program.operations[value]);
  return append != nullptr ? OriginalOf(append->x) : value;
}

int PackedProgram::row_stride(ValueId value) const {
  const int shared = operations[OriginalOf(value)].row_stride;
  return shared > 0 ? shared : stride(value);
}

int PackedProgram::use_of(FieldId field, AxisId axis) const {
  const auto found = std::find_if(field_uses.begin(), field_uses.end(), [&](const FieldUse& use) {
    return use.field == places[field].first && use.axis == axis;
  });
  return static_cast<int>(found - field_uses.begin());
}

void PackedProgram::ReleaseHostCopy() {
  tensors.clear();
  for (const std::unique_ptr<PackedStack>& stack : stacks) stack->ReleaseHostCopy();
}

}  // namespace sru::kernels::cuda
