// Shared memory, asynchronous copies into it (compute capability 8.0 and later), and that of the
// other blocks of a cluster (9.0 and later). Tests bring their own
// (tests/kernels/cuda_host/launch_shim.h), which do the same on the host.
#ifndef SRU_KERNELS_CUDA_KERNELS_SHARED_MEMORY_CUH_
#define SRU_KERNELS_CUDA_KERNELS_SHARED_MEMORY_CUH_

#include <cstdint>

namespace sru::kernels::cuda {

#ifdef __CUDACC__

// A block's shared memory of the size that its launch says.
__device__ __forceinline__ unsigned char* DynamicShared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}

// Where copies go. Offsets in bytes may be added.
using SharedAddress = uint32_t;

// Worth keeping: nvcc would find it again at every copy, and ask for the block's place each time.
__device__ __forceinline__ SharedAddress SharedAddressOf(void* p) {
  auto address = static_cast<SharedAddress>(__cvta_generic_to_shared(p));
  asm volatile("" : "+r"(address));
  return address;
}

// Keeps a value in a register: nvcc would read a kernel's argument again wherever it is used.
__device__ __forceinline__ void Keep(int& value) { asm volatile("" : "+r"(value)); }

// Begins a copy of kBytes, 4, 8 or 16, from global to shared memory, both aligned to as much.
template <int kBytes>
__device__ __forceinline__ void BeginCopy(SharedAddress to, const void* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes)
                 : "memory");
  }
}

// The same without a branch around it, which would keep the instructions on either side apart.
template <int kBytes>
__device__ __forceinline__ void BeginCopyIf(bool wanted, SharedAddress to, const void* from) {
  const int predicate = wanted ? 1 : 0;
  if constexpr (kBytes == 16) {
    asm volatile(
        "{ .reg .pred p; setp.ne.s32 p, %0, 0;\n\t"
        "@p cp.async.cg.shared.global [%1], [%2], 16; }" ::"r"(predicate),
        "r"(to), "l"(from)
        : "memory");
  } else {
    asm volatile(
        "{ .reg .pred p; setp.ne.s32 p, %0, 0;\n\t"
        "@p cp.async.ca.shared.global [%1], [%2], %3; }" ::"r"(predicate),
        "r"(to), "l"(from), "n"(kBytes)
        : "memory");
  }
}

// Makes a group, possibly an empty one, of the copies that this thread has begun since the last
// one.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most kPending of this thread's groups, the latest ones, are still on their way.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// True if the GPU that is compiled for has clusters. Where it has none, launch.h does not launch
// the kernels of clusters, and they end the launch with an error.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasClusters = false;
#else
inline constexpr bool kHasClusters = true;
#endif

// Ends the launch with an error.
__device__ __forceinline__ void Trap() { asm volatile("trap;"); }

// Waits for all threads of a cluster of kBlocks blocks, or of the block where that is one. What
// each has written before, all see. A block must not end while another one may still access its
// shared memory, so one more of these comes after such accesses.
template <int kBlocks>
__device__ __forceinline__ void SyncBlocks() {
  if constexpr (kBlocks == 1) {
    __syncthreads();
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "barrier.cluster.arrive.release;\n\t"
        "barrier.cluster.wait.acquire;" ::
            : "memory");
#endif
  }
}

// The same place in the shared memory of another block of the cluster, which has begun.
__device__ __forceinline__ void* SharedOfBlock(const void* place, int block) {
  void* other = nullptr;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(place), "r"(block));
#endif
  return other;
}

#endif  // __CUDACC__

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SHARED_MEMORY_CUH_
