// Launches of the CUDA kernels on a stream. Each returns the launch's own error; what goes wrong
// while a kernel runs is reported by the wait for the stream. Nothing is allocated.
//
// Kernels are launched by LaunchKernel() and not by <<<>>>, whose error only cudaGetLastError()
// tells: that is the last error of the host thread, on whatever device. A thread that has seen one
// device fail would take the launch on the next device for a failure of that one.
#ifndef SRU_KERNELS_CUDA_KERNELS_LAUNCH_H_
#define SRU_KERNELS_CUDA_KERNELS_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/operation_args.h"

namespace sru::kernels::cuda {

// Where a kernel is launched, and how.
struct LaunchStream {
  cudaStream_t stream;
  int cluster_blocks = 1;  // of a cluster; more than one only with HasClusters()
};

// `architecture`: the compute capability that kernels were compiled for, 90 for 9.0. It decides,
// and not that of the device: a newer device runs the code of an older one, in which clusters do
// nothing.
inline bool HasClusters(int architecture) { return architecture >= 90; }

// Load the kernels of scan.cu, fused.cu, skinny.cu and operations.cu onto the current device: not
// in the middle of a recording, and so that a device that this build has no code for is found when
// it is opened. `architecture` becomes the oldest one that a loaded kernel was compiled for, if
// that is less.
cudaError_t LoadScanKernels(int* architecture);
cudaError_t LoadFusedKernels(int* architecture);
// `max_shared_bytes` is what a block may have.
cudaError_t LoadSkinnyKernels(int* architecture, size_t max_shared_bytes);
// Takes clusters from the limits if the code or the device has none.
cudaError_t LoadOperationKernels(int* architecture, OperationLimits* limits);

// `dims` per thread: 2 or 4 (scan_shape.h).
cudaError_t LaunchScan(DataType dtype, int dims, const ScanArgs& args, LaunchStream stream);
// `slices` and `blocks` as fused_shape.h has them. How many blocks of a launch run at a time is at
// least 1.
int FusedBlocksPerMultiprocessor(const FusedArgs& args, int slices);
cudaError_t LaunchFused(const FusedArgs& args, int slices, int blocks, LaunchStream stream);
// Args is SkinnyArgs or NormalizedProductArgs.
template <typename Args>
cudaError_t LaunchSkinny(DataType dtype, DataType result_dtype, const Args& args,
                         int num_multiprocessors, size_t max_shared_bytes, LaunchStream stream);
cudaError_t LaunchOperation(const OperationArgs& args, const OperationLimits& limits,
                            LaunchStream stream);

// The shape of a launch.
struct LaunchConfig {
  LaunchConfig(int64_t blocks, int threads, size_t shared_bytes, LaunchStream stream) {
    config.gridDim = {static_cast<unsigned>(blocks), 1, 1};
    config.blockDim = {static_cast<unsigned>(threads), 1, 1};
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream.stream;
    config.attrs = &attribute;
    if (stream.cluster_blocks > 1) {
      config.numAttrs = 1;
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {static_cast<unsigned>(stream.cluster_blocks), 1, 1};
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};
};

// Launches a kernel. `shared_bytes` is its DynamicShared().
template <typename Args, typename... More>
cudaError_t LaunchKernel(void (*kernel)(Args, More...), int64_t blocks, int threads,
                         size_t shared_bytes, LaunchStream stream, const Args& args, More... more) {
  const LaunchConfig launch(blocks, threads, shared_bytes, stream);
  return cudaLaunchKernelEx(&launch.config, kernel, args, more...);
}

// Loads one kernel onto the current device. `shared_bytes` is the most of DynamicShared() that it
// is launched with. With `shared_first`, shared memory decides how many of its blocks a
// multiprocessor runs, and not the cache that shares the place with it; others read the same rows
// again from that.
template <typename Kernel>
cudaError_t LoadKernel(Kernel* kernel, int* architecture, size_t shared_bytes = 0,
                       bool shared_first = false) {
  const void* const function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
  if (error != cudaSuccess) return error;
  *architecture = std::min(*architecture, attributes.ptxVersion);
  if (shared_bytes == 0) return cudaSuccess;
  const cudaError_t grown = cudaFuncSetAttribute(
      function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (grown != cudaSuccess || !shared_first) return grown;
  return cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_LAUNCH_H_
