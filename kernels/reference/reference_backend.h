// The oracle: one scalar loop per equation, double accumulation, nothing clever. Every other
// backend is tested against it. Slow; serves real requests only when asked to
// (--backend=reference).
#ifndef SRU_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define SRU_KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace sru::kernels {

std::unique_ptr<Backend> CreateReferenceBackend();

}  // namespace sru::kernels

#endif  // SRU_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
