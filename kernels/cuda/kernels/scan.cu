#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/scan.cuh"
#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {
namespace {

template <typename T, int kDims>
cudaError_t Launch(const ScanArgs& args, LaunchStream stream) {
  const bool by_token = args.token_ids != nullptr;
  const int shared_bytes = ScanSharedBytes(kDims * static_cast<int>(sizeof(T)), by_token);
  return WithScanKernel<T, kDims>(by_token, OutputOf(args), args.activation, [&](auto* kernel) {
    return LaunchKernel(kernel, ScanBlocks(args, kDims), kScanThreads, shared_bytes, stream, args);
  });
}

template <typename T, int kDims>
cudaError_t Load(int* architecture) {
  for (const bool by_token : {false, true}) {
    for (const ScanOutput output : kAllScanOutputs) {
      for (const Activation activation : kAllActivations) {
        const cudaError_t error =
            WithScanKernel<T, kDims>(by_token, output, activation, [&](auto* kernel) {
              return LoadKernel(kernel, architecture,
                                ScanSharedBytes(kDims * static_cast<int>(sizeof(T)), by_token),
                                /*shared_first=*/true);
            });
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LoadScanKernels(int* architecture) {
  for (const cudaError_t error :
       {Load<float, 2>(architecture), Load<float, 4>(architecture), Load<BFloat16, 2>(architecture),
        Load<BFloat16, 4>(architecture)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchScan(DataType dtype, int dims, const ScanArgs& args, LaunchStream stream) {
  return WithStorageType(dtype, [&](auto type) {
    using T = decltype(type);
    return dims == 4 ? Launch<T, 4>(args, stream) : Launch<T, 2>(args, stream);
  });
}

}  // namespace sru::kernels::cuda
