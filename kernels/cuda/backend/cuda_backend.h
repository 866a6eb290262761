// The CUDA backend: cuBLASLt products, fused scans, a recorded graph per bucket of batch sizes. It
// runs on one or several GPUs: each holds the weights, a workspace is tied to one of them.
#ifndef SRU_KERNELS_CUDA_BACKEND_CUDA_BACKEND_H_
#define SRU_KERNELS_CUDA_BACKEND_CUDA_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"

namespace sru::kernels::cuda {

// Whether this build has CUDA kernels. Asks no driver.
bool IsBuilt();

// Whether it has and the machine has a GPU and the libraries that they run on.
bool IsAvailable();

// On the machine's GPUs: see OpenDevices() for what cannot be opened and for the warnings.
Status CreateCudaBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend,
                         std::vector<std::string>* warnings);

// The backend on devices that are already open, at least one.
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options,
                                         std::vector<std::unique_ptr<Device>> devices);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_BACKEND_CUDA_BACKEND_H_
