#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/launch.h"

namespace sru::kernels::cuda {
namespace {

// Calls `use` with the kernel for rows of k values and so many gates.
template <int kInput, typename Use>
cudaError_t WithGates(int gates, const Use& use) {
  return gates == 4 ? use(FusedKernel<kInput, 4>) : use(FusedKernel<kInput, 3>);
}
template <typename Use>
cudaError_t WithKernel(int k, int gates, const Use& use) {
  switch (FusedInput(k)) {
    case 64:
      return WithGates<64>(gates, use);
    case 128:
      return WithGates<128>(gates, use);
    case 256:
      return WithGates<256>(gates, use);
    default:
      return WithGates<kFusedMaxInput>(gates, use);
  }
}

}  // namespace

cudaError_t LoadFusedKernels() {
  for (int input = FusedInput(0); input <= kFusedMaxInput; input *= 2) {
    for (int gates : {3, 4}) {
      const cudaError_t error = WithKernel(input, gates, [&](auto* kernel) {
        return LoadKernel(kernel, FusedSharedBytes(input, gates, FusedMaxSlices(input)));
      });
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

int FusedBlocksPerMultiprocessor(const FusedArgs& args, int slices) {
  int blocks = 0;
  const int gates = args.scan.gates;
  const cudaError_t error = WithKernel(args.k, gates, [&](auto* kernel) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, reinterpret_cast<const void*>(kernel), FusedThreads(gates, slices),
        FusedSharedBytes(FusedInput(args.k), gates, slices));
  });
  return error == cudaSuccess && blocks > 0 ? blocks : 1;
}

cudaError_t LaunchFused(const FusedArgs& args, int slices, int blocks, cudaStream_t stream) {
  const int gates = args.scan.gates;
  return WithKernel(args.k, gates, [&](auto* kernel) {
    const size_t shared = FusedSharedBytes(FusedInput(args.k), gates, slices);
    kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(FusedThreads(gates, slices)),
             shared, stream>>>(args, slices, blocks);
    return cudaGetLastError();
  });
}

}  // namespace sru::kernels::cuda
