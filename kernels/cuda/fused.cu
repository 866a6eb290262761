#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/launch.h"

namespace sru::kernels::cuda {
namespace {

// Calls `use` with the kernel for rows of k values.
template <typename Use>
cudaError_t WithKernel(int k, const Use& use) {
  switch (FusedInput(k)) {
    case 64:
      return use(FusedKernel<64>);
    case 128:
      return use(FusedKernel<128>);
    case 256:
      return use(FusedKernel<256>);
    default:
      return use(FusedKernel<kFusedMaxInput>);
  }
}

}  // namespace

cudaError_t LoadFusedKernels() {
  for (int input = FusedInput(0); input <= kFusedMaxInput; input *= 2) {
    const cudaError_t error = WithKernel(input, [&](auto* kernel) {
      return LoadKernel(kernel, FusedSharedBytes(input, 4, FusedMaxSlices(input)));
    });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchFused(const FusedArgs& args, int slices, int blocks, cudaStream_t stream) {
  return WithKernel(args.k, [&](auto* kernel) {
    const size_t shared = FusedSharedBytes(FusedInput(args.k), args.scan.gates, slices);
    kernel<<<static_cast<unsigned>(blocks),
             static_cast<unsigned>(FusedThreads(args.scan.gates, slices)), shared, stream>>>(
        args, slices, blocks);
    return cudaGetLastError();
  });
}

}  // namespace sru::kernels::cuda
