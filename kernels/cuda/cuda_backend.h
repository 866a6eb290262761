// The CUDA backend: cuBLASLt products, fused scans, a recorded graph per bucket of batch sizes. It
// runs on one or several GPUs: each holds the weights, a workspace is tied to one of them.
#ifndef SRU_KERNELS_CUDA_CUDA_BACKEND_H_
#define SRU_KERNELS_CUDA_CUDA_BACKEND_H_

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device.h"

namespace sru::kernels::cuda {

// Whether this build has CUDA kernels and the machine a GPU and the libraries that they run on.
bool IsAvailable();

// kUnavailable when the build has no CUDA kernels, or the machine no GPU or not the ones that
// options.cuda_devices names.
Status CreateCudaBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend);

// The backend on devices that are already open, at least one.
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options,
                                         std::vector<std::unique_ptr<Device>> devices);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_CUDA_BACKEND_H_
