#include <variant>

#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/operation_launch.cuh"

namespace sru::kernels::cuda {

namespace {

template <typename Args>
cudaError_t LoadKernelsOf() {
  for (const Args& args : KernelVariants(Args{})) {
    const cudaError_t error =
        WithKernel(args, [](auto* kernel, const LaunchShape& shape, const Args& /*args*/) {
          return LoadKernel(kernel, shape.shared_bytes);
        });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename... Args>
cudaError_t LoadKernelsOfEach(const std::variant<Args...>* /*type*/) {
  cudaError_t error = cudaSuccess;
  (void)((error = LoadKernelsOf<Args>(), error == cudaSuccess) && ...);
  return error;
}

}  // namespace

cudaError_t LoadOperationKernels() {
  return LoadKernelsOfEach(static_cast<const OperationArgs*>(nullptr));
}

cudaError_t LaunchOperation(const OperationArgs& args, LaunchStream stream) {
  return std::visit(
      [stream](const auto& given) {
        return WithKernel(given, [stream](auto* kernel, const LaunchShape& shape, const auto& a) {
          return LaunchKernel(kernel, shape.blocks, shape.threads, shape.shared_bytes, stream, a);
        });
      },
      args);
}

}  // namespace sru::kernels::cuda
