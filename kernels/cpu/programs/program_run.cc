#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "kernels/cpu/base/pool.h"
#include "kernels/cpu/programs/cpu_program.h"
#include "kernels/cpu/programs/program_attend.h"
#include "kernels/cpu/programs/program_rows.h"
#include "kernels/cpu/stacks/forward_pass.h"
#include "kernels/turn.h"

namespace sru::kernels::cpu {
namespace {

// The sequences of an axis and their rows.
struct AxisRows {
  int num_sequences = 0;
  const int32_t* offsets = nullptr;

  int num_rows() const { return num_sequences == 0 ? 0 : offsets[num_sequences]; }
  int Length(int b) const { return offsets[b + 1] - offsets[b]; }
};

// Products of this many rows are at full speed, or nearly.
constexpr int kMinAdjacentRows = 64;

// How many of the `count` rows, at least one, follow each other from the first on.
int CountAdjacent(const int32_t* which, int count) {
  int adjacent = 1;
  while (adjacent < count && which[adjacent] == which[0] + adjacent) ++adjacent;
  return adjacent;
}

// Copies a row, or zeros if there is none.
void CopyOrClear(const float* from, size_t width, float* to) {
  if (from != nullptr) {
    std::copy_n(from, width, to);
  } else {
    std::fill_n(to, width, 0.0f);
  }
}

// One Run(): the batch, where its results go, the worker's memory and the slots while they are
// written to.
class ProgramRun {
 public:
  ProgramRun(const PackedProgram& packed, const ProgramBatch& batch, const OutputBatch* outputs,
             CpuProgramWorkspace& workspace, ParallelRunner& parallel)
      : packed_(packed),
        program_(packed.program),
        values_(packed.shape.values),
        batch_(batch),
        outputs_(outputs),
        ws_(workspace),
        parallel_(parallel),
        users_(BatchUsers(packed.program, batch, outputs)),
        turn_(workspace.limits().turn) {}
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;
  // Gives up what has not been committed.
  ~ProgramRun() {
    for (StateArena::Run& run : ws_.runs) run = StateArena::Run();
  }

  Status Run() {
    Status status = BeginStates(program_, packed_.shape, ws_.limits(), batch_, outputs_,
                                &ws_.rows_added, &ws_.runs);
    running_.emplace(parallel_);
    for (size_t i = 0; i < program_.operations.size() && status.ok(); ++i) {
      if ((packed_.shape.users[i] & users_) == 0) continue;
      const ValueId id = static_cast<ValueId>(i);
      status = std::visit([&](const auto& op) { return Execute(op, id); }, program_.operations[i]);
      CopyRowsOut(id);
      turn_.MayEnd();
    }
    if (!status.ok()) return status;
    for (StateArena::Run& run : ws_.runs) run.Commit();
    return OkStatus();
  }

 private:
  AxisRows Rows(AxisId axis) const {
    const AxisId of = program_.axes[axis].sequences_of;
    if (of != kNone) return {batch_.axes[of].num_sequences, ws_.one_row_each.data()};
    return {batch_.axes[axis].num_sequences, batch_.axes[axis].offsets};
  }
  AxisRows RowsOf(ValueId id) const { return Rows(values_[id].axis); }
  size_t Width(ValueId id) const { return static_cast<size_t>(values_[id].width); }
  // Row t of a value.
  float* Row(ValueId id, size_t t) const { return ws_.value(id) + t * Width(id); }

  bool HasSlots(AxisId axis) const { return (users_ & ProgramShape::StateBit(axis)) != 0; }

  // Of a sequence's slot; null without one.
  const float* StateIn(FieldId field, AxisId axis, int b) const {
    return HasSlots(axis) ? ws_.runs[axis].in(field, b) : nullptr;
  }
  float* StateOut(FieldId field, AxisId axis, int b) const {
    return HasSlots(axis) ? ws_.runs[axis].out(field, b) : nullptr;
  }
  // Of a growing field, before this run.
  int RowsBefore(FieldId field, AxisId axis, int b) const {
    return HasSlots(axis) ? ws_.runs[axis].rows(field, b) : 0;
  }

  // Calls body(begin, end, thread) for ranges of the rows, on several threads where that is worth
  // it.
  template <typename Body>
  void ForEachRange(int rows, double operations, const Body& body) {
    const int ranges =
        operations >= kMinSplitOperations
            ? std::min(rows, std::min(static_cast<int>(ws_.threads.size()), parallel_.threads()))
            : 1;
    if (ranges < 2) return body(0, rows, 0);
    parallel_.ForEach(ranges, [&](int range, int thread) {
      const auto begin = [&](int i) { return static_cast<int>(int64_t{rows} * i / ranges); };
      body(begin(range), begin(range + 1), thread);
    });
  }

  // Only the caller's thread takes turns, as in a stack.
  void MayEndTurn(int thread) {
    if (thread == 0) turn_.MayEnd();
  }

  // Calls use(output) for each output of this type that the batch asks for.
  template <typename Use>
  void ForEachOutput(ValueId id, OutputType type, const Use& use) const {
    for (size_t i = 0; outputs_ != nullptr && i < program_.outputs.size(); ++i) {
      const OutputSpec& output = program_.outputs[i];
      if (output.value == id && output.type == type && (users_ >> i & 1) != 0) use(outputs_[i]);
    }
  }

  void CopyRowsOut(ValueId id) const {
    ForEachOutput(id, OutputType::kRows, [&](const OutputBatch& output) {
      std::copy_n(ws_.value(id), RowsOf(id).num_rows() * Width(id), output.values);
    });
  }

  Status Execute(const ops::Features& op, ValueId id) {
    const size_t rows = RowsOf(id).num_rows();
    if (rows > 0) std::copy_n(batch_.inputs[op.input].values, rows * Width(id), ws_.value(id));
    return OkStatus();
  }

  Status Execute(const ops::Embed& op, ValueId id) {
    const AxisId axis = values_[id].axis;
    const AxisRows rows = Rows(axis);
    const EmbedTable& table = *packed_.operations[id].embed;
    for (int b = 0; b < rows.num_sequences; ++b) {
      int64_t position = op.position_field == kNone ? 0 : RowsBefore(op.position_field, axis, b);
      for (int t = rows.offsets[b]; t < rows.offsets[b + 1]; ++t, ++position) {
        if (op.position_ids != kNone) position = batch_.inputs[op.position_ids].ids[t];
        table.Row(batch_.inputs[op.ids].ids[t], position, Row(id, t));
      }
    }
    return OkStatus();
  }

  Status Execute(const ops::Linear& op, ValueId id) {
    const PackedOperation& packed = packed_.operations[id];
    const int rows = RowsOf(id).num_rows();
    if (packed.byte_product != nullptr) {
      const ByteMatrix& product = *packed.byte_product;
      ForEachRange(rows, product.operations(rows), [&](int begin, int end, int thread) {
        for (int first = begin; first < end; first += kByteRows) {
          product.Multiply(Row(op.x, first), std::min(kByteRows, end - first), op.relu,
                           &ws_.threads[thread].rounded, Row(id, first));
          MayEndTurn(thread);
        }
      });
      return OkStatus();
    }
    const BlockedProduct& product = *packed.product;
    ForEachRange(rows, product.operations(rows), [&](int begin, int end, int thread) {
      for (int first = begin; first < end; first += product.group_rows()) {
        const int count = std::min(product.group_rows(), end - first);
        ws_.threads[thread].products.Multiply(
            product, Row(op.x, first), nullptr, count, [&](const ProductPiece& piece) {
              AddBias(piece.z, piece.stride, packed.vectors[0].data() + piece.first, piece.rows,
                      piece.columns, op.relu, Row(id, first + piece.row) + piece.first, Width(id));
              MayEndTurn(thread);
            });
      }
    });
    return OkStatus();
  }

  Status Execute(const ops::Normalize& op, ValueId id) {
    const PackedOperation& packed = packed_.operations[id];
    const int rows = RowsOf(id).num_rows();
    for (int t = 0; t < rows; ++t) {
      NormalizeValues(Row(op.x, t), packed.vectors[0].data(), packed.vectors[1].data(), Width(id),
                      op.epsilon, Row(id, t));
    }
    return OkStatus();
  }

  Status Execute(const ops::Stack& op, ValueId id) {
    const AxisId axis = values_[id].axis;
    const AxisRows rows = Rows(axis);
    if (rows.num_sequences == 0) return OkStatus();
    RaggedBatch batch;
    batch.offsets = ws_.stack_offsets.data();
    if (op.ids != kNone) {
      batch.token_ids = batch_.inputs[op.ids].ids;
    } else {
      batch.features = ws_.value(op.x);
    }
    // The stack runs those that have rows.
    ws_.stack_offsets[0] = 0;
    for (int b = 0; b < rows.num_sequences; ++b) {
      const float* const before = op.state != kNone ? StateIn(op.state, axis, b) : nullptr;
      float* const after = op.state != kNone ? StateOut(op.state, axis, b) : nullptr;
      if (rows.Length(b) == 0) {
        if (after != nullptr) CopyOrClear(before, program_.fields[op.state].width, after);
        continue;
      }
      SequenceOutput& output = ws_.stack_outputs[batch.num_sequences];
      output = SequenceOutput();
      output.token_vectors = Row(id, rows.offsets[b]);
      output.final_state = after;
      ws_.initial_states[batch.num_sequences] = before;
      ws_.stack_offsets[++batch.num_sequences] = rows.offsets[b + 1];
    }
    if (batch.num_sequences == 0) return OkStatus();
    if (op.state != kNone && HasSlots(axis)) batch.initial_states = ws_.initial_states.data();
    // The stack counts this thread as busy itself.
    running_.reset();
    const RunPlan::Scope memory(&static_cast<StackWorkspace&>(*ws_.stacks[id]).plan,
                                ws_.stack_memory.data());
    Status status =
        packed_.operations[id].stack->Run(batch, ws_.stack_outputs.data(), *ws_.stacks[id]);
    running_.emplace(parallel_);
    turn_.Start();
    return status;
  }

  Status Execute(const ops::Ssru& op, ValueId id) {
    const AxisId axis = values_[id].axis;
    const AxisRows rows = Rows(axis);
    const size_t width = Width(id);
    for (int b = 0; b < rows.num_sequences; ++b) {
      float* const after = StateOut(op.state, axis, b);
      float* const c = after != nullptr ? after : ws_.lone_state.data();
      CopyOrClear(StateIn(op.state, axis, b), width, c);
      for (int t = rows.offsets[b]; t < rows.offsets[b + 1]; ++t) {
        SsruRow(Row(op.x, t), Row(op.forget, t), c, width, c, Row(id, t));
      }
    }
    return OkStatus();
  }

  // The keys and values that sequence b of an Attend sees.
  AttendCall CallOf(const ops::Attend& op, ValueId id, const AxisRows& rows, int b) const {
    const AxisId axis = values_[id].axis;
    AttendCall call;
    call.q = Row(op.q, rows.offsets[b]);
    call.rows = rows.Length(b);
    call.heads = op.heads;
    call.scale = op.scale;
    call.causal = op.causal;
    call.y = Row(id, rows.offsets[b]);
    call.keys.width = Width(op.q);
    call.values.width = Width(id);
    if (op.key_field != kNone) {
      const StateArena::Run& run = ws_.runs[axis];
      call.keys.pages = call.values.pages = run.pages(op.key_field, b).data();
      call.keys.offset = run.offset(op.key_field);
      call.values.offset = run.offset(op.value_field);
      call.num_keys = run.rows(op.key_field, b);
      if (b + 1 < rows.num_sequences && !run.pages(op.key_field, b + 1).empty()) {
        call.next_keys = run.pages(op.key_field, b + 1)[0] + call.keys.offset;
      }
      if (packed_.shape.field_axes[op.key_field] == axis) call.num_keys += call.rows;
    } else {
      const AxisRows keys = RowsOf(op.keys);
      const int sequence = op.map == kNone ? b : batch_.inputs[op.map].ids[b];
      call.keys.rows = Row(op.keys, keys.offsets[sequence]);
      call.values.rows = Row(op.values, keys.offsets[sequence]);
      call.num_keys = keys.Length(sequence);
    }
    return call;
  }

  Status Execute(const ops::Attend& op, ValueId id) {
    constexpr int kRowsOfTurn = 16;
    const AxisRows rows = RowsOf(id);
    float* const attention = AttentionOutput(id);
    double operations = 0;
    for (int b = 0; b < rows.num_sequences; ++b) {
      if (rows.Length(b) == 0) continue;
      operations += 2.0 * rows.Length(b) * CallOf(op, id, rows, b).num_keys;
    }
    operations *= static_cast<double>(Width(op.q) + Width(id));
    ForEachRange(rows.num_rows(), operations, [&](int begin, int end, int thread) {
      size_t weights = 0;  // of the sequences before b
      for (int b = 0; b < rows.num_sequences; ++b) {
        const int first = std::max(begin, rows.offsets[b]) - rows.offsets[b];
        const int last = std::min(end, rows.offsets[b + 1]) - rows.offsets[b];
        if (rows.Length(b) == 0 || (first >= last && attention == nullptr)) continue;
        AttendCall call = CallOf(op, id, rows, b);
        if (attention != nullptr) call.attention = attention + weights;
        weights += static_cast<size_t>(call.rows) * call.num_keys;
        for (int row = first; row < last; row += kRowsOfTurn) {
          AttendRows(call, row, std::min(row + kRowsOfTurn, last));
          MayEndTurn(thread);
        }
      }
    });
    CopyAttentionOut(id, attention);
    return OkStatus();
  }

  // The first output of an Attend's weights that is asked for; null if there is none.
  float* AttentionOutput(ValueId id) const {
    float* first = nullptr;
    ForEachOutput(id, OutputType::kAttention, [&](const OutputBatch& output) {
      if (first == nullptr) first = output.values;
    });
    return first;
  }

  // Copies the weights to the other outputs that want them.
  void CopyAttentionOut(ValueId id, const float* attention) const {
    ForEachOutput(id, OutputType::kAttention, [&](const OutputBatch& output) {
      if (output.values == attention) return;
      const AxisId axis = values_[id].axis;
      const StateArena::Run* const run = HasSlots(axis) ? &ws_.runs[axis] : nullptr;
      std::copy_n(attention, CountAttention(program_, packed_.shape, batch_, id, run),
                  output.values);
    });
  }

  Status Execute(const ops::Concat& op, ValueId id) {
    const int rows = RowsOf(id).num_rows();
    for (int t = 0; t < rows; ++t) {
      float* y = Row(id, t);
      for (ValueId x : op.xs) y = std::copy_n(Row(x, t), Width(x), y);
    }
    return OkStatus();
  }

  Status Execute(const ops::Add& op, ValueId id) {
    AddRows(ws_.value(op.a), ws_.value(op.b), RowsOf(id).num_rows() * Width(id), ws_.value(id));
    return OkStatus();
  }

  Status Execute(const ops::Pool& op, ValueId id) {
    const AxisRows rows = RowsOf(op.x);
    for (int b = 0; b < rows.num_sequences; ++b) {
      float* y = Row(id, b);
      std::fill_n(y, Width(id), 0.0f);
      if (rows.Length(b) == 0) continue;
      if (op.weights == kNone) {
        PoolSequence(op, rows.offsets[b], rows.offsets[b + 1], y);
      } else {
        PoolByWeight(op, rows.offsets[b], rows.offsets[b + 1], y);
      }
    }
    return OkStatus();
  }

  // Rows [begin, end), at least one.
  void PoolSequence(const ops::Pool& op, int begin, int end, float* y) const {
    const size_t width = Width(op.x);
    const auto max = [width](const float* row, float* pool) { MaxRow(row, width, pool); };
    const auto add = [width](const float* row, float* pool) { AddRows(pool, row, width, pool); };
    std::fill_n(y, width, PoolStart(op.pooling));
    for (int t = begin; t < end; ++t) {
      PoolRow(op.pooling, width / op.directions, width, t == begin, t + 1 == end, Row(op.x, t), y,
              max, add);
    }
    FinishPool(op.pooling, end - begin, width, y);
  }

  void PoolByWeight(const ops::Pool& op, int begin, int end, float* y) const {
    const float* weights = ws_.value(op.weights);
    const float largest = *std::max_element(weights + begin, weights + end);
    float sum = 0;
    for (int t = begin; t < end; ++t) {
      const float weight = std::exp(weights[t] - largest);
      sum += weight;
      ScaleAndAddRow(weight, Row(op.x, t), y, Width(op.x), y);
    }
    ScaleRow(1.0f / sum, y, Width(op.x), y);
  }

  Status Execute(const ops::RowDot& op, ValueId id) {
    const AxisRows rows = RowsOf(id);
    for (int b = 0; b < rows.num_sequences; ++b) {
      if (rows.Length(b) == 0) continue;
      const float* v = Row(op.v, op.map == kNone ? b : batch_.inputs[op.map].ids[b]);
      for (int t = rows.offsets[b]; t < rows.offsets[b + 1]; ++t) {
        *Row(id, t) = DotRows(Row(op.x, t), v, Width(op.x));
      }
    }
    return OkStatus();
  }

  Status Execute(const ops::Shift& op, ValueId id) {
    const AxisId axis = values_[id].axis;
    const AxisRows rows = Rows(axis);
    const size_t width = Width(id);
    // Where the value is not read, the field alone goes on.
    const bool is_read = (packed_.readers[id] & users_) != 0;
    for (int b = 0; b < rows.num_sequences; ++b) {
      const float* before = StateIn(op.last, axis, b);
      const int length = rows.Length(b);
      if (length > 0 && is_read) {
        CopyOrClear(before, width, Row(id, rows.offsets[b]));
        std::copy_n(Row(op.x, rows.offsets[b]), (length - 1) * width, Row(id, rows.offsets[b] + 1));
      }
      float* after = StateOut(op.last, axis, b);
      if (after == nullptr) continue;
      CopyOrClear(length > 0 ? Row(op.x, rows.offsets[b + 1] - 1) : before, width, after);
    }
    return OkStatus();
  }

  Status Execute(const ops::Last& op, ValueId id) {
    const AxisId axis = values_[op.x].axis;
    const AxisRows rows = Rows(axis);
    for (int b = 0; b < rows.num_sequences; ++b) {
      const float* from = nullptr;
      if (rows.Length(b) > 0) {
        from = Row(op.x, rows.offsets[b + 1] - 1);
      } else if (op.last != kNone) {
        from = StateIn(op.last, axis, b);
      }
      CopyOrClear(from, Width(id), Row(id, b));
    }
    return OkStatus();
  }

  Status Execute(const ops::Select& op, ValueId id) {
    const int rows = RowsOf(id).num_rows();
    for (int t = 0; t < rows; ++t) {
      std::copy_n(Row(op.x, batch_.inputs[op.rows].ids[t]), Width(id), Row(id, t));
    }
    return OkStatus();
  }

  // The value is x itself, in its memory.
  Status Execute(const ops::Append& op, ValueId id) {
    const AxisId axis = values_[id].axis;
    if (!HasSlots(axis)) return OkStatus();
    const AxisRows rows = Rows(axis);
    const size_t width = Width(id);
    for (int b = 0; b < rows.num_sequences; ++b) {
      const std::vector<float*>& pages = ws_.runs[axis].pages(op.field, b);
      const size_t offset = ws_.runs[axis].offset(op.field);
      int row = ws_.runs[axis].rows(op.field, b);
      ws_.runs[axis].CopySharedRows(op.field, b);
      for (int t = rows.offsets[b]; t < rows.offsets[b + 1]; ++t, ++row) {
        std::copy_n(Row(op.x, t), width,
                    pages[row / kStatePageRows] + offset + (row % kStatePageRows) * width);
      }
    }
    return OkStatus();
  }

  Status Execute(const ops::Predict& op, ValueId id) {
    const Prediction& prediction = *packed_.operations[id].predict;
    const int rows = RowsOf(id).num_rows();
    PredictThread::Call call;
    call.x = ws_.value(op.x);
    call.max_candidates = op.max_candidates;
    ForEachOutput(id, OutputType::kLogProb,
                  [&](const OutputBatch& output) { call.log_prob = output.values; });
    ForEachOutput(id, OutputType::kCandidates,
                  [&](const OutputBatch& output) { call.candidates = output.candidates; });
    ForEachOutput(id, OutputType::kPicked,
                  [&](const OutputBatch& output) { call.picked = output.candidates; });
    if (rows == 0) return OkStatus();
    if (call.log_prob != nullptr) call.targets = batch_.inputs[op.targets].ids;
    if (call.candidates != nullptr) call.counts = batch_.inputs[op.counts].ids;
    if (call.picked != nullptr) {
      call.sampling = batch_.inputs[op.sampling].sampling;
      TakeAdjustments(op, &call);
    }
    call.never = &op.never;
    int64_t symbols = 0;
    const int count = ListPredicted(op, id, call, &symbols);
    ForEachRange(count, prediction.operations(symbols), [&](int begin, int end, int thread) {
      CpuProgramWorkspace::Thread& own = ws_.threads[thread];
      for (int first = begin; first < end;) {
        const int32_t* const which = ws_.rows.data() + first;
        int group = std::min(prediction.group_rows(), end - first);
        // Rows of one run have the same choices.
        const PredictThread::Choices* const choices = ws_.choices.data() + first;
        group = static_cast<int>(
            std::find_if(choices, choices + group,
                         [choices](const auto& other) { return other.ids != choices->ids; }) -
            choices);
        // Adjacent rows need not be copied together first.
        const int adjacent = CountAdjacent(which, group);
        if (adjacent >= kMinAdjacentRows) group = adjacent;
        group = own.predict.RowsThatFit(prediction, call, which, group);
        own.predict.Run(prediction, call, *choices, which, group, own.products,
                        [&] { MayEndTurn(thread); });
        first += group;
      }
    });
    CopyPredictionsOut(id, rows, call);
    return OkStatus();
  }

  // Lists the rows of which something is asked, and their choices. Returns how many there are, and
  // adds up their symbols.
  int ListPredicted(const ops::Predict& op, ValueId id, const PredictThread::Call& call,
                    int64_t* symbols) {
    const AxisRows rows = RowsOf(id);
    int count = 0;
    for (int b = 0; b < rows.num_sequences; ++b) {
      PredictThread::Choices choices = {nullptr, op.vocabulary_size};
      if (op.choices != kNone) {
        const AxisRows ids = Rows(program_.inputs[op.choices].axis);
        const int sequence = batch_.inputs[op.choices_map].ids[b];
        choices = {batch_.inputs[op.choices].ids + ids.offsets[sequence], ids.Length(sequence)};
      }
      for (int t = rows.offsets[b]; t < rows.offsets[b + 1]; ++t) {
        const bool has_target = call.targets != nullptr && call.targets[t] >= 0;
        if (call.log_prob != nullptr && !has_target) call.log_prob[t] = 0;
        const bool has_candidates = call.counts != nullptr && call.counts[t] > 0;
        if (!has_target && !has_candidates && call.picked == nullptr) continue;
        *symbols += choices.count;
        ws_.choices[count] = choices;
        ws_.rows[count++] = t;
      }
    }
    return count;
  }

  void TakeAdjustments(const ops::Predict& op, PredictThread::Call* call) const {
    if (op.adjustments == kNone) return;
    const AxisRows adjusted = Rows(program_.inputs[op.adjustments].axis);
    if (adjusted.num_rows() == 0) return;
    call->adjusted_offsets = adjusted.offsets;
    call->adjustments = batch_.inputs[op.adjustments].adjustments;
    call->unadjusted = ws_.unadjusted.data();
  }

  // Copies the results to the other outputs that want them.
  void CopyPredictionsOut(ValueId id, int rows, const PredictThread::Call& call) const {
    ForEachOutput(id, OutputType::kLogProb, [&](const OutputBatch& output) {
      if (output.values != call.log_prob) std::copy_n(call.log_prob, rows, output.values);
    });
    ForEachOutput(id, OutputType::kPicked, [&](const OutputBatch& output) {
      if (output.candidates != call.picked) std::copy_n(call.picked, rows, output.candidates);
    });
    ForEachOutput(id, OutputType::kCandidates, [&](const OutputBatch& output) {
      if (output.candidates == call.candidates) return;
      for (int t = 0; t < rows; ++t) {
        const size_t from = static_cast<size_t>(t) * call.max_candidates;
        std::copy_n(call.candidates + from, call.counts[t], output.candidates + from);
      }
    });
  }

  const PackedProgram& packed_;
  const Program& program_;
  const std::vector<ValueSpec>& values_;
  const ProgramBatch& batch_;
  const OutputBatch* const outputs_;
  CpuProgramWorkspace& ws_;
  ParallelRunner& parallel_;
  const uint64_t users_;
  Turn turn_;  // begins with the batch
  std::optional<ParallelRunner::Batch> running_;
};

}  // namespace

Status RunProgram(const PackedProgram& packed, const ProgramBatch& batch,
                  const OutputBatch* outputs, CpuProgramWorkspace& workspace,
                  ParallelRunner& parallel) {
  const RunPlan::Scope memory(&workspace.plan);
  return ProgramRun(packed, batch, outputs, workspace, parallel).Run();
}

}  // namespace sru::kernels::cpu
