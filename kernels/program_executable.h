// A compiled Program (program.h) and what one run of it takes and gives. backend.h compiles it.
//
//   std::unique_ptr<ProgramExecutable> executable;
//   Status status = backend->Compile(program, CompileOptions(), &executable);
//   std::unique_ptr<ProgramWorkspace> workspace;                     // one per worker
//   status = executable->CreateWorkspace(limits, &workspace);
//   std::unique_ptr<StateArena> arena;                               // where states are carried
//   status = executable->CreateArena(arena_options, &arena);
//   status = executable->Run(batch, outputs, *workspace);            // one call per batch
#ifndef SRU_KERNELS_PROGRAM_EXECUTABLE_H_
#define SRU_KERNELS_PROGRAM_EXECUTABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "kernels/status.h"

namespace sru::kernels {

// Workers that keep a GPU busy: one computes while the other copies and answers.
inline constexpr int kWorkersPerDevice = 2;

// What a compiled stack (Executable in backend.h) and a compiled program have in common.
class CompiledModel {
 public:
  virtual ~CompiledModel() = default;

  // Devices of the backend. A workspace is tied to one of them.
  virtual int num_devices() const { return 1; }

  // Workers that keep one device busy; 0 for a model that runs on the processor, where a worker
  // keeps a core busy.
  virtual int workers_per_device() const { return 0; }

  // Memory of the compiled weights, on one device.
  virtual size_t weight_bytes() const = 0;
};

struct AxisLimits {
  int max_rows = 0;
  int max_sequences = 0;
};

// What one Run() may hold; a workspace is sized for it once.
struct ProgramLimits {
  std::vector<AxisLimits> axes;  // [axis]; those of sequence axes follow and are not read
  int device = 0;                // which of num_devices() it is on
  // Of one output of type kAttention, all rows together; 0 = none can be asked for.
  int64_t max_attention_values = 0;
  // As WorkspaceLimits::turn.
  std::chrono::microseconds turn{0};
};

// The sequences of one axis. Not read for a sequence axis.
struct AxisBatch {
  int num_sequences = 0;
  const int32_t* offsets = nullptr;  // [num_sequences + 1]; offsets[0] = 0, not decreasing
  // [num_sequences], each StateArena::kNoSlot or a slot of the batch's arena, different from every
  // other one of the batch; null = no sequence has one.
  const StateArena::Slot* slots = nullptr;

  int num_rows() const { return num_sequences == 0 ? 0 : offsets[num_sequences]; }
};

// One input: `values` of kFeatures, `sampling` of kSampling, `adjustments` of kAdjustments, `ids`
// of any other type. Null where the input's axis is empty.
struct InputBatch {
  const int32_t* ids = nullptr;
  const float* values = nullptr;
  const Sampling* sampling = nullptr;
  const Adjustment* adjustments = nullptr;

  const void* Data(InputType type) const {
    if (type == InputType::kFeatures) return values;
    if (type == InputType::kSampling) return sampling;
    return type == InputType::kAdjustments ? static_cast<const void*>(adjustments) : ids;
  }
};

// The input of one Run(). All pointers are borrowed for the call.
struct ProgramBatch {
  const AxisBatch* axes = nullptr;     // [Program::axes]
  const InputBatch* inputs = nullptr;  // [Program::inputs]
  StateArena* arena = nullptr;         // of the workspace's device; needed where there is a slot
};

// Where one output goes; null = it is not asked for, and what nobody asks for is not computed.
struct OutputBatch {
  // [rows][width]; [rows] of kLogProb; of kAttention a value for each row and key that it may see
  // (CountAttention()).
  float* values = nullptr;
  Candidate* candidates = nullptr;  // [rows][max_candidates], of kCandidates; [rows], of kPicked
};

// Scratch memory of one worker, tied to the executable that made it. Not thread-safe.
class ProgramWorkspace {
 public:
  virtual ~ProgramWorkspace() = default;

  virtual const ProgramLimits& limits() const = 0;
  // As Workspace::bytes().
  virtual size_t bytes() const = 0;
};

// Immutable and thread-safe: many threads may run it, each with its own workspace.
class ProgramExecutable : public CompiledModel {
 public:
  // kDeviceLost when limits.device has failed for good; the others may still serve.
  virtual Status CreateWorkspace(const ProgramLimits& limits,
                                 std::unique_ptr<ProgramWorkspace>* workspace) const = 0;

  // For the slots of this program, on one device. It may outlive the executable.
  virtual Status CreateArena(const ArenaOptions& options,
                             std::unique_ptr<StateArena>* arena) const = 0;

  // Runs one batch and returns when `outputs` [Program::outputs] is written and the slots have gone
  // on. An input that nothing in this batch needs may be null; what is given is checked. After an
  // error no slot has changed. kInvalidArgument when the batch exceeds the workspace's limits or an
  // input is outside of its range, by name; kResourceExhausted when the arena's budget does not
  // hold what the slots would grow by; kDeviceLost as Executable::Run().
  virtual Status Run(const ProgramBatch& batch, const OutputBatch* outputs,
                     ProgramWorkspace& workspace) const = 0;
};

// How many values an output of type kAttention has in this batch. `run` is that of the axis of the
// Attend; it is read, and may be null otherwise, where keys are in fields.
// Writes to begins[b], unless it is null, how many the sequences before b have.
int64_t CountAttention(const Program& program, const ProgramShape& shape, const ProgramBatch& batch,
                       ValueId attend, const StateArena::Run* run, int64_t* begins = nullptr);

// The following are used by the backends themselves.

// Checks what every backend asks of the arguments of CreateWorkspace(), but for the device.
Status ValidateLimits(const Program& program, const ProgramLimits& limits);

// The users (ProgramShape::users) that a batch has: an operation runs if it has one of them. Those
// are the outputs that are asked for and the axes with a slot.
uint64_t BatchUsers(const Program& program, const ProgramBatch& batch, const OutputBatch* outputs);

// Checks what every backend asks of the arguments of Run(). Whether a slot exists is the arena's to
// check.
Status ValidateBatch(const Program& program, const ProgramShape& shape, const ProgramLimits& limits,
                     const ProgramBatch& batch, const OutputBatch* outputs);

// Begins the run of the slots of every axis that has some, runs[axis], once a batch is valid.
// Checks that the attention that is asked for of what they held before is within the limits.
// `rows_added` is scratch.
Status BeginStates(const Program& program, const ProgramShape& shape, const ProgramLimits& limits,
                   const ProgramBatch& batch, const OutputBatch* outputs,
                   std::vector<int>* rows_added, std::vector<StateArena::Run>* runs);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_PROGRAM_EXECUTABLE_H_
