#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/program/program_workspace.h"
#include "kernels/cuda/stack/stack_pass.h"

namespace sru::kernels::cuda {
namespace {

class Forward {
 public:
  Forward(const PackedProgram& packed, const ProgramOnDevice& device, const ProgramBucket& bucket,
          CudaProgramWorkspace& workspace)
      : packed_(packed),
        device_(device),
        bucket_(bucket),
        ws_(workspace),
        layout_(packed, bucket) {}

  Status Enqueue() {
    for (size_t i = 0; i < packed_.operations.size(); ++i) {
      id_ = static_cast<ValueId>(i);
      if ((packed_.shape.users[i] & bucket_.users) == 0 || operation().is_joined) continue;
      if (operation().done_by != kNone && NormalizesInProduct(operation().done_by)) continue;
      const Operation& run = packed_.program.operations[i];
      if (rows() == 0 && !RunsWithoutRows(run)) continue;
      SRU_RETURN_IF_ERROR(std::visit([this](const auto& op) { return Run(op); }, run));
      if (is_rounded() && !operation().rounds) SRU_RETURN_IF_ERROR(Round());
    }
    return OkStatus();
  }

 private:
  // Those that write a field without rows, too.
  static bool RunsWithoutRows(const Operation& operation) {
    return std::holds_alternative<ops::Stack>(operation) ||
           std::holds_alternative<ops::Ssru>(operation) ||
           std::holds_alternative<ops::Shift>(operation);
  }

  // Of the operation that is put on the stream.
  const PackedOperation& operation() const { return packed_.operations[id_]; }
  AxisId axis() const { return packed_.shape.values[id_].axis; }
  int rows() const { return bucket_.rows[axis()]; }
  bool has_slots() const { return bucket_.has_slots(axis()); }
  float* y() const { return ws_.value(id_); }
  int stride() const { return packed_.stride(id_); }
  // Whether products of this batch read its value.
  bool is_rounded() const { return (operation().rounded_users & bucket_.users) != 0; }
  BFloat16* RoundedIf(bool wanted) const {
    return wanted ? static_cast<BFloat16*>(ws_.rounded(id_)) : nullptr;
  }

  int width(ValueId value) const { return packed_.shape.values[value].width; }
  int stride(ValueId value) const { return packed_.stride(value); }
  int row_stride(ValueId value) const { return packed_.row_stride(value); }
  AxisId axis_of(ValueId value) const { return packed_.shape.values[value].axis; }
  const float* value(ValueId id) const { return ws_.value(id); }
  // A value's rows as products read them.
  const void* Multiplied(ValueId id) const {
    return packed_.dtype == DataType::kFloat32 ? value(id) : ws_.rounded(id);
  }

  template <typename T>
  const T* Input(size_t offset) const {
    return reinterpret_cast<const T*>(ws_.staging[bucket_.part].input.as<char>() + offset);
  }
  const int32_t* Ids(InputId input) const { return Input<int32_t>(layout_.inputs[input]); }
  const AxisHeader* header(AxisId axis) const {
    return Input<AxisHeader>(layout_.axes[axis].header);
  }
  const int32_t* offsets(AxisId axis) const { return Input<int32_t>(layout_.axes[axis].offsets); }
  // Arguments of a kernel that makes rows of the operation's axis, or a row for each sequence of
  // one.
  template <typename Args>
  Args OfRows() const {
    Args args{};
    static_cast<RowsOfAxis&>(args) = {
        header(axis()), rows(), Input<int32_t>(layout_.axes[axis()].row_sequence), offsets(axis())};
    return args;
  }
  template <typename Args>
  Args OfSequences(AxisId axis) const {
    Args args{};
    static_cast<SequencesOfAxis&>(args) = {header(axis), bucket_.sequences[axis], offsets(axis)};
    return args;
  }
  // Of a field that the operation uses, of sequences of an axis with slots.
  const ProgramLayout::Field& field(FieldId id, AxisId axis) const {
    return layout_.fields[packed_.use_of(id, axis)];
  }
  FieldRows RowsOf(FieldId id, AxisId axis) const {
    const ProgramLayout::Field& of = field(id, axis);
    return {Input<const float*>(of.in), Input<float*>(of.out),
            static_cast<int64_t>(packed_.places[id].offset)};
  }
  FieldPages PagesOf(FieldId id) const {
    const ProgramLayout::Field& of = field(id, axis());
    return {Input<int32_t>(of.in), Input<int32_t>(of.out), Input<float*>(layout_.pages),
            static_cast<int64_t>(packed_.places[id].offset)};
  }
  // A vector among the operation's weights; null if it is absent.
  const float* Vector(size_t index) const {
    return device_.weights->floats(operation().vectors[index]);
  }
  // The bias that is still to be added to a value, null if there is none.
  const float* BiasOf(ValueId value) const {
    const PackedOperation& of = packed_.operations[value];
    if (!of.adds_bias_later) return nullptr;
    const TensorIndex bias = packed_.operations[of.first == kNone ? value : of.first].vectors[0];
    return device_.weights->floats(bias) + of.column;
  }
  // Whether the batch wants an output of the operation of this type.
  bool Wants(OutputType type) const { return bucket_.wants(packed_.program, id_, type); }

  Status Start(const OperationArgs& args) { return ws_.stream->RunOperation(args); }

  // y[first_column, ..) = x, for the rows of the operation's axis; y's columns up to
  // `padded_width`.
  CopyRowsArgs Copy(const float* x, int x_stride, int width, int padded_width, int first_column) {
    CopyRowsArgs args{};
    args.header = &header(axis())->rows;
    args.max_rows = rows();
    args.x = x;
    args.x_stride = x_stride;
    args.x_size = width;
    args.x_padded = width;
    args.dtype = DataType::kFloat32;
    args.y = y();
    args.y_stride = stride();
    args.first_column = first_column;
    args.width = width;
    args.padded_width = padded_width;
    return args;
  }

  // y = x w for `count` rows.
  Status Multiply(int count, const void* x, void* y) {
    const ProductChoice& choice = ws_.choice(operation(), count);
    return ws_.stream->Multiply(packed_.shape_of(operation()), choice.algorithm, choice.rows, x,
                                device_.weights->tensor(operation().product.weights), y);
  }

  Status Run(const ops::Features& op) {
    const int width = packed_.program.inputs[op.input].width;
    return Start(Copy(Input<float>(layout_.inputs[op.input]), width, width, stride(), 0));
  }

  Status Run(const ops::Embed& op) {
    auto args = OfRows<EmbedRowsArgs>();
    args.ids = Ids(op.ids);
    args.dtype = packed_.dtype;
    args.table = device_.weights->tensor(operation().table);
    args.width = op.width;
    args.stride = stride();
    args.scale = op.scale;
    args.divisors = static_cast<const double*>(device_.weights->tensor(operation().divisors));
    args.halves = op.positions == ops::Positions::kHalves;
    if (op.position_ids != kNone) args.positions = Ids(op.position_ids);
    if (op.position_field != kNone && has_slots()) {
      args.rows_before = PagesOf(op.position_field).rows_before;
    }
    args.y = y();
    return Start(args);
  }

  // Whether the product of an operation, or its first one, makes the rows of the layer norm before
  // it.
  bool NormalizesInProduct(ValueId id) const {
    const PackedOperation& of = packed_.operations[id];
    const int rows = bucket_.rows[axis_of(id)];
    if (of.norm_before == kNone || rows == 0) return false;
    const ProductChoice& choice =
        of.stack >= 0 ? ws_.choice(of.stack, *FirstProduct(*packed_.stacks[of.stack]), rows)
                      : ws_.choice(of, rows);
    return choice.algorithm.own && choice.rows <= kMaxNormalizedRows &&
           stride(of.norm_before) <= kMaxNormalizedWidth;
  }
  // The layer norm before the operation's product and the Append behind it, which its launch does
  // too.
  NormalizedProductArgs OfProduct() const {
    NormalizedProductArgs args{};
    const ValueId norm = operation().norm_before;
    args.norm = NormArgs(norm, std::get<ops::Normalize>(packed_.program.operations[norm]));
    const ValueId append = operation().append_after;
    if (append != kNone && (packed_.shape.users[append] & bucket_.users) != 0 && has_slots()) {
      args.append = OfAppend(append);
    }
    return args;
  }

  Status Run(const ops::Linear& op) {
    if (operation().first != kNone && operation().first != id_) return OkStatus();  // it is made
    if (NormalizesInProduct(id_)) {
      const ProductShape& shape = packed_.shape_of(operation());
      NormalizedProductArgs args = OfProduct();
      static_cast<SkinnyArgs&>(args) = {ws_.choice(operation(), rows()).rows,
                                        shape.k,
                                        shape.n,
                                        nullptr,
                                        device_.weights->tensor(operation().product.weights),
                                        y()};
      SRU_RETURN_IF_ERROR(ws_.stream->Multiply(shape, args));
    } else {
      SRU_RETURN_IF_ERROR(Multiply(rows(), Multiplied(op.x), y()));
    }
    if (operation().adds_bias_later) return OkStatus();
    if (operation().vectors[0] == kNoTensor && !op.relu) return OkStatus();
    auto args = OfRows<AddBiasArgs>();
    args.stride = row_stride(id_);
    args.bias = Vector(0);
    args.relu = op.relu;
    args.y = y();
    return Start(args);
  }

  // The operation's rows once more, in the storage type.
  Status Round() {
    if (rows() == 0) return OkStatus();
    CopyRowsArgs args = Copy(y(), stride(), stride(), stride(), 0);
    args.dtype = packed_.dtype;
    args.y = ws_.rounded(id_);
    return Start(args);
  }

  Status Run(const ops::Normalize& op) { return Start(NormArgs(id_, op)); }
  NormalizeRowsArgs NormArgs(ValueId id, const ops::Normalize& op) const {
    const PackedOperation& of = packed_.operations[id];
    NormalizeRowsArgs args{};
    args.header = &header(axis())->rows;
    args.max_rows = rows();
    args.segments = 1;
    args.size = width(op.x);
    args.padded = stride(id);
    args.dtype = DataType::kFloat32;
    if (!of.joined.empty()) args.sum = SumOf(of.joined[0]);
    args.x = ws_.value(op.x);
    args.weight = device_.weights->floats(of.vectors[0]);
    args.bias = device_.weights->floats(of.vectors[1]);
    args.epsilon = op.epsilon;
    args.y = of.keeps_float ? ws_.value(id) : nullptr;
    if ((of.rounded_users & bucket_.users) != 0) {
      args.rounded = static_cast<BFloat16*>(ws_.rounded(id));
    }
    return args;
  }

  Status Run(const ops::Stack& op) {
    const bool carries = op.state != kNone && has_slots();
    if (rows() == 0) {
      return carries ? KeepLast(op.state, nullptr, 0) : OkStatus();
    }
    const PackedStack& stack = *packed_.stacks[operation().stack];
    const StackOnDevice& device = device_.stacks[operation().stack];
    const RowLayout& row = stack.output();
    if (carries) SRU_RETURN_IF_ERROR(MoveStates(operation().states_before, false));
    StackPass pass;
    pass.stream = ws_.stream.get();
    pass.max_tokens = rows();
    pass.num_sequences = bucket_.sequences[axis()];
    pass.choice = [&](const PackedProduct& product) {
      return ws_.choice(operation().stack, product, rows());
    };
    pass.header = &header(axis())->rows;
    pass.sequences = Input<SequenceEntry>(layout_.axes[axis()].entries);
    if (op.x == kNone) {
      pass.token_ids = Ids(op.ids);
    } else if (IsPlain(stack.input)) {
      pass.rows = Multiplied(op.x);
    } else {
      pass.features = value(op.x);
      pass.feature_stride = stride(op.x);
    }
    NormalizedProductArgs first;
    if (NormalizesInProduct(id_)) {
      first = OfProduct();
      pass.first_product = &first;
    }
    if (carries) {
      pass.initial_state = pass.final_state = ws_.state(axis(), operation());
    }
    const bool unpacks = !IsPlain(row);
    pass.token_vectors = unpacks ? ws_.token_rows.as<float>() : y();
    if (!operation().keeps_float) pass.output = ws_.rounded(id_);
    pass.scratch = &ws_.scratch;
    SRU_RETURN_IF_ERROR(EnqueueStack(stack, *device.weights, device.token_table->Use(), pass));

    if (unpacks) {
      CopyRowsArgs args = Copy(ws_.token_rows.as<float>(), row.stride(), row.width(), stride(), 0);
      args.x_size = row.size;
      args.x_padded = row.padded();
      SRU_RETURN_IF_ERROR(Start(args));
    }
    return carries ? MoveStates(operation().states_after, true) : OkStatus();
  }

  // Between the slots and the rows that scans read.
  Status MoveStates(const std::vector<ValueId>& stacks, bool to_slots) {
    if (stacks.empty()) return OkStatus();
    auto args = OfSequences<MoveStatesArgs>(axis());
    args.to_slots = to_slots;
    for (const ValueId id : stacks) {
      const FieldId field = std::get<ops::Stack>(packed_.program.operations[id]).state;
      const PackedStack& stack = *packed_.stacks[packed_.operations[id].stack];
      const int layers = static_cast<int>(stack.layers.size());
      const int padded = stack.output().stride();
      args.stacks[args.count++] = {RowsOf(field, axis()), layers, stack.output().width(), padded,
                                   ws_.state(axis(), packed_.operations[id])};
      args.columns += layers * padded;
    }
    return Start(args);
  }

  Status Run(const ops::Ssru& op) {
    if (rows() == 0 && !has_slots()) return OkStatus();
    auto args = OfSequences<SsruArgs>(axis());
    args.width = width(op.x);
    args.stride = stride();
    args.x = value(op.x);
    args.forget = value(op.forget);
    if (has_slots()) args.field = RowsOf(op.state, axis());
    args.y = y();
    return Start(args);
  }

  Status Run(const ops::Attend& op) {
    auto args = OfRows<AttendArgs>();
    args.heads = op.heads;
    args.key_width = width(op.q);
    args.value_width = width(id_);
    args.scale = op.scale;
    args.causal = op.causal;
    args.q = value(op.q);
    args.q_bias = BiasOf(op.q);
    args.q_stride = row_stride(op.q);
    args.y = y();
    args.y_stride = stride();
    args.rounded = RoundedIf(is_rounded());
    if (op.keys != kNone) {
      args.keys = value(op.keys);
      args.values = value(op.values);
      args.key_stride = row_stride(op.keys);
      args.value_stride = row_stride(op.values);
      args.key_offsets = offsets(axis_of(op.keys));
      if (op.map != kNone) args.map = Ids(op.map);
    } else {
      args.key_field = PagesOf(op.key_field);
      args.value_field = PagesOf(op.value_field);
      args.appended = packed_.shape.field_axes[op.key_field] == axis();
    }
    if (Wants(OutputType::kAttention)) {
      args.attention_begin = Input<int64_t>(layout_.attentions[id_]);
      args.attention = ws_.attentions[id_].weights.as<float>();
    }
    return Start(args);
  }

  Status Run(const ops::Concat& op) {
    int first = 0;
    for (size_t i = 0; i < op.xs.size(); ++i) {
      const ValueId x = op.xs[i];
      const bool is_last = i + 1 == op.xs.size();
      const int padded = is_last ? stride() - first : width(x);
      SRU_RETURN_IF_ERROR(Start(Copy(value(x), stride(x), width(x), padded, first)));
      first += width(x);
    }
    return OkStatus();
  }

  Status Run(const ops::Add& /*op*/) {
    auto args = OfRows<AddRowsArgs>();
    args.stride = stride();
    args.sum = SumOf(id_);
    args.y = y();
    return Start(args);
  }

  RowSum SumOf(ValueId add) const {
    const auto& op = std::get<ops::Add>(packed_.program.operations[add]);
    const ValueId bias_of = packed_.operations[add].bias_of;
    RowSum sum{value(op.a), value(op.b), nullptr};
    if (bias_of == kNone) return sum;
    if (bias_of == op.a) std::swap(sum.a, sum.b);
    sum.bias = BiasOf(bias_of);
    return sum;
  }

  Status Run(const ops::Pool& op) {
    const AxisId of = axis_of(op.x);
    auto args = OfSequences<PoolRowsArgs>(of);
    args.width = width(op.x);
    args.stride = stride();
    args.pooling = op.pooling;
    args.directions = op.directions;
    if (op.weights != kNone) {
      args.weights = value(op.weights);
      args.weight_stride = stride(op.weights);
    }
    args.x = value(op.x);
    args.y = y();
    return Start(args);
  }

  Status Run(const ops::RowDot& op) {
    auto args = OfRows<RowDotArgs>();
    args.width = width(op.x);
    if (op.map != kNone) args.map = Ids(op.map);
    args.x = value(op.x);
    args.x_stride = stride(op.x);
    args.v = value(op.v);
    args.v_stride = stride(op.v);
    args.y = y();
    args.y_stride = stride();
    return Start(args);
  }

  Status Run(const ops::Shift& op) {
    if (rows() > 0) {
      auto args = OfRows<ShiftRowsArgs>();
      args.width = width(op.x);
      args.stride = stride();
      if (has_slots()) args.field = RowsOf(op.last, axis());
      args.x = value(op.x);
      args.y = y();
      SRU_RETURN_IF_ERROR(Start(args));
    }
    return has_slots() ? KeepLast(op.last, value(op.x), stride()) : OkStatus();
  }

  // The slots' field becomes the last row of x, or stays as it was for sequences without rows. An
  // axis without rows needs no x.
  Status KeepLast(FieldId field, const float* x, int stride) {
    auto args = OfSequences<LastRowsArgs>(axis());
    args.width = packed_.program.fields[field].width;
    args.stride = std::max(stride, args.width);
    args.field = RowsOf(field, axis());
    args.x = x;
    return Start(args);
  }

  Status Run(const ops::Last& op) {
    const AxisId of = axis_of(op.x);
    auto args = OfSequences<LastRowsArgs>(of);
    args.width = width(op.x);
    args.stride = stride();
    if (op.last != kNone && bucket_.has_slots(of)) args.field = RowsOf(op.last, of);
    args.x = value(op.x);
    args.y = y();
    return Start(args);
  }

  Status Run(const ops::Select& op) {
    CopyRowsArgs args = Copy(value(op.x), stride(op.x), width(op.x), stride(), 0);
    args.rows = Ids(op.rows);
    return Start(args);
  }

  Status Run(const ops::Append& /*op*/) { return has_slots() ? Start(OfAppend(id_)) : OkStatus(); }
  // Of an Append of the operation's axis, and of those that are joined to it.
  AppendArgs OfAppend(ValueId id) const {
    const auto append = [this](ValueId of) -> const ops::Append& {
      return std::get<ops::Append>(packed_.program.operations[of]);
    };
    auto args = OfRows<AppendArgs>();
    args.width = width(append(id).x);
    args.stride = row_stride(append(id).x);
    std::vector<ValueId> all = packed_.operations[id].joined;
    all.push_back(id);
    for (const ValueId one : all) {
      const ops::Append& op = append(one);
      args.fields[args.count++] = {PagesOf(op.field),
                                   Input<const float*>(field(op.field, axis()).copied), value(op.x),
                                   BiasOf(op.x)};
    }
    return args;
  }

  Status Run(const ops::Predict& op) {
    const ProgramLayout::Predict& asked = layout_.predicts[id_];
    const ProductShape& shape = packed_.shape_of(operation());
    const CudaProgramWorkspace::Prediction& prediction = ws_.predictions[id_];
    const int count = bucket_.predicted[id_];
    const int chunk = ws_.predict_chunk(operation().group);
    for (int first = 0; first < count; first += chunk) {
      const int rows = std::min(chunk, count - first);
      const PredictHeader* const header = Input<PredictHeader>(asked.header);
      CopyRowsArgs copy{};
      copy.header = &header->rows;
      copy.max_rows = rows;
      copy.first = first;
      copy.rows = Input<int32_t>(asked.rows);
      copy.x = value(op.x);
      copy.x_stride = stride(op.x);
      copy.x_size = copy.x_padded = stride(op.x);
      copy.dtype = packed_.dtype;
      copy.y = ws_.predicted.data();
      copy.y_stride = shape.k;
      copy.width = copy.padded_width = shape.k;
      SRU_RETURN_IF_ERROR(Start(copy));
      SRU_RETURN_IF_ERROR(Multiply(rows, ws_.predicted.data(), ws_.logits.data()));
      PredictArgs args{};
      args.header = header;
      args.max_rows = rows;
      args.first = first;
      args.logits = ws_.logits.as<float>();
      args.logit_stride = shape.n;
      args.vocabulary_size = op.vocabulary_size;
      args.bias = Vector(0);
      args.targets = Input<int32_t>(asked.targets);
      args.counts = Input<int32_t>(asked.counts);
      args.rows = Input<int32_t>(asked.rows);
      if (op.choices != kNone) {
        args.row_sequence = Input<int32_t>(layout_.axes[axis()].row_sequence);
        args.choices_map = Ids(op.choices_map);
        args.choice_offsets = offsets(packed_.program.inputs[op.choices].axis);
        args.choices = Ids(op.choices);
      }
      args.never = static_cast<const int32_t*>(device_.weights->tensor(operation().never));
      args.num_never = static_cast<int>(op.never.size());
      args.log_prob = prediction.host_log_prob.as<float>();
      if (Wants(OutputType::kPicked)) {
        args.sampling = Input<Sampling>(layout_.inputs[op.sampling]);
        args.picked = prediction.host_picked.as<Candidate>();
        const AxisId adjusted =
            op.adjustments == kNone ? kNone : packed_.program.inputs[op.adjustments].axis;
        if (adjusted != kNone && bucket_.sequences[adjusted] > 0) {
          args.adjustment_offsets = offsets(adjusted);
          args.adjustments = Input<Adjustment>(layout_.inputs[op.adjustments]);
          args.unadjusted = ws_.unadjusted.as<float>();
        }
      }
      SRU_RETURN_IF_ERROR(Start(args));
    }
    return OkStatus();
  }

  const PackedProgram& packed_;
  const ProgramOnDevice& device_;
  const ProgramBucket& bucket_;
  CudaProgramWorkspace& ws_;
  const ProgramLayout layout_;
  ValueId id_ = kNone;
};

}  // namespace

Status EnqueueProgram(const PackedProgram& packed, const ProgramOnDevice& device,
                      const ProgramBucket& bucket, CudaProgramWorkspace& workspace) {
  return Forward(packed, device, bucket, workspace).Enqueue();
}

}  // namespace sru::kernels::cuda
