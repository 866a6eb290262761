// For builds without the CUDA toolkit.
#include "kernels/cuda/open_devices.h"

namespace sru::kernels::cuda {

Status OpenCudaDevices(const std::vector<int>& /*ordinals*/,
                       std::vector<std::unique_ptr<Device>>* /*devices*/) {
  return Status(StatusCode::kUnavailable, "backend cuda: this build has no CUDA kernels");
}

int CountCudaDevices() { return 0; }

}  // namespace sru::kernels::cuda
