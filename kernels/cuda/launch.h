// Launches of the CUDA kernels on a stream. Each returns the launch's own error; what goes wrong
// while a kernel runs is reported by the wait for the stream. Nothing is allocated.
//
// Kernels are launched by LaunchKernel() and not by <<<>>>, whose error only cudaGetLastError()
// tells: that is the last error of the host thread, on whatever device. A thread that has seen one
// device fail would take the launch on the next device for a failure of that one.
#ifndef SRU_KERNELS_CUDA_LAUNCH_H_
#define SRU_KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/operation_args.h"

namespace sru::kernels::cuda {

// Load the kernels of scan.cu, rows.cu, fused.cu and operations.cu onto the current device: not in the middle of a
// recording, and so that a device that this build has no code for is found when it is opened.
cudaError_t LoadScanKernels();
cudaError_t LoadRowKernels();
cudaError_t LoadFusedKernels();
cudaError_t LoadOperationKernels();

cudaError_t LaunchEmbed(DataType dtype, const EmbedArgs& args, cudaStream_t stream);
cudaError_t LaunchLayerNorm(DataType dtype, const LayerNormArgs& args, cudaStream_t stream);
// `dims` per thread: 2 or 4 (scan_shape.h).
cudaError_t LaunchScan(DataType dtype, int dims, const ScanArgs& args, cudaStream_t stream);
// `slices` and `blocks` as fused_shape.h has them. How many blocks of a launch run at a time is at
// least 1.
int FusedBlocksPerMultiprocessor(const FusedArgs& args, int slices);
cudaError_t LaunchFused(const FusedArgs& args, int slices, int blocks, cudaStream_t stream);
cudaError_t LaunchPool(DataType dtype, const PoolArgs& args, cudaStream_t stream);
cudaError_t LaunchHead(const HeadArgs& args, cudaStream_t stream);
cudaError_t LaunchCompare(const CompareArgs& args, cudaStream_t stream);
cudaError_t LaunchOperation(const OperationArgs& args, cudaStream_t stream);

// Launches a kernel. `shared_bytes` is its DynamicShared().
template <typename... Args>
cudaError_t LaunchKernel(void (*kernel)(Args...), int64_t blocks, int threads, size_t shared_bytes,
                         cudaStream_t stream, Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = {static_cast<unsigned>(blocks), 1, 1};
  config.blockDim = {static_cast<unsigned>(threads), 1, 1};
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  void* pointers[] = {&args...};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
}

// Loads one kernel onto the current device. `shared_bytes` is the most of DynamicShared() that it
// is launched with.
template <typename Kernel>
cudaError_t LoadKernel(Kernel* kernel, size_t shared_bytes = 0) {
  const void* const function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
  if (error != cudaSuccess || shared_bytes == 0) return error;
  const cudaError_t grown = cudaFuncSetAttribute(
      function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (grown != cudaSuccess) return grown;
  // How many of its blocks a multiprocessor runs is decided by shared memory, not by the cache that
  // shares the place with it.
  return cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_LAUNCH_H_
