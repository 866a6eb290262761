// For builds without the CPU backend (SRU_CPU=OFF).
#include "kernels/cpu/cpu_backend.h"

namespace sru::kernels::cpu {

bool IsBuilt() { return false; }

Status CreateCpuBackend(const BackendOptions& /*options*/, std::unique_ptr<Backend>* /*backend*/) {
  return Status(StatusCode::kUnavailable, "backend cpu: this build has none (SRU_CPU=OFF)");
}

}  // namespace sru::kernels::cpu
