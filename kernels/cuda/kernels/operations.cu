#include <variant>

#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/operation_launch.cuh"

namespace sru::kernels::cuda {

namespace {

// Asks the device whether it can run a cluster of a kernel, which has been loaded.
template <typename Kernel>
bool RunsCluster(Kernel* kernel, const LaunchShape& shape) {
  const LaunchConfig launch(shape.cluster_blocks, shape.threads, shape.shared_bytes,
                            {nullptr, shape.cluster_blocks});
  int clusters = 0;
  const cudaError_t error = cudaOccupancyMaxActiveClusters(
      &clusters, reinterpret_cast<const void*>(kernel), &launch.config);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && clusters > 0;
}

template <typename Args>
cudaError_t LoadKernelsOf(int* architecture, OperationLimits* limits) {
  Args any{};
  SetLimits(&any, *limits);
  for (const Args& args : KernelVariants(any)) {
    const cudaError_t error =
        WithKernel(args, [&](auto* kernel, const LaunchShape& shape, const Args& /*args*/) {
          const cudaError_t loaded = LoadKernel(kernel, architecture, shape.shared_bytes);
          if (loaded == cudaSuccess && shape.cluster_blocks > 1 &&
              !(HasClusters(*architecture) && RunsCluster(kernel, shape))) {
            limits->max_clustered_rows = 0;
          }
          return loaded;
        });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename... Args>
cudaError_t LoadKernelsOfEach(const std::variant<Args...>* /*type*/, int* architecture,
                              OperationLimits* limits) {
  cudaError_t error = cudaSuccess;
  (void)((error = LoadKernelsOf<Args>(architecture, limits), error == cudaSuccess) && ...);
  return error;
}

}  // namespace

cudaError_t LoadOperationKernels(int* architecture, OperationLimits* limits) {
  return LoadKernelsOfEach(static_cast<const OperationArgs*>(nullptr), architecture, limits);
}

cudaError_t LaunchOperation(const OperationArgs& args, const OperationLimits& limits,
                            LaunchStream stream) {
  return std::visit(
      [&](auto given) {
        SetLimits(&given, limits);
        return WithKernel(given, [stream](auto* kernel, const LaunchShape& shape, const auto& a) {
          const LaunchStream on = {stream.stream, shape.cluster_blocks};
          return LaunchKernel(kernel, shape.blocks, shape.threads, shape.shared_bytes, on, a);
        });
      },
      args);
}

}  // namespace sru::kernels::cuda
