// SRU_HOST_DEVICE: what stands before a function that both the host and the kernels call.
#ifndef SRU_KERNELS_CUDA_HOST_AND_DEVICE_H_
#define SRU_KERNELS_CUDA_HOST_AND_DEVICE_H_

#ifdef __CUDACC__
#define SRU_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SRU_HOST_DEVICE inline
#endif

#endif  // SRU_KERNELS_CUDA_HOST_AND_DEVICE_H_
