// A program as benchmarks run it: a workspace, an arena, and memory for every input and output of a batch.
#ifndef SRU_KERNELS_BENCH_PROGRAM_MODEL_H_
#define SRU_KERNELS_BENCH_PROGRAM_MODEL_H_

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/program_executable.h"
#include "kernels/testing/random_program.h"

namespace sru::kernels {

// A batch of random inputs. `data` is borrowed, as is the program.
class BenchmarkBatch {
 public:
  // `slots` is [axis][sequence]; empty ones are null. `max_attention_values` is the room for each output
  // of that type.
  BenchmarkBatch(const Program& program, const testing::ProgramData& data,
                 std::vector<std::vector<StateArena::Slot>> slots, int64_t max_attention_values)
      : slots_(std::move(slots)) {
    ProgramShape shape;
    (void)Validate(program, &shape);
    slots_.resize(program.axes.size());
    offsets_.resize(program.axes.size());
    for (size_t a = 0; a < program.axes.size(); ++a) {
      const auto axis = static_cast<AxisId>(a);
      offsets_[a] = data.Offsets(program, axis);
      AxisBatch given;
      given.num_sequences = data.num_sequences(program, axis);
      given.offsets = offsets_[a].data();
      if (!slots_[a].empty()) given.slots = slots_[a].data();
      axes_.push_back(given);
    }
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      InputBatch& input = inputs_.emplace_back();
      if (!data.ids[i].empty()) input.ids = data.ids[i].data();
      if (!data.features[i].empty()) input.values = data.features[i].data();
      if (!data.sampling[i].empty()) input.sampling = data.sampling[i].data();
    }
    values_.resize(program.outputs.size());
    candidates_.resize(program.outputs.size());
    outputs_.resize(program.outputs.size());
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const OutputSpec& output = program.outputs[i];
      const ValueSpec& value = shape.values[output.value];
      const size_t rows = data.num_rows(program, value.axis);
      switch (output.type) {
        case OutputType::kRows:
          values_[i].resize(rows * value.width);
          break;
        case OutputType::kLogProb:
          values_[i].resize(rows);
          break;
        case OutputType::kAttention:
          values_[i].resize(max_attention_values);
          break;
        case OutputType::kPicked:
          candidates_[i].resize(rows);
          break;
        case OutputType::kCandidates:
          candidates_[i].resize(
              rows * std::get<ops::Predict>(program.operations[output.value]).max_candidates);
          break;
      }
    }
  }

  void SetSlots(AxisId axis, std::vector<StateArena::Slot> slots) {
    slots_[axis] = std::move(slots);
    axes_[axis].slots = slots_[axis].data();
  }

  // Asks for an output.
  void Want(int output) {
    if (!values_[output].empty()) outputs_[output].values = values_[output].data();
    if (!candidates_[output].empty()) outputs_[output].candidates = candidates_[output].data();
  }

  Status Run(const ProgramExecutable& executable, ProgramWorkspace& workspace, StateArena* arena) {
    ProgramBatch batch;
    batch.axes = axes_.data();
    batch.inputs = inputs_.data();
    batch.arena = arena;
    return executable.Run(batch, outputs_.data(), workspace);
  }

 private:
  std::vector<std::vector<StateArena::Slot>> slots_;
  std::vector<std::vector<int32_t>> offsets_;
  std::vector<AxisBatch> axes_;
  std::vector<InputBatch> inputs_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<Candidate>> candidates_;
  std::vector<OutputBatch> outputs_;
};

// A program, compiled, on the CPU backend with one thread unless another one is given.
class BenchmarkModel {
 public:
  BenchmarkModel(const Program& program, DataType dtype, const ProgramLimits& limits) {
    BackendOptions hardware;
    hardware.cpu_threads = 1;  // as the products that it is compared with
    Note(CreateBackend("cpu", hardware, &backend_));
    if (status_.ok()) Compile(*backend_, program, dtype, limits);
  }
  BenchmarkModel(Backend& backend, const Program& program, DataType dtype,
                 const ProgramLimits& limits) {
    Compile(backend, program, dtype, limits);
  }

  // The first error of all.
  const Status& status() const { return status_; }
  void Note(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  void Run(BenchmarkBatch& batch) { Note(batch.Run(*executable_, *workspace_, arena_.get())); }
  StateArena& arena() { return *arena_; }
  std::vector<StateArena::Slot> NewSlots(int count) {
    std::vector<StateArena::Slot> slots(count);
    for (StateArena::Slot& slot : slots) Note(arena_->Allocate(&slot));
    return slots;
  }
  size_t workspace_bytes() const { return workspace_->bytes(); }
  size_t weight_bytes() const { return executable_->weight_bytes(); }

 private:
  void Compile(Backend& backend, const Program& program, DataType dtype,
               const ProgramLimits& limits) {
    CompileOptions options;
    options.dtype = dtype;
    Note(backend.Compile(program, options, &executable_));
    if (status_.ok()) Note(executable_->CreateWorkspace(limits, &workspace_));
    ArenaOptions arena;
    arena.budget_bytes = size_t{4} << 30;
    if (status_.ok()) Note(executable_->CreateArena(arena, &arena_));
  }

  Status status_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProgramExecutable> executable_;
  std::unique_ptr<ProgramWorkspace> workspace_;
  std::unique_ptr<StateArena> arena_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_PROGRAM_MODEL_H_
