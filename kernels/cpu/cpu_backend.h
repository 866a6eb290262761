// The CPU backend. float32: oneDNN products with weights packed once, a vector scan, time in chunks
// so that U stays in the second-level cache (batch_run.h). bfloat16: own tile products with the
// scan interleaved (tile_run.h), or the same as float32 with rounded values, by instruction set
// (cpu_isa.h). Programs: their stacks so, the other operations as in cpu_program.h.
#ifndef SRU_KERNELS_CPU_CPU_BACKEND_H_
#define SRU_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace sru::kernels::cpu {

// Whether this build has it; a build of kernels alone for a GPU machine may leave it out.
bool IsBuilt();

// kInvalidArgument when an option is unknown or out of range, kUnavailable when the machine or the
// build lacks options.cpu_isa. Starts options.cpu_threads - 1 threads, which sleep until a large
// batch comes.
Status CreateCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_CPU_BACKEND_H_
