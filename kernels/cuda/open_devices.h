// Opening the machine's GPUs. Two implementations: cuda_device.cc with a toolkit, no_toolkit.cc
// without.
#ifndef SRU_KERNELS_CUDA_OPEN_DEVICES_H_
#define SRU_KERNELS_CUDA_OPEN_DEVICES_H_

#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// `ordinals` as in BackendOptions::cuda_devices. kUnavailable, saying what the driver says, when
// there is none or a library is missing; kInvalidArgument when one is named twice or is not there.
Status OpenCudaDevices(const std::vector<int>& ordinals,
                       std::vector<std::unique_ptr<Device>>* devices);

// How many OpenCudaDevices() can open; 0 also when a library is missing.
int CountCudaDevices();

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_OPEN_DEVICES_H_
