// Memory of a device for the states of sequences (state_arena.h), which the device's budget counts.
#ifndef SRU_KERNELS_CUDA_DEVICE_GPU_ARENA_MEMORY_H_
#define SRU_KERNELS_CUDA_DEVICE_GPU_ARENA_MEMORY_H_

#include <memory>

#include "kernels/cuda/device/gpu.h"
#include "kernels/state_arena.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// kDeviceLost when the device has failed for good. The memory holds on to the device.
Status MakeGpuArenaMemory(std::shared_ptr<Gpu> gpu, std::unique_ptr<ArenaMemory>* memory);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_GPU_ARENA_MEMORY_H_
