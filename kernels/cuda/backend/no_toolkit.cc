// For builds without the CUDA toolkit.
#include "kernels/cuda/backend/cuda_backend.h"

namespace sru::kernels::cuda {

bool IsBuilt() { return false; }

bool IsAvailable() { return false; }

Status CreateCudaBackend(const BackendOptions& /*options*/, std::unique_ptr<Backend>* /*backend*/,
                         std::vector<std::string>* /*warnings*/) {
  return Status(StatusCode::kUnavailable, "backend cuda: this build has no CUDA kernels");
}

}  // namespace sru::kernels::cuda
