// Runs CUDA kernels on the host: what the kernels' sources (kernels/cuda/*.cuh) use of CUDA C++, as
// plain C++. Include it before them.
//
//   Launch(blocks, threads, [&] { LayerNormKernel<float>(args); });
//
// Blocks run one after the other. The threads of a block run one after the other too, each until it
// ends or waits for others (__syncthreads, a shuffle); then each has a stack of its own (a fiber).
// A thread that waits for one that has ended, or all threads waiting for different things, ends the
// program with a message: on a GPU that would hang or give garbage.
#ifndef SRU_TESTS_KERNELS_CUDA_HOST_LAUNCH_SHIM_H_
#define SRU_TESTS_KERNELS_CUDA_HOST_LAUNCH_SHIM_H_

#include <cmath>
#include <cstdint>
#include <functional>

// NOLINTBEGIN: the names are CUDA's.
#define __global__ static
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static

struct CudaIndex {
  unsigned x = 0;
};
inline thread_local CudaIndex threadIdx;
inline thread_local CudaIndex blockIdx;

void __syncthreads();
float __shfl_xor_sync(unsigned mask, float value, int lane_mask);
// NOLINTEND

namespace sru::testing {

// Runs `kernel` once for each thread of each block.
void Launch(int64_t blocks, int threads, const std::function<void()>& kernel);

// The same, faster, for kernels whose threads never wait for each other.
template <typename Kernel>
void LaunchIndependent(int64_t blocks, int threads, const Kernel& kernel) {
  for (int64_t b = 0; b < blocks; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    for (int t = 0; t < threads; ++t) {
      threadIdx.x = static_cast<unsigned>(t);
      kernel();
    }
  }
}

}  // namespace sru::testing

#endif  // SRU_TESTS_KERNELS_CUDA_HOST_LAUNCH_SHIM_H_
