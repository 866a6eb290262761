// The forward pass of one ragged batch on the CPU.
#ifndef SRU_KERNELS_CPU_STACKS_BATCH_RUN_H_
#define SRU_KERNELS_CPU_STACKS_BATCH_RUN_H_

#include "kernels/backend.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/stacks/cpu_workspace.h"
#include "kernels/cpu/stacks/packed_stack.h"

namespace sru::kernels::cpu {

// The arguments are those of Executable::Run() and valid. Throws dnnl::error.
void RunBatch(const PackedStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
              CpuWorkspace& workspace, ParallelRunner& parallel);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_BATCH_RUN_H_
