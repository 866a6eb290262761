#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>

#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/program/program_workspace.h"

namespace sru::kernels::cuda {
namespace {

// One batch of a program: its buckets, its input in the staging memory, its results out of it, the
// states that it reads and writes.
class ProgramRun {
 public:
  // `batch` must be valid. The arguments must outlive the run.
  ProgramRun(const PackedProgram& packed, const ProgramBatch& batch, const OutputBatch* outputs,
             CudaProgramWorkspace& workspace)
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

  Status Run(const ProgramOnDevice& device) {
    if (parts_.empty()) return OkStatus();
    SRU_RETURN_IF_ERROR(ws_.gpu().Observe(BeginStates()));
    // Also after an error: the staging memory and the pages must be free for others.
    SRU_RETURN_IF_ERROR(
        ws_.gpu().ObserveRun(RunWork(*ws_.stream, [&] { return Enqueue(device); })));
    ReadResults();
    for (StateArena::Run& states : states_) states.Commit();
    return OkStatus();
  }

 private:
  // A part of the program for which the batch has something to do.
  struct Part {
    ProgramBucket bucket;
    ProgramLayout layout;
  };
  // Where a result is, and its bytes.
  struct Result {
    ArrayView host;
    const void* device = nullptr;  // null if the kernels write to the host's memory
    size_t bytes = 0;
  };

  bool wants(size_t output) const { return (users_ >> output & 1) != 0; }
  bool runs(ValueId operation) const { return (packed_.shape.users[operation] & users_) != 0; }
  bool is_of(const Part& part, AxisId axis) const {
    return packed_.parts[axis] == part.bucket.part;
  }
  size_t CandidateBytes(ValueId predict) const {
    return static_cast<size_t>(asked_[predict]) * max_count_[predict] * sizeof(Candidate);
  }
  bool CopiesCandidates(ValueId predict) const {
    return CandidateBytes(predict) > kMaxMappedCandidateBytes;
  }
  template <typename T>
  T* Host(const Part& part, size_t offset) const {
    return reinterpret_cast<T*>(ws_.staging[part.bucket.part].host_input.as<char>() + offset);
  }

  // For every row of which a Predict is asked something, in order: use(row, target, count).
  template <typename Use>
  void ForEachAsked(ValueId id, const Use& use) const {
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

  ProgramBucket MakeBucket() {
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

  // Takes the pages that the slots go on to; they are given up with the object unless the run
  // succeeds.
  Status BeginStates() {
    std::vector<int> rows_added;
    SRU_RETURN_IF_ERROR(kernels::BeginStates(packed_.program, packed_.shape, ws_.limits(), batch_,
                                             outputs_, &rows_added, &states_));
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

  Status Enqueue(const ProgramOnDevice& device) {
    const auto enqueue = [&](const ProgramBucket& bucket) {
      return EnqueueProgram(packed_, device, bucket, ws_);
    };
    // All of them while the stream is idle.
    std::vector<Graph*> graphs;
    for (const Part& part : parts_) {
      SRU_RETURN_IF_ERROR(ws_.graphs.Prepare(
          part.bucket, *ws_.stream, [&] { return enqueue(part.bucket); }, &graphs.emplace_back()));
    }
    for (size_t i = 0; i < graphs.size(); ++i) {
      const Part& part = parts_[i];
      const size_t bytes = WriteInput(part);
      const CudaProgramWorkspace::Staging& staging = ws_.staging[part.bucket.part];
      SRU_RETURN_IF_ERROR(
          ws_.stream->CopyToDevice(staging.input.data(), staging.host_input.data(), bytes));
      SRU_RETURN_IF_ERROR(graphs[i] != nullptr ? ws_.stream->Launch(*graphs[i])
                                               : enqueue(part.bucket));
    }
    return EnqueueResults();
  }

  // Fills a part's staging memory. Returns the bytes of it that the batch uses.
  size_t WriteInput(const Part& part) {
    for (size_t a = 0; a < packed_.program.axes.size(); ++a) {
      if (is_of(part, static_cast<AxisId>(a))) WriteAxis(part, static_cast<AxisId>(a));
    }
    WriteInputs(part);
    for (size_t i = 0; i < asked_.size(); ++i) {
      const ValueId id = static_cast<ValueId>(i);
      if (!is_of(part, packed_.shape.values[i].axis)) continue;
      if (std::holds_alternative<ops::Predict>(packed_.program.operations[i]))
        WritePredict(part, id);
      if (part.bucket.wants(packed_.program, id, OutputType::kAttention)) {
        CountWeights(id, Host<int64_t>(part, part.layout.attentions[id]));
      }
    }
    return WriteFields(part);
  }

  void WriteAxis(const Part& part, AxisId axis) {
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

  void WriteInputs(const Part& part) {
    if (batch_.inputs == nullptr) return;
    for (size_t i = 0; i < packed_.program.inputs.size(); ++i) {
      const InputSpec& input = packed_.program.inputs[i];
      if (!is_of(part, input.axis)) continue;
      const int count = RowOf(input.type).of_sequences ? sequences_[input.axis] : rows_[input.axis];
      const void* const from = batch_.inputs[i].Data(input.type);
      const size_t bytes = count * input.item_bytes();
      // Callers leave out inputs that the program does not read.
      if (from != nullptr && bytes > 0)
        std::memcpy(Host<char>(part, part.layout.inputs[i]), from, bytes);
    }
  }

  void WritePredict(const Part& part, ValueId id) {
    const ProgramLayout::Predict& layout = part.layout.predicts[id];
    const CudaProgramWorkspace::Prediction& prediction = ws_.predictions[id];
    const ArrayView& candidates =
        CopiesCandidates(id) ? prediction.candidates : prediction.host_candidates;
    *Host<PredictHeader>(part, layout.header) =
        PredictHeader{{asked_[id], {}}, max_count_[id], 0, candidates.as<Candidate>()};
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

  // The weights of an Attend, and where those of each sequence begin.
  int64_t CountWeights(ValueId attend, int64_t* begins = nullptr) const {
    const AxisId axis = packed_.shape.values[attend].axis;
    return CountAttention(packed_.program, packed_.shape, batch_, attend,
                          bucket_.has_slots(axis) ? &states_[axis] : nullptr, begins);
  }

  size_t WriteFields(const Part& part) {
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

  Result ResultOf(size_t output) const {
    const ValueId value = packed_.program.outputs[output].value;
    const CudaProgramWorkspace::Prediction& prediction = ws_.predictions[value];
    const size_t asked = asked_[value];
    switch (packed_.program.outputs[output].type) {
      case OutputType::kRows: {
        const size_t rows = rows_[packed_.shape.values[value].axis];
        return {ws_.outputs[output], ws_.value(value),
                rows * packed_.stride(value) * sizeof(float)};
      }
      case OutputType::kLogProb:
        return {prediction.host_log_prob, nullptr, asked * sizeof(float)};
      case OutputType::kCandidates:
        return {prediction.host_candidates,
                CopiesCandidates(value) ? prediction.candidates.data() : nullptr,
                CandidateBytes(value)};
      case OutputType::kPicked:
        return {prediction.host_picked, nullptr, asked * sizeof(Candidate)};
      case OutputType::kAttention:
        return {ws_.attentions[value].host_weights, ws_.attentions[value].weights.data(),
                CountWeights(value) * sizeof(float)};
    }
    return {};
  }

  // Puts the copies of the results on the stream.
  Status EnqueueResults() const {
    for (size_t i = 0; i < packed_.program.outputs.size(); ++i) {
      const Result result = wants(i) ? ResultOf(i) : Result();
      if (result.bytes == 0 || result.device == nullptr) continue;
      SRU_RETURN_IF_ERROR(ws_.stream->CopyToHost(result.host.data(), result.device, result.bytes));
    }
    return OkStatus();
  }

  // Copies them to where the caller wants them.
  void ReadResults() const {
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
          const Candidate* from = result.host.as<Candidate>();
          ForEachAsked(output.value, [&](int row, int32_t, int32_t count) {
            std::copy_n(from, count, outputs_[i].candidates + row * most);
            from += max_count_[output.value];
          });
          break;
        }
        case OutputType::kPicked:
          std::copy_n(result.host.as<Candidate>(), rows, outputs_[i].candidates);
          break;
        case OutputType::kAttention:
          if (result.bytes > 0) std::memcpy(values, result.host.data(), result.bytes);
          break;
      }
    }
  }

  const PackedProgram& packed_;
  const ProgramBatch& batch_;
  const OutputBatch* const outputs_;
  CudaProgramWorkspace& ws_;
  const uint64_t users_;
  std::vector<int> rows_;       // [axis]
  std::vector<int> sequences_;  // [axis]
  std::vector<int> asked_;      // [operation]: rows of which a Predict is asked something
  std::vector<int> max_count_;  // [operation]: most candidates that are asked of one of them
  const ProgramBucket bucket_;  // of the whole program
  std::vector<Part> parts_;
  std::vector<StateArena::Run> states_;  // [axis]; begun where there are slots
};

}  // namespace

Status RunProgram(const PackedProgram& packed, const ProgramOnDevice& device,
                  const ProgramBatch& batch, const OutputBatch* outputs,
                  CudaProgramWorkspace& workspace) {
  return ProgramRun(packed, batch, outputs, workspace).Run(device);
}

}  // namespace sru::kernels::cuda
