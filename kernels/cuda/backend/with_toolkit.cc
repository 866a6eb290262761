// For builds with the CUDA toolkit: the backend on this machine's GPUs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/device/open_devices.h"

namespace sru::kernels::cuda {

bool IsBuilt() { return true; }

bool IsAvailable() { return CountDevices(SystemDriver()) > 0; }

Status CreateCudaBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend,
                         std::vector<std::string>* warnings) {
  std::vector<std::unique_ptr<Device>> devices;
  Status status = OpenDevices(SystemDriver(), options.cuda_devices, &devices, warnings);
  if (status.ok()) *backend = MakeCudaBackend(options, std::move(devices));
  return status;
}

}  // namespace sru::kernels::cuda
