#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/skinny.cuh"

namespace sru::kernels::cuda {

namespace {

template <typename Args>
cudaError_t Load(int* architecture, size_t max_shared_bytes) {
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (DataType result : {DataType::kFloat32, dtype}) {
      for (int rows : {16, 32, 64}) {
        Args args{};
        args.rows = rows;
        const cudaError_t error =
            WithSkinnyKernel(dtype, result, args, [&](auto* kernel, int /*block_rows*/) {
              return LoadKernel(kernel, architecture, max_shared_bytes, /*shared_first=*/true);
            });
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LoadSkinnyKernels(int* architecture, size_t max_shared_bytes) {
  const cudaError_t error = Load<SkinnyArgs>(architecture, max_shared_bytes);
  return error != cudaSuccess ? error : Load<NormalizedProductArgs>(architecture, max_shared_bytes);
}

template <typename Args>
cudaError_t LaunchSkinny(DataType dtype, DataType result_dtype, const Args& args,
                         int num_multiprocessors, size_t max_shared_bytes, LaunchStream stream) {
  return WithSkinnyKernel(dtype, result_dtype, args, [&](auto* kernel, int block_rows) {
    const SkinnyLaunch launch = SkinnyLaunchOf(args, std::is_same_v<Args, NormalizedProductArgs>,
                                               static_cast<int>(ValueBytes(dtype)), block_rows,
                                               num_multiprocessors, max_shared_bytes);
    return LaunchKernel(kernel, launch.blocks, launch.threads, launch.shared_bytes, stream, args,
                        launch.warps);
  });
}
template cudaError_t LaunchSkinny(DataType, DataType, const SkinnyArgs&, int, size_t, LaunchStream);
template cudaError_t LaunchSkinny(DataType, DataType, const NormalizedProductArgs&, int, size_t,
                                  LaunchStream);

}  // namespace sru::kernels::cuda
