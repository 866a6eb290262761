#include "kernels/cuda/compare.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/head.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layer_norm.cuh"
#include "kernels/cuda/pool.cuh"
#include "kernels/cuda/storage_type.h"

namespace sru::kernels::cuda {

cudaError_t LoadRowKernels() {
  for (const cudaError_t error :
       {LoadKernel(EmbedKernel<float>), LoadKernel(EmbedKernel<BFloat16>),
        LoadKernel(LayerNormKernel<float>), LoadKernel(LayerNormKernel<BFloat16>),
        LoadKernel(PoolKernel<float>), LoadKernel(PoolKernel<BFloat16>),
        LoadKernel(HeadKernel<float>), LoadKernel(CompareKernel<uint32_t>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchEmbed(DataType dtype, const EmbedArgs& args, cudaStream_t stream) {
  WithStorageType(dtype, [&](auto type) {
    using T = decltype(type);
    const auto blocks = static_cast<unsigned>(EmbedBlocks(args, sizeof(T)));
    EmbedKernel<T><<<blocks, kRowThreads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}

cudaError_t LaunchLayerNorm(DataType dtype, const LayerNormArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(LayerNormBlocks(args));
  WithStorageType(dtype, [&](auto type) {
    LayerNormKernel<decltype(type)><<<blocks, kRowThreads, 0, stream>>>(args);
  });
  return cudaGetLastError();
}

cudaError_t LaunchPool(DataType dtype, const PoolArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(PoolBlocks(args));
  const int per_sequence = PoolBlocksPerSequence(args);
  WithStorageType(dtype, [&](auto type) {
    PoolKernel<decltype(type)><<<blocks, kRowThreads, 0, stream>>>(args, per_sequence);
  });
  return cudaGetLastError();
}

cudaError_t LaunchHead(const HeadArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(HeadBlocks(args));
  HeadKernel<float><<<blocks, kRowThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t LaunchCompare(const CompareArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(CompareBlocks(args));
  CompareKernel<uint32_t><<<blocks, kRowThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace sru::kernels::cuda
