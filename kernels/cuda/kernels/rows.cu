#include "kernels/cuda/kernels/compare.cuh"
#include "kernels/cuda/kernels/embedding.cuh"
#include "kernels/cuda/kernels/head.cuh"
#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/layer_norm.cuh"
#include "kernels/cuda/kernels/pool.cuh"
#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {

cudaError_t LoadRowKernels(int* architecture) {
  for (const cudaError_t error :
       {LoadKernel(EmbedKernel<float>, architecture),
        LoadKernel(EmbedKernel<BFloat16>, architecture),
        LoadKernel(LayerNormKernel<float>, architecture),
        LoadKernel(LayerNormKernel<BFloat16>, architecture),
        LoadKernel(PoolKernel<float>, architecture), LoadKernel(PoolKernel<BFloat16>, architecture),
        LoadKernel(HeadKernel<float>, architecture),
        LoadKernel(CompareKernel<uint32_t>, architecture)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchEmbed(DataType dtype, const EmbedArgs& args, LaunchStream stream) {
  return WithStorageType(dtype, [&](auto type) {
    using T = decltype(type);
    return LaunchKernel(EmbedKernel<T>, EmbedBlocks(args, sizeof(T)), kRowThreads, 0, stream, args);
  });
}

cudaError_t LaunchLayerNorm(DataType dtype, const LayerNormArgs& args, LaunchStream stream) {
  return WithStorageType(dtype, [&](auto type) {
    return LaunchKernel(LayerNormKernel<decltype(type)>, LayerNormBlocks(args), kRowThreads, 0,
                        stream, args);
  });
}

cudaError_t LaunchPool(DataType dtype, const PoolArgs& args, LaunchStream stream) {
  const int per_sequence = PoolBlocksPerSequence(args);
  return WithStorageType(dtype, [&](auto type) {
    return LaunchKernel(PoolKernel<decltype(type)>, PoolBlocks(args), kRowThreads, 0, stream, args,
                        per_sequence);
  });
}

cudaError_t LaunchHead(const HeadArgs& args, LaunchStream stream) {
  return LaunchKernel(HeadKernel<float>, HeadBlocks(args), kRowThreads, 0, stream, args);
}

cudaError_t LaunchCompare(const CompareArgs& args, LaunchStream stream) {
  return LaunchKernel(CompareKernel<uint32_t>, CompareBlocks(args), kRowThreads, 0, stream, args);
}

}  // namespace sru::kernels::cuda
