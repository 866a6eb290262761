#include <variant>

#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/operation_launch.cuh"

namespace sru::kernels::cuda {

namespace {

template <typename Args>
cudaError_t LoadKernelsOf(size_t max_shared_bytes) {
  Args any{};
  LimitShared(&any, max_shared_bytes);
  for (const Args& args : KernelVariants(any)) {
    const cudaError_t error =
        WithKernel(args, [](auto* kernel, const LaunchShape& shape, const Args& /*args*/) {
          return LoadKernel(kernel, shape.shared_bytes);
        });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename... Args>
cudaError_t LoadKernelsOfEach(const std::variant<Args...>* /*type*/, size_t max_shared_bytes) {
  cudaError_t error = cudaSuccess;
  (void)((error = LoadKernelsOf<Args>(max_shared_bytes), error == cudaSuccess) && ...);
  return error;
}

}  // namespace

cudaError_t LoadOperationKernels(size_t max_shared_bytes) {
  return LoadKernelsOfEach(static_cast<const OperationArgs*>(nullptr), max_shared_bytes);
}

cudaError_t LaunchOperation(const OperationArgs& args, size_t max_shared_bytes,
                            LaunchStream stream) {
  return std::visit(
      [=](auto given) {
        LimitShared(&given, max_shared_bytes);
        return WithKernel(given, [stream](auto* kernel, const LaunchShape& shape, const auto& a) {
          return LaunchKernel(kernel, shape.blocks, shape.threads, shape.shared_bytes, stream, a);
        });
      },
      args);
}

}  // namespace sru::kernels::cuda
