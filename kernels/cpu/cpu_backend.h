// The CPU backend: oneDNN products with weights packed once, a vector scan, time in chunks so that
// U stays in the second-level cache.
#ifndef SRU_KERNELS_CPU_CPU_BACKEND_H_
#define SRU_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace sru::kernels {

// Whether this build has it; a build of kernels alone for a GPU machine may leave it out.
bool CpuBackendIsBuilt();

// kInvalidArgument when options.cpu_isa is unknown, kUnavailable when the machine or the build
// lacks it.
Status CreateCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_CPU_CPU_BACKEND_H_
