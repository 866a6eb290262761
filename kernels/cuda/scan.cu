#include "kernels/cuda/launch.h"
#include "kernels/cuda/scan.cuh"

namespace sru::kernels::cuda {
namespace {

template <typename T, int kDims>
void Launch(const ScanArgs& args, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(ScanBlocks(args, kDims));
  ScanKernel<T, kDims><<<blocks, kScanThreads, 0, stream>>>(args);
}

}  // namespace

cudaError_t LoadScanKernels() {
  for (const cudaError_t error :
       {LoadKernel(ScanKernel<float, 2>), LoadKernel(ScanKernel<float, 4>),
        LoadKernel(ScanKernel<BFloat16, 2>), LoadKernel(ScanKernel<BFloat16, 4>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchScan(DataType dtype, int dims, const ScanArgs& args, cudaStream_t stream) {
  if (dtype == DataType::kBFloat16) {
    if (dims == 4) {
      Launch<BFloat16, 4>(args, stream);
    } else {
      Launch<BFloat16, 2>(args, stream);
    }
  } else if (dims == 4) {
    Launch<float, 4>(args, stream);
  } else {
    Launch<float, 2>(args, stream);
  }
  return cudaGetLastError();
}

}  // namespace sru::kernels::cuda
