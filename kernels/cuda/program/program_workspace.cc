#include "kernels/cuda/program/program_workspace.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "kernels/cuda/device/bucket.h"
#include "kernels/cuda/stack/cuda_workspace.h"

namespace sru::kernels::cuda {
namespace {

// A buffer for every value: in the order of the operations one that nobody reads any more, if there
// is one, else one more.
struct ValueBuffers {
  std::vector<size_t> bytes;
  std::vector<int> of_value;    // -1: a value without rows
  std::vector<size_t> rounded;  // [operation]: bytes from its beginning to the value's rounded rows

  ValueBuffers(const PackedProgram& packed, const std::vector<std::vector<int>>& row_buckets) {
    const size_t count = packed.operations.size();
    // One part of the program runs after the other.
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return packed.parts[packed.shape.values[a].axis] < packed.parts[packed.shape.values[b].axis];
    });
    // Append's value is x itself, and those of one product are in its rows.
    std::vector<ValueId> original(count);
    std::vector<size_t> last_use(count);  // [operation]: a place in `order`
    for (size_t place = 0; place < count; ++place) {
      const size_t i = order[place];
      original[i] = packed.OriginalOf(static_cast<ValueId>(i));
      const ValueId first = packed.operations[original[i]].first;
      if (first != kNone) original[i] = first;
      last_use[original[i]] = place;
      for (ValueId argument : packed.operations[i].arguments) last_use[original[argument]] = place;
    }
    for (const OutputSpec& output : packed.program.outputs) {
      if (output.type != OutputType::kRows) continue;
      last_use[original[output.value]] = std::numeric_limits<size_t>::max();
    }
    std::vector<ValueId> holder;  // [buffer]
    of_value.assign(count, -1);
    rounded.assign(count, 0);
    for (size_t place = 0; place < count; ++place) {
      const size_t i = order[place];
      const ValueSpec& value = packed.shape.values[i];
      if (value.width == 0) continue;
      if (original[i] != static_cast<ValueId>(i)) {
        of_value[i] = of_value[original[i]];
        rounded[i] = rounded[original[i]];
        continue;
      }
      const PackedOperation& operation = packed.operations[i];
      const size_t rows = row_buckets[value.axis].back();
      const int stride = packed.row_stride(static_cast<ValueId>(i));
      size_t needed = operation.keeps_float ? rows * stride * sizeof(float) : 0;
      if (operation.rounded_users != 0) {
        rounded[i] = (needed + ArrayPlan::kAlignment - 1) / ArrayPlan::kAlignment *
                     ArrayPlan::kAlignment;  // libraries rely on it
        needed = rounded[i] + rows * stride * ValueBytes(packed.dtype);
      }
      int chosen = -1;
      for (size_t b = 0; b < bytes.size(); ++b) {
        if (last_use[holder[b]] >= place) continue;
        const int buffer = static_cast<int>(b);
        // The smallest that is large enough, else the largest.
        const bool fits = bytes[b] >= needed;
        if (chosen < 0 || (fits && (bytes[chosen] < needed || bytes[b] < bytes[chosen])) ||
            (!fits && bytes[chosen] < needed && bytes[b] > bytes[chosen])) {
          chosen = buffer;
        }
      }
      if (chosen < 0) {
        chosen = static_cast<int>(bytes.size());
        bytes.push_back(0);
        holder.push_back(kNone);
      }
      bytes[chosen] = std::max(bytes[chosen], needed);
      holder[chosen] = static_cast<ValueId>(i);
      of_value[i] = chosen;
    }
  }
};

// The most rows of logits of n values, and as many as a workspace can use.
int PredictChunk(int n, const std::vector<int>& row_buckets) {
  for (size_t i = row_buckets.size() - 1; i-- > 0;) {
    const size_t rows = TokenBuckets(row_buckets[i]).back();
    if (i == 0 || rows * n * sizeof(float) <= kMaxLogitBytes) return row_buckets[i];
  }
  return row_buckets[0];
}

}  // namespace

ProgramBucket ProgramBucket::OfPart(const PackedProgram& packed, int number) const {
  ProgramBucket of_part = *this;
  of_part.part = number;
  of_part.users &= packed.part_users[number];
  for (size_t a = 0; a < rows.size(); ++a) {
    if (packed.parts[a] != number) of_part.rows[a] = of_part.sequences[a] = 0;
  }
  for (size_t i = 0; i < predicted.size(); ++i) {
    if (packed.parts[packed.shape.values[i].axis] != number) of_part.predicted[i] = 0;
  }
  return of_part;
}

bool ProgramBucket::is_empty() const {
  return users == 0 ||
         std::all_of(sequences.begin(), sequences.end(), [](int n) { return n == 0; });
}

bool ProgramBucket::wants(const Program& program, ValueId operation, OutputType type) const {
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const OutputSpec& output = program.outputs[i];
    if (output.value == operation && output.type == type && (users >> i & 1) != 0) return true;
  }
  return false;
}

ProgramLayout::ProgramLayout(const PackedProgram& packed, const ProgramBucket& bucket) {
  const Program& program = packed.program;
  size_t end = 0;
  const auto take = [&end](size_t bytes) {
    const size_t begin = end;
    end = AlignStaged(end + bytes);
    return begin;
  };
  for (size_t a = 0; a < program.axes.size(); ++a) {
    const size_t rows = bucket.rows[a];
    const size_t sequences = bucket.sequences[a];
    Axis axis;
    axis.header = take(sizeof(AxisHeader));
    axis.offsets = take((sequences + 1) * sizeof(int32_t));
    axis.row_sequence = take(packed.has_operations[a] ? rows * sizeof(int32_t) : 0);
    axis.entries = take(packed.has_stack[a] ? sequences * sizeof(SequenceEntry) : 0);
    axes.push_back(axis);
  }
  for (const InputSpec& input : program.inputs) {
    const bool of_sequences = RowOf(input.type).of_sequences;
    const size_t count = of_sequences ? bucket.sequences[input.axis] : bucket.rows[input.axis];
    inputs.push_back(take(count * input.item_bytes()));
  }
  for (size_t i = 0; i < program.operations.size(); ++i) {
    Predict predict;
    if (std::holds_alternative<ops::Predict>(program.operations[i])) {
      const size_t bytes = bucket.predicted[i] * sizeof(int32_t);
      predict.header = take(sizeof(PredictHeader));
      predict.rows = take(bytes);
      predict.targets = take(bytes);
      predict.counts = take(bytes);
    }
    predicts.push_back(predict);
    const bool attends = bucket.wants(program, static_cast<ValueId>(i), OutputType::kAttention);
    const size_t sequences = bucket.sequences[packed.shape.values[i].axis];
    attentions.push_back(take(attends ? sequences * sizeof(int64_t) : 0));
  }
  for (const FieldUse& use : packed.field_uses) {
    Field field;
    if (bucket.has_slots(use.axis)) {
      const bool grows = program.fields[use.field].grows;
      const size_t bytes = bucket.sequences[use.axis] * (grows ? sizeof(int32_t) : sizeof(float*));
      field.in = take(bytes);
      field.out = take(bytes);
      if (packed.appends(use)) {
        field.copied = take(bucket.sequences[use.axis] * sizeof(float*));
      }
    }
    fields.push_back(field);
  }
  pages = end;
}

CudaProgramWorkspace::CudaProgramWorkspace(const PackedProgram& packed, std::shared_ptr<Gpu> gpu,
                                           const ProgramLimits& limits)
    : gpu_(std::move(gpu)), graphs(kMaxGraphs, &gpu_->graph_use()), limits_(limits) {
  for (size_t a = 0; a < packed.program.axes.size(); ++a) {
    const AxisId axis = static_cast<AxisId>(a);
    const AxisLimits& of_sequences = limits.axes[packed.sequences_of(axis)];
    const int max_rows =
        packed.is_sequence_axis(axis) ? of_sequences.max_sequences : limits.axes[a].max_rows;
    row_buckets_.push_back(packed.has_operations[a] ? TokenBuckets(max_rows)
                                                    : InputBuckets(max_rows));
    max_sequences_.push_back(of_sequences.max_sequences);
  }
  for (const ProductGroup& group : packed.groups) {
    predict_chunks_.push_back(
        group.predict == kNone ? 0 : PredictChunk(group.shapes[0].n, row_buckets_[group.axis]));
  }
}

int CudaProgramWorkspace::RowBucket(AxisId axis, int rows, bool coarse) const {
  if (rows == 0) return 0;
  const std::vector<int>& buckets = row_buckets_[axis];
  if (!coarse) return *std::lower_bound(buckets.begin(), buckets.end(), rows);
  int bucket = buckets.front();
  while (bucket < rows) bucket *= 2;
  return std::min(bucket, buckets[buckets.size() - 2]);
}

int CudaProgramWorkspace::SequenceBucketOf(AxisId axis, int sequences) const {
  return sequences == 0 ? 0 : SequenceBucket(sequences, max_sequences_[axis]);
}

const ProductChoice& CudaProgramWorkspace::Choice(const Choices& choices,
                                                  const PackedProduct& product, int rows) {
  const std::vector<int>& counts = choices.row_counts;
  const auto found = std::lower_bound(counts.begin(), counts.end(), rows);
  return choices.of_shapes[product.shape][found - counts.begin()];
}

Status CudaProgramWorkspace::ChooseProducts(const PackedProgram& packed,
                                            const ProgramOnDevice& device) {
  for (size_t i = 0; i < packed.groups.size(); ++i) {
    const ProductGroup& group = packed.groups[i];
    Choices choices;
    choices.row_counts =
        group.predict == kNone ? row_buckets_[group.axis] : TokenBuckets(predict_chunks_[i]);
    SRU_RETURN_IF_ERROR(device.plans[i]->Choose(choices.row_counts, *stream, &choices.of_shapes));
    group_choices_.push_back(std::move(choices));
  }
  for (size_t i = 0; i < packed.operations.size(); ++i) {
    const int stack = packed.operations[i].stack;
    if (stack < 0) continue;
    Choices choices;
    choices.row_counts = row_buckets_[packed.shape.values[i].axis];
    SRU_RETURN_IF_ERROR(
        device.stacks[stack].plans->Choose(choices.row_counts, *stream, &choices.of_shapes));
    stack_choices_.push_back(std::move(choices));  // stacks are in the order of their operations
  }
  return OkStatus();
}

ProgramBucket CudaProgramWorkspace::LargestBucket(const PackedProgram& packed) const {
  ProgramBucket bucket;
  bucket.users = ~uint64_t{0};
  for (const std::vector<int>& buckets : row_buckets_) {
    bucket.rows.push_back(buckets[buckets.size() - 2]);
  }
  bucket.sequences = max_sequences_;
  for (size_t i = 0; i < packed.operations.size(); ++i) {
    const bool predicts = std::holds_alternative<ops::Predict>(packed.program.operations[i]);
    bucket.predicted.push_back(predicts ? bucket.rows[packed.shape.values[i].axis] : 0);
  }
  return bucket;
}

Status CudaProgramWorkspace::Create(const PackedProgram& packed, const ProgramOnDevice& device,
                                    const ProgramLimits& limits,
                                    std::unique_ptr<CudaProgramWorkspace>* workspace) {
  const Program& program = packed.program;
  std::unique_ptr<CudaProgramWorkspace> ws(new CudaProgramWorkspace(packed, device.gpu, limits));
  const ProgramBucket largest = ws->LargestBucket(packed);
  const size_t value_bytes = ValueBytes(packed.dtype);

  // Scratch: the most that one operation takes.
  std::array<size_t, StackScratch::kArrays> scratch = {};
  size_t token_rows = 0;
  size_t predicted = 0, logits = 0, unadjusted = 0;
  for (size_t i = 0; i < packed.operations.size(); ++i) {
    const PackedOperation& operation = packed.operations[i];
    const AxisId axis = packed.shape.values[i].axis;
    const size_t rows = ws->row_buckets_[axis].back();
    if (operation.stack >= 0) {
      const PackedStack& stack = *packed.stacks[operation.stack];
      const auto needed = StackScratch::Bytes(stack, rows);
      for (size_t k = 0; k < needed.size(); ++k) scratch[k] = std::max(scratch[k], needed[k]);
      token_rows = std::max(token_rows, rows * stack.output().stride() * sizeof(float));
    }
    if (operation.group < 0) continue;
    const ProductShape& shape = packed.shape_of(operation);
    if (packed.groups[operation.group].predict != kNone) {
      const size_t chunk = TokenBuckets(ws->predict_chunks_[operation.group]).back();
      predicted = std::max(predicted, chunk * shape.k * value_bytes);
      logits = std::max(logits, chunk * shape.n * sizeof(float));
    }
  }
  for (const InputSpec& input : program.inputs) {
    if (input.type != InputType::kAdjustments) continue;
    unadjusted = std::max(unadjusted, largest.rows[input.axis] * sizeof(float));
  }
  ArrayPlan on_device;
  on_device.AddEach(ws->scratch.arrays(), scratch);
  on_device.Add(&ws->token_rows, token_rows);
  ws->states.resize(program.axes.size());
  for (size_t a = 0; a < ws->states.size(); ++a) {
    const size_t sequences = ws->max_sequences_[a];
    on_device.Add(&ws->states[a], sequences * packed.state_sizes[a] * sizeof(float));
  }
  on_device.Add(&ws->predicted, predicted);
  on_device.Add(&ws->logits, logits);
  on_device.Add(&ws->unadjusted, unadjusted);
  ArrayPlan on_host;
  ws->staging.resize(packed.part_users.size());
  for (size_t part = 0; part < ws->staging.size(); ++part) {
    Staging& staging = ws->staging[part];
    staging.bytes = ProgramLayout(packed, largest.OfPart(packed, static_cast<int>(part))).pages;
    // Pages to begin with: of sequences that are twice as long as a page and what a batch adds.
    size_t pages = 0;
    for (const FieldUse& use : packed.field_uses) {
      if (!program.fields[use.field].grows) continue;
      if (static_cast<size_t>(packed.parts[use.axis]) != part) continue;
      pages += 3 * static_cast<size_t>(ws->max_sequences_[use.axis]) +
               largest.rows[use.axis] / kStatePageRows;
    }
    on_device.Add(&staging.input, staging.bytes + pages * sizeof(float*));
    on_host.Add(&staging.host_input, staging.bytes + pages * sizeof(float*));
  }
  const ValueBuffers buffers(packed, ws->row_buckets_);
  ws->value_buffer_ = buffers.of_value;
  ws->value_rounded_ = buffers.rounded;
  for (size_t i = 0; i < packed.operations.size(); ++i) {
    ws->value_column_.push_back(packed.column(static_cast<ValueId>(i)));
  }
  ws->values_.resize(buffers.bytes.size());
  for (size_t i = 0; i < buffers.bytes.size(); ++i) {
    on_device.Add(&ws->values_[i], buffers.bytes[i]);
  }
  ws->predictions.resize(packed.operations.size());
  for (size_t i = 0; i < packed.operations.size(); ++i) {
    const auto* const predict = std::get_if<ops::Predict>(&program.operations[i]);
    if (predict == nullptr) continue;
    Prediction& prediction = ws->predictions[i];
    const size_t log_prob = largest.predicted[i] * sizeof(float);
    const size_t candidates = largest.predicted[i] * predict->max_candidates * sizeof(Candidate);
    on_device.Add(&prediction.candidates, candidates);
    on_host.Add(&prediction.host_log_prob, log_prob);
    on_host.Add(&prediction.host_candidates, candidates);
    if (predict->sampling == kNone) continue;
    const size_t picked = largest.predicted[i] * sizeof(Candidate);
    on_host.Add(&prediction.host_picked, picked);
  }
  ws->outputs.resize(program.outputs.size());
  ws->attentions.resize(packed.operations.size());
  for (size_t i = 0; i < packed.operations.size(); ++i) {
    if (!largest.wants(program, static_cast<ValueId>(i), OutputType::kAttention)) continue;
    Attention& attention = ws->attentions[i];
    const size_t weights = static_cast<size_t>(limits.max_attention_values) * sizeof(float);
    on_device.Add(&attention.weights, weights);
    on_host.Add(&attention.host_weights, weights);
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const ValueId value = program.outputs[i].value;
    if (program.outputs[i].type != OutputType::kRows) continue;
    const size_t rows = largest.rows[packed.shape.values[value].axis];
    on_host.Add(&ws->outputs[i], rows * packed.stride(value) * sizeof(float));
  }

  const size_t device_bytes = device.gpu->device().product_workspace_bytes() + on_device.bytes();
  std::string what = "a workspace";
  for (size_t a = 0; a < program.axes.size(); ++a) {
    if (packed.is_sequence_axis(static_cast<AxisId>(a))) continue;
    what += (a == 0 ? " for " : ", ") + std::to_string(limits.axes[a].max_rows) + " rows and " +
            std::to_string(limits.axes[a].max_sequences) + " sequences of " + program.axes[a].name;
  }
  const std::shared_ptr<Gpu>& gpu = device.gpu;
  SRU_RETURN_IF_ERROR(gpu->CheckBudget(what, device_bytes));
  SRU_RETURN_IF_ERROR(GpuStream::Create(gpu, &ws->stream));
  // Before the other memory is taken, for the trials need some of their own.
  SRU_RETURN_IF_ERROR(ws->ChooseProducts(packed, device));
  SRU_RETURN_IF_ERROR(ws->stream.CreateInitialized(gpu, on_device, &ws->device_memory_));
  SRU_RETURN_IF_ERROR(PinnedBuffer::Create(gpu, on_host, &ws->host_memory_));
  on_device.Place(ws->device_memory_.data());
  on_host.Place(ws->host_memory_.data());
  ws->bytes_ = device_bytes + on_host.bytes();
  *workspace = std::move(ws);
  return OkStatus();
}

Status CudaProgramWorkspace::ReservePages(int part, const ProgramLayout& layout, size_t pages) {
  Staging& of_part = staging[part];
  if (layout.pages + pages * sizeof(float*) <= of_part.input.bytes()) return OkStatus();
  const size_t bytes = of_part.bytes + 2 * pages * sizeof(float*);
  DeviceBuffer larger;
  PinnedBuffer host_larger;
  SRU_RETURN_IF_ERROR(stream.CreateInitialized(gpu_, bytes, &larger));
  SRU_RETURN_IF_ERROR(PinnedBuffer::Create(gpu_, bytes, &host_larger));
  // The arrays of the first room stay: they are part of an allocation that holds the others too.
  bytes_ += 2 * (bytes - of_part.grown.bytes());
  graphs.Clear();
  of_part.grown = std::move(larger);
  of_part.host_grown = std::move(host_larger);
  of_part.input = ArrayView(of_part.grown.data(), bytes);
  of_part.host_input = ArrayView(of_part.host_grown.data(), bytes);
  return OkStatus();
}

CudaProgramWorkspace::~CudaProgramWorkspace() {
  // Nothing may be in flight when the memory goes; what the device says of it is of no use here.
  if (stream.get() != nullptr) (void)stream->Wait();
  graphs.Clear();
}

}  // namespace sru::kernels::cuda
