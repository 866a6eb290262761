// Products on tensor cores, and the barrier of warps with roles. Tests bring their own
// (tests/kernels/cuda_host/launch_shim.h), which do the same on the host.
#ifndef SRU_KERNELS_CUDA_KERNELS_TENSOR_CORE_CUH_
#define SRU_KERNELS_CUDA_KERNELS_TENSOR_CORE_CUH_

#include <cstdint>

namespace sru::kernels::cuda {

#ifdef __CUDACC__

// d += a b for a 16 x 16 tile a, a 16 x 8 tile b, in bfloat16, and a 16 x 8 tile d in float32. All
// lanes of a warp must call. With g = lane / 4 and q = lane % 4 a lane holds
//   a   rows g, g+8, g, g+8 and columns 2q, 2q, 2q+8, 2q+8, each with the next column
//   b   rows 2q and 2q+8, each with the next row, of column g
//   d   rows g, g, g+8, g+8 and columns 2q, 2q+1, 2q, 2q+1
__device__ __forceinline__ void MultiplyTile(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Until all lanes of the warp are here, and see what the others have written.
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }

// Until `threads`, a multiple of 32, are here. Unlike __syncthreads() it may be called in several
// places of a kernel, one for each role of its warps: bar.sync would promise that all come to the
// same instruction.
__device__ __forceinline__ void RoleBarrier(int threads) {
  __syncwarp();  // the warp arrives as one
  asm volatile("barrier.sync 1, %0;" ::"r"(threads) : "memory");
}

#endif  // __CUDACC__

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_TENSOR_CORE_CUH_
