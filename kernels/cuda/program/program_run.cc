#include "kernels/cuda/program/program_run.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <variant>

#include "kernels/cuda/kernels/kernel_args.h"

namespace sru::kernels::cuda {

// They are copied as they are.
static_assert(sizeof(Sampling) == sizeof(PickSampling) &&
              offsetof(Sampling, top_k) == offsetof(PickSampling, top_k) &&
              offsetof(Sampling, top_p) == offsetof(PickSampling, top_p) &&
              offsetof(Sampling, min_p) == offsetof(PickSampling, min_p) &&
              offsetof(Sampling, random) == offsetof(PickSampling, random));
static_assert(sizeof(Adjustment) == sizeof(PickAdjustment) &&
              offsetof(Adjustment, scale) == offsetof(PickAdjustment, scale) &&
              offsetof(Adjustment, add) == offsetof(PickAdjustment, add));

ProgramRun::ProgramRun(const PackedProgram& packed, const ProgramBatch& batch,
                       const OutputBatch* outputs, CudaProgramWorkspace& workspace)
    : packed_(packed),
      batch_(batch),
      outputs_(outputs),
      ws_(workspace),
      users_(BatchUsers(packed.program, batch, outputs)),
      bucket_(MakeBucket()) {
  for (size_t number = 0; number < packed.part_users.size(); ++number) {
    ProgramBucket bucket = bucket_.OfPart(packed, static_cast<int>(number));
    if (bucket.is_empty()) continue;
    const ProgramLayout layout(packed, bucket);
    parts_.push_back({std::move(bucket), layout});
  }
}

template <typename Use>
void ProgramRun::ForEachAsked(ValueId id, const Use& use) const {
  const auto& predict = std::get<ops::Predict>(packed_.program.operations[id]);
  const int rows = rows_[packed_.shape.values[id].axis];
  if (rows == 0) return;  // nothing need be given
  const int32_t* targets = nullptr;
  const int32_t* counts = nullptr;
  bool picks = false;
  for (size_t i = 0; i < packed_.program.outputs.size(); ++i) {
    const OutputSpec& output = packed_.program.outputs[i];
    if (output.value != id || !wants(i)) continue;
    if (output.type == OutputType::kLogProb) targets = batch_.inputs[predict.targets].ids;
    if (output.type == OutputType::kCandidates) counts = batch_.inputs[predict.counts].ids;
    if (output.type == OutputType::kPicked) picks = true;
  }
  for (int row = 0; row < rows; ++row) {
    const int32_t target = targets != nullptr ? targets[row] : -1;
    const int32_t count = counts != nullptr ? counts[row] : 0;
    if (picks || target >= 0 || count > 0) use(row, target, count);
  }
}

ProgramBucket ProgramRun::MakeBucket() {
  const Program& program = packed_.program;
  ProgramBucket bucket;
  bucket.users = users_;
  for (size_t a = 0; a < program.axes.size(); ++a) {
    const AxisId axis = static_cast<AxisId>(a);
    const AxisBatch& given = batch_.axes[packed_.sequences_of(axis)];
    sequences_.push_back(given.num_sequences);
    rows_.push_back(packed_.is_sequence_axis(axis) ? given.num_sequences : given.num_rows());
    bucket.sequences.push_back(ws_.SequenceBucketOf(axis, sequences_[a]));
  }
  std::vector<bool> coarse(rows_.size());
  for (size_t a = 0; a < rows_.size(); ++a) {
    // The first of those with the most rows is not.
    for (size_t other = 0; other < rows_.size() && packed_.has_operations[a]; ++other) {
      if (packed_.parts[other] != packed_.parts[a] || !packed_.has_operations[other]) continue;
      if (rows_[other] > rows_[a] || (rows_[other] == rows_[a] && other < a)) coarse[a] = true;
    }
    bucket.rows.push_back(ws_.RowBucket(static_cast<AxisId>(a), rows_[a], coarse[a]));
  }
  for (size_t i = 0; i < program.operations.size(); ++i) {
    const ValueId id = static_cast<ValueId>(i);
    int asked = 0;
    int32_t max_count = 0;
    if (std::holds_alternative<ops::Predict>(program.operations[i]) && runs(id)) {
      ForEachAsked(id, [&](int, int32_t, int32_t count) {
        ++asked;
        max_count = std::max(max_count, count);
      });
    }
    asked_.push_back(asked);
    max_count_.push_back(max_count);
    const AxisId axis = packed_.shape.values[i].axis;
    bucket.predicted.push_back(ws_.RowBucket(axis, asked, coarse[axis]));
  }
  return bucket;
}

Status ProgramRun::BeginStates() {
  states_.resize(packed_.program.axes.size());
  std::vector<int> rows_added;
  for (size_t a = 0; a < states_.size(); ++a) {
    if (packed_.is_sequence_axis(static_cast<AxisId>(a)) ||
        !bucket_.has_slots(static_cast<AxisId>(a))) {
      continue;
    }
    const AxisBatch& axis = batch_.axes[a];
    rows_added.resize(axis.num_sequences);
    for (int b = 0; b < axis.num_sequences; ++b) {
      rows_added[b] = axis.offsets[b + 1] - axis.offsets[b];
    }
    SRU_RETURN_IF_ERROR(batch_.arena->BeginRun(axis.slots, rows_added.data(), axis.num_sequences,
                                               static_cast<AxisId>(a), &states_[a]));
    SRU_RETURN_IF_ERROR(ValidateStates(packed_.program, packed_.shape, ws_.limits(), batch_,
                                       outputs_, static_cast<AxisId>(a), states_[a]));
  }
  for (const Part& part : parts_) {
    size_t pages = 0;
    for (const FieldUse& use : packed_.field_uses) {
      if (!part.bucket.has_slots(use.axis) || !packed_.program.fields[use.field].grows) continue;
      for (int b = 0; b < sequences_[use.axis]; ++b) {
        pages += states_[use.axis].pages(use.field, b).size();
      }
    }
    SRU_RETURN_IF_ERROR(ws_.ReservePages(part.bucket.part, part.layout, pages));
  }
  return OkStatus();
}

size_t ProgramRun::WriteInput(const Part& part) {
  for (size_t a = 0; a < packed_.program.axes.size(); ++a) {
    if (is_of(part, static_cast<AxisId>(a))) WriteAxis(part, static_cast<AxisId>(a));
  }
  WriteInputs(part);
  for (size_t i = 0; i < asked_.size(); ++i) {
    const ValueId id = static_cast<ValueId>(i);
    if (!is_of(part, packed_.shape.values[i].axis)) continue;
    if (std::holds_alternative<ops::Predict>(packed_.program.operations[i])) WritePredict(part, id);
    if (part.bucket.wants(packed_.program, id, OutputType::kAttention)) {
      CountWeights(id, Host<int64_t>(part, part.layout.attentions[id]));
    }
  }
  return WriteFields(part);
}

void ProgramRun::WriteAxis(const Part& part, AxisId axis) {
  const ProgramLayout::Axis& layout = part.layout.axes[axis];
  const int count = sequences_[axis];
  AxisHeader header{};
  header.rows.num_tokens = rows_[axis];
  header.num_sequences = count;
  *Host<AxisHeader>(part, layout.header) = header;
  int32_t* const offsets = Host<int32_t>(part, layout.offsets);
  if (packed_.is_sequence_axis(axis) || count == 0) {
    std::iota(offsets, offsets + count + 1, 0);  // a row for each sequence
  } else {
    std::copy_n(batch_.axes[axis].offsets, count + 1, offsets);
  }
  if (!packed_.has_operations[axis]) return;
  int32_t* const row_sequence = Host<int32_t>(part, layout.row_sequence);
  for (int b = 0; b < count; ++b) {
    std::fill(row_sequence + offsets[b], row_sequence + offsets[b + 1], b);
  }
  if (!packed_.has_stack[axis]) return;
  SequenceEntry* const entries = Host<SequenceEntry>(part, layout.entries);
  for (int b = 0; b < count; ++b) {
    SequenceEntry& entry = entries[b];
    entry = SequenceEntry{};
    entry.begin = entry.token_row = offsets[b];
    entry.length = offsets[b + 1] - offsets[b];
    entry.index = entry.state_row = b;
    entry.pooling = Pooling::kNone;
    entry.pool_row = entry.label_row = -1;
  }
  OrderSequences(entries, count, part.bucket.sequences[axis]);
}

void ProgramRun::WriteInputs(const Part& part) {
  if (batch_.inputs == nullptr) return;
  for (size_t i = 0; i < packed_.program.inputs.size(); ++i) {
    const InputSpec& input = packed_.program.inputs[i];
    if (!is_of(part, input.axis)) continue;
    const int count = RowOf(input.type).of_sequences ? sequences_[input.axis] : rows_[input.axis];
    const void* const from = batch_.inputs[i].Data(input.type);
    const size_t bytes = count * input.item_bytes();
    // What is not given is not needed.
    if (from != nullptr && bytes > 0)
      std::memcpy(Host<char>(part, part.layout.inputs[i]), from, bytes);
  }
}

void ProgramRun::WritePredict(const Part& part, ValueId id) {
  const ProgramLayout::Predict& layout = part.layout.predicts[id];
  const CudaProgramWorkspace::Prediction& prediction = ws_.predictions[id];
  const ArrayView& candidates =
      CopiesCandidates(id) ? prediction.candidates : prediction.host_candidates;
  *Host<PredictHeader>(part, layout.header) =
      PredictHeader{{asked_[id], {}}, max_count_[id], 0, candidates.as<PredictCandidate>()};
  if (asked_[id] == 0) return;
  int32_t* const rows = Host<int32_t>(part, layout.rows);
  int32_t* const targets = Host<int32_t>(part, layout.targets);
  int32_t* const counts = Host<int32_t>(part, layout.counts);
  int asked = 0;
  ForEachAsked(id, [&](int row, int32_t target, int32_t count) {
    rows[asked] = row;
    targets[asked] = target;
    counts[asked] = count;
    ++asked;
  });
}

int64_t ProgramRun::CountWeights(ValueId attend, int64_t* begins) const {
  const AxisId axis = packed_.shape.values[attend].axis;
  return CountAttention(packed_.program, packed_.shape, batch_, attend,
                        bucket_.has_slots(axis) ? &states_[axis] : nullptr, begins);
}

size_t ProgramRun::WriteFields(const Part& part) {
  float** const pages = Host<float*>(part, part.layout.pages);
  size_t num_pages = 0;
  for (size_t i = 0; i < packed_.field_uses.size(); ++i) {
    const FieldUse& use = packed_.field_uses[i];
    if (!part.bucket.has_slots(use.axis)) continue;
    const StateArena::Run& states = states_[use.axis];
    const ProgramLayout::Field& layout = part.layout.fields[i];
    for (int b = 0; b < sequences_[use.axis]; ++b) {
      if (!packed_.program.fields[use.field].grows) {
        Host<const float*>(part, layout.in)[b] = states.in(use.field, b);
        Host<float*>(part, layout.out)[b] = states.out(use.field, b);
        continue;
      }
      const std::vector<float*>& of_sequence = states.pages(use.field, b);
      Host<int32_t>(part, layout.in)[b] = states.rows(use.field, b);
      Host<int32_t>(part, layout.out)[b] = static_cast<int32_t>(num_pages);
      if (packed_.appends(use)) {
        Host<const float*>(part, layout.copied)[b] = states.copied_from(use.field, b);
      }
      std::copy(of_sequence.begin(), of_sequence.end(), pages + num_pages);
      num_pages += of_sequence.size();
    }
  }
  return part.layout.pages + num_pages * sizeof(float*);
}

ProgramRun::Result ProgramRun::ResultOf(size_t output) const {
  const ValueId value = packed_.program.outputs[output].value;
  const CudaProgramWorkspace::Prediction& prediction = ws_.predictions[value];
  const size_t asked = asked_[value];
  switch (packed_.program.outputs[output].type) {
    case OutputType::kRows: {
      const size_t rows = rows_[packed_.shape.values[value].axis];
      return {ws_.outputs[output], ws_.value(value), rows * packed_.stride(value) * sizeof(float)};
    }
    case OutputType::kLogProb:
      return {prediction.host_log_prob, nullptr, asked * sizeof(float)};
    case OutputType::kCandidates:
      return {prediction.host_candidates,
              CopiesCandidates(value) ? prediction.candidates.data() : nullptr,
              CandidateBytes(value)};
    case OutputType::kPicked:
      return {prediction.host_picked, nullptr, asked * sizeof(PredictCandidate)};
    case OutputType::kAttention:
      return {ws_.attentions[value].host_weights, ws_.attentions[value].weights.data(),
              CountWeights(value) * sizeof(float)};
  }
  return {};
}

Status ProgramRun::EnqueueResults() const {
  for (size_t i = 0; i < packed_.program.outputs.size(); ++i) {
    const Result result = wants(i) ? ResultOf(i) : Result();
    if (result.bytes == 0 || result.device == nullptr) continue;
    SRU_RETURN_IF_ERROR(ws_.stream->CopyToHost(result.host.data(), result.device, result.bytes));
  }
  return OkStatus();
}

void ProgramRun::ReadResults() const {
  for (size_t i = 0; i < packed_.program.outputs.size(); ++i) {
    if (!wants(i)) continue;
    const OutputSpec& output = packed_.program.outputs[i];
    const ValueSpec& value = packed_.shape.values[output.value];
    const size_t rows = rows_[value.axis];
    const Result result = ResultOf(i);
    float* const values = outputs_[i].values;
    switch (output.type) {
      case OutputType::kRows:
        for (size_t row = 0; row < rows; ++row) {
          packed_.layout(output.value)
              .Unpack(result.host.as<float>() + row * packed_.stride(output.value),
                      values + row * value.width);
        }
        break;
      case OutputType::kLogProb: {
        std::fill_n(values, rows, 0.0f);
        const float* from = result.host.as<float>();
        ForEachAsked(output.value, [&](int row, int32_t, int32_t) { values[row] = *from++; });
        break;
      }
      case OutputType::kCandidates: {
        const auto& predict = std::get<ops::Predict>(packed_.program.operations[output.value]);
        const size_t most = predict.max_candidates;
        const PredictCandidate* from = result.host.as<PredictCandidate>();
        ForEachAsked(output.value, [&](int row, int32_t, int32_t count) {
          for (int c = 0; c < count; ++c) {
            outputs_[i].candidates[row * most + c] = {from[c].id, from[c].log_prob};
          }
          from += max_count_[output.value];
        });
        break;
      }
      case OutputType::kPicked: {
        const PredictCandidate* const from = result.host.as<PredictCandidate>();
        for (size_t row = 0; row < rows; ++row) {
          outputs_[i].candidates[row] = {from[row].id, from[row].log_prob};
        }
        break;
      }
      case OutputType::kAttention:
        if (result.bytes > 0) std::memcpy(values, result.host.data(), result.bytes);
        break;
    }
  }
}

void ProgramRun::Commit() {
  for (size_t a = 0; a < states_.size(); ++a) {
    if (bucket_.has_slots(static_cast<AxisId>(a))) states_[a].Commit();
  }
}

}  // namespace sru::kernels::cuda
