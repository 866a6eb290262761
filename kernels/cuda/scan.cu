#include "kernels/cuda/launch.h"
#include "kernels/cuda/scan.cuh"
#include "kernels/cuda/storage_type.h"

namespace sru::kernels::cuda {
namespace {

template <typename T, int kDims, bool kByToken>
constexpr int kSharedBytes = ScanSharedBytes(kDims* static_cast<int>(sizeof(T)), kByToken);

template <typename T, int kDims, bool kByToken>
cudaError_t Launch(const ScanArgs& args, cudaStream_t stream) {
  return LaunchKernel(ScanKernel<T, kDims, kByToken>, ScanBlocks(args, kDims), kScanThreads,
                      kSharedBytes<T, kDims, kByToken>, stream, args);
}

template <typename T, int kDims>
cudaError_t Launch(const ScanArgs& args, cudaStream_t stream) {
  return args.token_ids != nullptr ? Launch<T, kDims, true>(args, stream)
                                   : Launch<T, kDims, false>(args, stream);
}

template <typename T, int kDims, bool kByToken>
cudaError_t Load() {
  return LoadKernel(ScanKernel<T, kDims, kByToken>, kSharedBytes<T, kDims, kByToken>);
}

template <typename T, int kDims>
cudaError_t Load() {
  const cudaError_t error = Load<T, kDims, false>();
  return error != cudaSuccess ? error : Load<T, kDims, true>();
}

}  // namespace

cudaError_t LoadScanKernels() {
  for (const cudaError_t error :
       {Load<float, 2>(), Load<float, 4>(), Load<BFloat16, 2>(), Load<BFloat16, 4>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchScan(DataType dtype, int dims, const ScanArgs& args, cudaStream_t stream) {
  return WithStorageType(dtype, [&](auto type) {
    using T = decltype(type);
    return dims == 4 ? Launch<T, 4>(args, stream) : Launch<T, 2>(args, stream);
  });
}

}  // namespace sru::kernels::cuda
