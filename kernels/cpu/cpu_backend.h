// The CPU backend: oneDNN products with weights packed once, a vector scan, time in chunks so that
// U stays in the second-level cache.
#ifndef SRU_KERNELS_CPU_CPU_BACKEND_H_
#define SRU_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace sru::kernels {

std::unique_ptr<Backend> CreateCpuBackend();

}  // namespace sru::kernels

#endif  // SRU_KERNELS_CPU_CPU_BACKEND_H_
