// Runs CUDA kernels on the host: defines the parts of CUDA C++ that the kernels' sources
// (kernels/cuda/*.cuh) use, in plain C++. Include it before them.
//
//   Launch(blocks, threads, [&] { PoolKernel<float>(args); });
//
// It also has the instructions of tensor_core.cuh. A copy that was begun is made when it is waited
// for, and shared memory holds NaN when a block begins, so that reading too early shows. Or it is
// made when it is begun, so that it shows when it overwrites what is still to be read (ShimMode).
//
// Blocks run one after the other. The threads of a block run one after the other too, each until it
// ends or waits for others (__syncthreads, a shuffle); then each has a stack of its own (a fiber).
// They run in the order of their numbers or in the reverse order, since a barrier is not missed by
// threads that would run in the right order anyway.
// If a thread waits for one that has ended, or if all threads wait for different things, the
// program ends with a message: on a GPU that would hang or give garbage.
//
// The blocks of a cluster take turns, each until its threads wait for those of others or have
// ended. The program also ends with a message when a thread asks for the shared memory of a block
// that has not begun or that has ended.
#ifndef SRU_TESTS_KERNELS_CUDA_HOST_LAUNCH_SHIM_H_
#define SRU_TESTS_KERNELS_CUDA_HOST_LAUNCH_SHIM_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "tests/kernels/cuda_host/shim_mode.h"

// NOLINTBEGIN: the names are CUDA's.
#define __global__ static
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct CudaIndex {
  unsigned x = 0;
};
inline thread_local CudaIndex threadIdx;
inline thread_local CudaIndex blockIdx;

void __syncthreads();
float __shfl_xor_sync(unsigned mask, float value, int lane_mask);
unsigned long long __shfl_xor_sync(unsigned mask, unsigned long long value, int lane_mask);
unsigned long long __shfl_up_sync(unsigned mask, unsigned long long value, unsigned distance);
// Threads run one at a time.
inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to += value;
  return before;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}
// NOLINTEND

namespace sru::testing {
// The error of tanh, as SRU_CUDA_HOST_MODE says: 1, or the least or the most that the GPU's fast
// tanh may be of the true one.
extern const float kTanhFactor;
}  // namespace sru::testing

// The same as in shared_memory.cuh and tensor_core.cuh.
namespace sru::kernels::cuda {

// For device_math.cuh.
inline float HostTanh(float x) {
  // std::fmin would lose a NaN.
  return std::clamp(std::tanh(x) * sru::testing::kTanhFactor, -1.0f, 1.0f);
}

unsigned char* DynamicShared();
struct SharedAddress {
  unsigned char* place;
  SharedAddress operator+(int bytes) const { return {place + bytes}; }
};
inline SharedAddress SharedAddressOf(void* p) { return {static_cast<unsigned char*>(p)}; }
void BeginCopy(void* to, const void* from, int bytes);
template <int kBytes>
void BeginCopy(SharedAddress to, const void* from) {
  BeginCopy(to.place, from, kBytes);
}
template <int kBytes>
void BeginCopyIf(bool wanted, SharedAddress to, const void* from) {
  if (wanted) BeginCopy<kBytes>(to, from);
}
inline void Keep(int& /*value*/) {}
inline constexpr bool kHasClusters = true;
inline void Trap() { __builtin_trap(); }
void SyncCluster();
template <int kBlocks>
void SyncBlocks() {
  kBlocks == 1 ? __syncthreads() : SyncCluster();
}
void* SharedOfBlock(const void* place, int block);
void CommitCopies();
void WaitForCopies(int pending);
template <int kPending>
void WaitForCopies() {
  WaitForCopies(kPending);
}

void MultiplyTile(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                  uint32_t b1);
void SyncWarp();
void RoleBarrier(int threads);

}  // namespace sru::kernels::cuda

namespace sru::testing {

// Runs `kernel` once for each thread of each block. A block has `shared_bytes` of DynamicShared(),
// and every `cluster_blocks` blocks are a cluster.
void Launch(int64_t blocks, int threads, const std::function<void()>& kernel,
            size_t shared_bytes = 0, int cluster_blocks = 1);

// Shared memory and copies for a thread that no Launch() runs.
class IndependentThreads {
 public:
  explicit IndependentThreads(size_t shared_bytes);
  ~IndependentThreads();
  void BeginBlock();
  void EndThread();
};

// The same, faster, for kernels whose threads never wait for each other.
template <typename Kernel>
void LaunchIndependent(int64_t blocks, int threads, const Kernel& kernel, size_t shared_bytes = 0) {
  IndependentThreads state(shared_bytes);
  const bool reversed = GetShimMode().threads_reversed;
  for (int64_t b = 0; b < blocks; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    state.BeginBlock();
    for (int t = 0; t < threads; ++t) {
      threadIdx.x = static_cast<unsigned>(reversed ? threads - 1 - t : t);
      kernel();
      state.EndThread();
    }
  }
}

}  // namespace sru::testing

#endif  // SRU_TESTS_KERNELS_CUDA_HOST_LAUNCH_SHIM_H_
