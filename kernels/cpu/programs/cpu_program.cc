#include "kernels/cpu/programs/cpu_program.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <variant>

#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/library_calls.h"

namespace sru::kernels::cpu {
namespace {

// Packs the weights of one operation after the other, as its list names them. Embed and Predict are
// packed in a way of their own.
class Packer : public ProgramVisitor {
 public:
  Packer(const Program& program, const ProgramShape& shape, const Arithmetic& arithmetic,
         WeightSource* source, const CompileStack& compile_stack)
      : ProgramVisitor(program, shape),
        arithmetic_(arithmetic),
        source_(source),
        compile_stack_(compile_stack) {}

  Status Pack(ValueId id, PackedOperation* packed) {
    packed_ = packed;
    std::visit([&](const auto& op) { PackWeights(op); }, program_.operations[id]);
    return status_;
  }

  void Matrix(const char* /*name*/, const FloatView& view, int64_t rows, int64_t columns) {
    const int n = static_cast<int>(rows);
    packed_->product = Shared(&products_, KeyOf(view, {}, n), [&] {
      return std::make_shared<BlockedProduct>(arithmetic_, source_, view, static_cast<int>(columns),
                                              n);
    });
  }
  // Zeros if it is absent.
  void Vector(const char* /*name*/, const FloatView& view, int64_t size, Presence = {}) {
    AlignedBuffer& copy = packed_->vectors.emplace_back(static_cast<size_t>(size));
    const ReadWeights readable(source_, view);
    std::copy_n(view.data, view.size, copy.data());
  }
  int Layers(const char* /*name*/, const StackSpec& spec, bool /*one_direction*/) {
    status_ = compile_stack_(spec, &packed_->stack);
    return 0;
  }

 private:
  // The views that operations share what is packed of: where they point to and their sizes.
  using ViewKey = std::tuple<const float*, size_t, const float*, size_t, int>;
  static ViewKey KeyOf(const FloatView& weight, const FloatView& bias, int width) {
    return {weight.data, weight.size, bias.data, bias.size, width};
  }

  using EmbedKey = std::tuple<const RowTable*, float, ops::Positions>;  // with the scale
  // The table, float32 or rounded; null for packed weights, which the view names.
  using PredictKey = std::tuple<const RowTable*, ViewKey, float>;  // with int8's activation
  using TableKey = std::tuple<const void*, size_t, int, float>;    // with int8's multiplier

  // What `known` has for the key, or else what `make` makes.
  template <typename Key, typename T, typename Make>
  static std::shared_ptr<const T> Shared(std::map<Key, std::shared_ptr<const T>>* known,
                                         const Key& key, const Make& make) {
    std::shared_ptr<const T>& packed = (*known)[key];
    if (packed == nullptr) packed = make();
    return packed;
  }

  void PackWeights(const ops::Embed& op) {
    packed_->table = Table(op.table, op.int8_table, op.width);
    const EmbedKey key = {packed_->table.get(), op.scale, op.positions};
    packed_->embed =
        Shared(&embeds_, key, [&] { return std::make_shared<EmbedTable>(op, packed_->table); });
  }
  void PackWeights(const ops::Predict& op) {
    if (op.choices != kNone || !op.int8_weight.empty()) {
      packed_->table = Table(op.weight, op.int8_weight, WidthOf(op.x));
    }
    const PredictKey key = {packed_->table.get(), KeyOf(op.weight, op.bias, op.vocabulary_size),
                            op.int8_weight.activation};
    packed_->predict = Shared(&predictions_, key, [&] {
      return std::make_shared<Prediction>(op, WidthOf(op.x), arithmetic_, packed_->table, source_);
    });
  }
  std::shared_ptr<const RowTable> Table(const FloatView& view, const Int8View& int8_view,
                                        int width) {
    const TableKey key =
        int8_view.empty() ? TableKey(view.data, view.size, width, 0)
                          : TableKey(int8_view.data, int8_view.size, width, int8_view.multiplier);
    return Shared(&tables_, key, [&] {
      if (!int8_view.empty()) return std::make_shared<RowTable>(int8_view, width);
      return std::make_shared<RowTable>(view, width, arithmetic_.rounds_embedding, source_);
    });
  }
  void PackWeights(const ops::Linear& op) {
    if (op.int8_weight.empty()) return op.Visit(*this);
    const ReadWeights readable(source_, op.bias);
    packed_->byte_product =
        std::make_unique<ByteMatrix>(op.int8_weight, WidthOf(op.x), op.width, op.bias);
  }
  template <typename Op>
  void PackWeights(const Op& op) {
    op.Visit(*this);
  }

  const Arithmetic arithmetic_;
  WeightSource* const source_;
  const CompileStack& compile_stack_;
  std::map<EmbedKey, std::shared_ptr<const EmbedTable>> embeds_;
  std::map<ViewKey, std::shared_ptr<const BlockedProduct>> products_;
  std::map<PredictKey, std::shared_ptr<const Prediction>> predictions_;
  std::map<TableKey, std::shared_ptr<const RowTable>> tables_;
  PackedOperation* packed_ = nullptr;
  Status status_;
};

// Gives out places in one piece of memory, which grows as needed.
class Places {
 public:
  size_t Take(size_t size) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->size < size) continue;
      const size_t begin = gap->begin;
      gap->begin += size;
      gap->size -= size;
      if (gap->size == 0) gaps_.erase(gap);
      return begin;
    }
    size_t begin = end_;
    if (!gaps_.empty() && gaps_.back().begin + gaps_.back().size == end_) {
      begin = gaps_.back().begin;
      gaps_.pop_back();
    }
    end_ = begin + size;
    return begin;
  }

  void Give(size_t begin, size_t size) {
    if (size == 0) return;
    auto next = std::find_if(gaps_.begin(), gaps_.end(),
                             [begin](const Gap& gap) { return gap.begin > begin; });
    next = gaps_.insert(next, {begin, size});
    if (std::next(next) != gaps_.end() && begin + size == std::next(next)->begin) {
      next->size += std::next(next)->size;
      gaps_.erase(std::next(next));
    }
    if (next != gaps_.begin() && std::prev(next)->begin + std::prev(next)->size == begin) {
      std::prev(next)->size += next->size;
      gaps_.erase(next);
    }
  }

  size_t end() const { return end_; }

 private:
  struct Gap {
    size_t begin;
    size_t size;
  };
  std::vector<Gap> gaps_;  // ascending, never adjacent
  size_t end_ = 0;
};

class CpuProgramExecutable : public ProgramExecutable {
 public:
  CpuProgramExecutable(std::unique_ptr<PackedProgram> packed,
                       std::shared_ptr<ParallelRunner> parallel, std::shared_ptr<RunMemory> memory)
      : packed_(std::move(packed)), parallel_(std::move(parallel)), memory_(std::move(memory)) {}

  Status CreateWorkspace(const ProgramLimits& limits,
                         std::unique_ptr<ProgramWorkspace>* workspace) const override {
    return CatchErrors("making a workspace", [&] {
      SRU_RETURN_IF_ERROR(ValidateLimits(packed_->program, limits));
      return CpuProgramWorkspace::Create(*packed_, limits, parallel_->threads(), memory_,
                                         workspace);
    });
  }

  Status CreateArena(const ArenaOptions& options,
                     std::unique_ptr<StateArena>* arena) const override {
    return CatchErrors("making an arena of states", [&] {
      *arena = std::make_unique<StateArena>(packed_->program.fields, packed_->shape.field_axes,
                                            options, HostArenaMemory());
      return OkStatus();
    });
  }

  Status Run(const ProgramBatch& batch, const OutputBatch* outputs,
             ProgramWorkspace& workspace) const override {
    UseOneThread();
    return CatchErrors("running a batch", [&] {
      SRU_RETURN_IF_ERROR(
          ValidateBatch(packed_->program, packed_->shape, workspace.limits(), batch, outputs));
      return RunProgram(*packed_, batch, outputs, static_cast<CpuProgramWorkspace&>(workspace),
                        *parallel_);
    });
  }

  size_t weight_bytes() const override { return packed_->bytes(); }

 private:
  std::unique_ptr<PackedProgram> packed_;
  std::shared_ptr<ParallelRunner> parallel_;
  std::shared_ptr<RunMemory> memory_;
};

}  // namespace

size_t PackedProgram::bytes() const {
  size_t bytes = 0;
  std::unordered_set<const void*> counted;
  const auto add = [&](const auto& packed) {
    if (packed != nullptr && counted.insert(packed.get()).second) bytes += packed->bytes();
  };
  for (const PackedOperation& operation : operations) {
    for (const AlignedBuffer& vector : operation.vectors) bytes += vector.bytes();
    add(operation.table);
    if (operation.byte_product != nullptr) bytes += operation.byte_product->bytes();
    add(operation.embed);
    add(operation.product);
    add(operation.predict);
    if (operation.stack != nullptr) bytes += operation.stack->weight_bytes();
  }
  return bytes;
}

Status CpuProgramWorkspace::Create(const PackedProgram& packed, const ProgramLimits& limits,
                                   int num_threads, std::shared_ptr<RunMemory> memory,
                                   std::unique_ptr<ProgramWorkspace>* workspace) {
  const Program& program = packed.program;
  std::unique_ptr<CpuProgramWorkspace> made(new CpuProgramWorkspace(limits, std::move(memory)));
  // Those of sequence axes follow from the others.
  int most_sequences = 0;
  for (size_t i = 0; i < program.axes.size(); ++i) {
    AxisLimits& axis = made->limits_.axes[i];
    const AxisId of = program.axes[i].sequences_of;
    if (of != kNone) axis = {limits.axes[of].max_sequences, limits.axes[of].max_sequences};
    most_sequences = std::max(most_sequences, axis.max_sequences);
  }
  made->LayOutValues(packed);

  made->threads.resize(std::min(num_threads, kMaxProgramThreads));
  int predicted_rows = 0;
  int adjustments = 0;
  made->stacks.resize(program.operations.size());
  for (size_t i = 0; i < program.operations.size(); ++i) {
    const PackedOperation& operation = packed.operations[i];
    const AxisLimits& axis = made->limits_.axes[packed.shape.values[i].axis];
    const auto* const predict = std::get_if<ops::Predict>(&program.operations[i]);
    const bool samples = predict != nullptr && predict->sampling != kNone;
    for (Thread& thread : made->threads) {
      if (operation.product != nullptr) thread.products.Add(*operation.product);
      if (operation.byte_product != nullptr) thread.rounded.Add(operation.byte_product->k());
      if (operation.predict != nullptr) {
        if (operation.predict->product) thread.products.Add(*operation.predict->product);
        thread.predict.Add(*operation.predict, samples ? axis.max_rows : 0);
      }
    }
    if (operation.predict != nullptr) predicted_rows = std::max(predicted_rows, axis.max_rows);
    if (samples && predict->adjustments != kNone) {
      const AxisId adjusted = program.inputs[predict->adjustments].axis;
      adjustments = std::max(adjustments, limits.axes[adjusted].max_rows);
    }
    if (operation.stack != nullptr && axis.max_rows > 0 && axis.max_sequences > 0) {
      WorkspaceLimits stack_limits;
      stack_limits.max_tokens = axis.max_rows;
      stack_limits.max_sequences = axis.max_sequences;
      stack_limits.states = std::get<ops::Stack>(program.operations[i]).state != kNone;
      stack_limits.turn = limits.turn;
      SRU_RETURN_IF_ERROR(operation.stack->CreateWorkspace(stack_limits, &made->stacks[i]));
      made->stack_memory.AtLeast(made->stacks[i]->bytes());
    }
  }

  made->one_row_each.resize(most_sequences + 1);
  for (int b = 0; b <= most_sequences; ++b) made->one_row_each[b] = b;
  made->stack_offsets.resize(most_sequences + 1);
  made->stack_outputs.resize(most_sequences);
  made->initial_states.resize(most_sequences);
  made->rows_added.resize(most_sequences);
  made->runs.resize(program.axes.size());
  made->rows.AtLeast(predicted_rows);
  made->choices.AtLeast(predicted_rows);
  made->unadjusted.AtLeast(adjustments);
  for (const FieldSpec& field : program.fields) {
    made->lone_state.AtLeast(field.grows ? 0 : field.width);
  }
  RunPlan& plan = made->plan;
  plan.Add(&made->values);
  plan.Add(&made->stack_memory);
  plan.Add(&made->rows);
  plan.Add(&made->choices);
  plan.Add(&made->unadjusted);
  plan.Add(&made->lone_state);
  for (Thread& thread : made->threads) {
    thread.products.LayOut(&plan);
    thread.predict.LayOut(&plan);
    thread.rounded.LayOut(&plan);
  }
  plan.Close();
  *workspace = std::move(made);
  return OkStatus();
}

// Memory is given back after an operation's last user and taken again by later ones. What runs in a
// batch is a part of the operations, in the same order, so what does not overlap here never does.
void CpuProgramWorkspace::LayOutValues(const PackedProgram& packed) {
  const Program& program = packed.program;
  const int count = static_cast<int>(program.operations.size());
  // Append makes no rows of its own.
  std::vector<ValueId> owner(count);
  std::vector<int> last_use(count);
  size_t spare = 0;
  for (ValueId id = 0; id < count; ++id) {
    const auto* append = std::get_if<ops::Append>(&program.operations[id]);
    owner[id] = append != nullptr ? owner[append->x] : id;
    last_use[id] = id;
    ForEachValue(program, id, [&](ValueId used) { last_use[owner[used]] = id; });
    // Products read rows past the last one.
    const PackedOperation& operation = packed.operations[id];
    const BlockedProduct* product = operation.product.get();
    if (operation.predict != nullptr && operation.predict->product) {
      product = &*operation.predict->product;
    }
    if (product != nullptr) {
      spare = std::max(spare, static_cast<size_t>(product->piece_rows()) * product->k());
    }
  }
  std::vector<size_t> sizes(count);
  offset_of_value.resize(count);
  Places places;
  for (ValueId id = 0; id < count; ++id) {
    if (owner[id] != id) {
      offset_of_value[id] = offset_of_value[owner[id]];
    } else {
      const ValueSpec& value = packed.shape.values[id];
      const size_t size = static_cast<size_t>(limits_.axes[value.axis].max_rows) * value.width;
      constexpr size_t kLine = kRowAlignment;
      sizes[id] = (size + kLine - 1) / kLine * kLine;
      offset_of_value[id] = places.Take(sizes[id]);
    }
    for (ValueId used = 0; used <= id; ++used) {
      if (owner[used] == used && last_use[used] == id) {
        places.Give(offset_of_value[used], sizes[used]);
      }
    }
  }
  values.AtLeast(places.end() + spare);
}

Status CompileProgram(const Program& program, const Arithmetic& arithmetic, WeightSource* source,
                      const CompileStack& compile_stack, std::shared_ptr<ParallelRunner> parallel,
                      std::shared_ptr<RunMemory> memory,
                      std::unique_ptr<ProgramExecutable>* executable) {
  return CatchErrors("packing weights", [&] {
    auto packed = std::make_unique<PackedProgram>();
    SRU_RETURN_IF_ERROR(Validate(program, &packed->shape));
    packed->program = WithoutWeights(program);
    ForEachInt8Weight(&packed->program, [](Int8View* view) { view->data = nullptr; });
    packed->operations.resize(program.operations.size());
    packed->readers.resize(program.operations.size());
    Packer packer(program, packed->shape, arithmetic, source, compile_stack);
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const ValueId id = static_cast<ValueId>(i);
      ForEachValue(program, id,
                   [&](ValueId used) { packed->readers[used] |= packed->shape.users[i]; });
      SRU_RETURN_IF_ERROR(packer.Pack(id, &packed->operations[i]));
    }
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      packed->readers[program.outputs[i].value] |= uint64_t{1} << i;
    }
    *executable = std::make_unique<CpuProgramExecutable>(std::move(packed), std::move(parallel),
                                                         std::move(memory));
    return OkStatus();
  });
}

}  // namespace sru::kernels::cpu
