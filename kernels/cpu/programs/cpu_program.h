// A program (program.h) on the CPU: its weights packed once, and a workspace whose memory values
// share when their lifetimes do not overlap. Stacks are executables of their own, which read and
// write the workspace's rows and the pages of slots directly.
//
// In bfloat16 stacks compute as they do alone (cpu_isa.h). Linear and Predict multiply by oneDNN in
// bfloat16 on machines with instructions for it, whatever multiplies in stacks, and else in
// float32, values and weights being rounded.
#ifndef SRU_KERNELS_CPU_PROGRAMS_CPU_PROGRAM_H_
#define SRU_KERNELS_CPU_PROGRAMS_CPU_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/programs/program_predict.h"
#include "kernels/cpu/programs/program_product.h"
#include "kernels/cpu/programs/row_table.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/program_executable.h"

namespace sru::kernels::cpu {

// The weights of one operation; most have none. Operations with the same weights share what is
// packed.
struct PackedOperation {
  std::shared_ptr<const RowTable> table;  // of `embed` or `predict`
  std::shared_ptr<const EmbedTable> embed;
  std::shared_ptr<const Prediction> predict;
  // Of the others, what their lists name: a matrix, vectors in their order, a stack.
  std::shared_ptr<const BlockedProduct> product;
  std::unique_ptr<const ByteMatrix> byte_product;
  std::vector<AlignedBuffer> vectors;
  std::unique_ptr<Executable> stack;
};

// Immutable once made.
struct PackedProgram {
  Program program;  // without weights
  ProgramShape shape;
  std::vector<PackedOperation> operations;
  // [operation]: the users of what reads its rows, as ProgramShape::users.
  std::vector<uint64_t> readers;

  size_t bytes() const;  // what is shared counts once
};

// Compiles the stack of an operation.
using CompileStack = std::function<Status(const StackSpec&, std::unique_ptr<Executable>*)>;

class CpuProgramWorkspace : public ProgramWorkspace {
 public:
  // What one thread needs.
  struct Thread {
    ProductThread products;
    PredictThread predict;
    ByteRows rounded;
  };

  // For at most `threads` threads on one batch. Throws dnnl::error and std::bad_alloc.
  static Status Create(const PackedProgram& packed, const ProgramLimits& limits, int threads,
                       std::shared_ptr<RunMemory> memory,
                       std::unique_ptr<ProgramWorkspace>* workspace);

  const ProgramLimits& limits() const override { return limits_; }
  size_t bytes() const override { return plan.bytes(); }

  float* value(ValueId id) { return values.data() + offset_of_value[id]; }

  RunPlan plan;
  RunArray<float> values;
  std::vector<size_t> offset_of_value;             // [operation], into `values`
  std::vector<std::unique_ptr<Workspace>> stacks;  // [operation]; null of all but stacks
  RunArray<char> stack_memory;                     // of the stack that runs
  std::vector<Thread> threads;
  std::vector<int32_t> one_row_each;  // offsets of the sequences of a sequence axis
  // Of the sequences that have rows, while a stack runs.
  std::vector<int32_t> stack_offsets;
  std::vector<SequenceOutput> stack_outputs;
  std::vector<const float*> initial_states;
  std::vector<int> rows_added;               // [sequence]
  RunArray<int32_t> rows;                    // those that a Predict computes
  RunArray<PredictThread::Choices> choices;  // of those
  RunArray<float> lone_state;                // a fixed field of a sequence without a slot
  RunArray<float> unadjusted;                // [adjustment] of a Predict: its symbol's logit
  std::vector<StateArena::Run> runs;         // [axis]; while a batch runs

 private:
  CpuProgramWorkspace(const ProgramLimits& limits, std::shared_ptr<RunMemory> memory)
      : plan(std::move(memory)), limits_(limits) {}
  void LayOutValues(const PackedProgram& packed);

  ProgramLimits limits_;
};

// Runs one valid batch. Throws dnnl::error.
Status RunProgram(const PackedProgram& packed, const ProgramBatch& batch,
                  const OutputBatch* outputs, CpuProgramWorkspace& workspace,
                  ParallelRunner& parallel);

// Compiles `program`, as Backend::Compile() does. `arithmetic` is that of Linear and Predict.
Status CompileProgram(const Program& program, const Arithmetic& arithmetic, WeightSource* source,
                      const CompileStack& compile_stack, std::shared_ptr<ParallelRunner> parallel,
                      std::shared_ptr<RunMemory> memory,
                      std::unique_ptr<ProgramExecutable>* executable);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_CPU_PROGRAM_H_
