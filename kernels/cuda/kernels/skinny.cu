#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/skinny.cuh"

namespace sru::kernels::cuda {

cudaError_t LoadSkinnyKernels(size_t max_shared_bytes) {
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (DataType result : {DataType::kFloat32, dtype}) {
      for (int rows : {16, 32, 64}) {
        const cudaError_t error =
            WithSkinnyKernel(dtype, result, rows, [&](auto* kernel, int /*block_rows*/) {
              return LoadKernel(kernel, max_shared_bytes, /*shared_first=*/true);
            });
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchSkinny(DataType dtype, DataType result_dtype, const SkinnyArgs& args,
                         int num_multiprocessors, size_t max_shared_bytes, LaunchStream stream) {
  return WithSkinnyKernel(dtype, result_dtype, args.rows, [&](auto* kernel, int block_rows) {
    const SkinnyLaunch launch = SkinnyLaunchOf(args, static_cast<int>(ValueBytes(dtype)),
                                               block_rows, num_multiprocessors, max_shared_bytes);
    return LaunchKernel(kernel, launch.blocks, launch.threads(), launch.shared_bytes, stream, args,
                        launch.warps);
  });
}

}  // namespace sru::kernels::cuda
