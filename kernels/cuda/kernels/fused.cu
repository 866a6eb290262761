#include "kernels/cuda/kernels/fused.cuh"
#include "kernels/cuda/kernels/launch.h"

namespace sru::kernels::cuda {
namespace {

// Calls `use` with the kernel for rows of k values and this many matrices.
template <int kInput, typename Use>
cudaError_t WithMatrices(int matrices, const Use& use) {
  return matrices == 4 ? use(FusedKernel<kInput, 4>) : use(FusedKernel<kInput, 3>);
}
template <typename Use>
cudaError_t WithKernel(int k, int matrices, const Use& use) {
  return FusedInput(k) == 64 ? WithMatrices<64>(matrices, use)
                             : WithMatrices<kFusedMaxInput>(matrices, use);
}

}  // namespace

cudaError_t LoadFusedKernels(int* architecture) {
  for (int input = FusedInput(0); input <= kFusedMaxInput; input *= 2) {
    for (int matrices : {3, 4}) {
      const cudaError_t error = WithKernel(input, matrices, [&](auto* kernel) {
        return LoadKernel(kernel, architecture, FusedSharedBytes(input, matrices, kFusedMaxSlices),
                          /*shared_first=*/true);
      });
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

int FusedBlocksPerMultiprocessor(const FusedArgs& args, int slices) {
  int blocks = 0;
  const int matrices = args.scan.matrices;
  const cudaError_t error = WithKernel(args.k, matrices, [&](auto* kernel) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, reinterpret_cast<const void*>(kernel), FusedThreads(matrices, slices),
        FusedSharedBytes(FusedInput(args.k), matrices, slices));
  });
  if (error != cudaSuccess) (void)cudaGetLastError();  // nobody else is to find it
  return error == cudaSuccess && blocks > 0 ? blocks : 1;
}

cudaError_t LaunchFused(const FusedArgs& args, int slices, int blocks, LaunchStream stream) {
  const int matrices = args.scan.matrices;
  return WithKernel(args.k, matrices, [&](auto* kernel) {
    const size_t shared = FusedSharedBytes(FusedInput(args.k), matrices, slices);
    return LaunchKernel(kernel, blocks, FusedThreads(matrices, slices), shared, stream, args,
                        slices, blocks);
  });
}

}  // namespace sru::kernels::cuda
