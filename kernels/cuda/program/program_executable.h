// Programs on the CUDA backend: compiled once, run with one recorded graph per bucket of batches.
#ifndef SRU_KERNELS_CUDA_PROGRAM_PROGRAM_EXECUTABLE_H_
#define SRU_KERNELS_CUDA_PROGRAM_PROGRAM_EXECUTABLE_H_

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// As Backend::Compile(), for a data type that the kernels have.
Status CompileProgram(const Program& program, const CompileOptions& options,
                      const PackOptions& pack, const std::vector<std::shared_ptr<Gpu>>& gpus,
                      std::unique_ptr<ProgramExecutable>* executable);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PROGRAM_PROGRAM_EXECUTABLE_H_
