// SRU_HOST_DEVICE marks a function that both host code and CUDA kernels call.
#ifndef SRU_KERNELS_HOST_AND_DEVICE_H_
#define SRU_KERNELS_HOST_AND_DEVICE_H_

#ifdef __CUDACC__
#define SRU_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SRU_HOST_DEVICE inline
#endif

#endif  // SRU_KERNELS_HOST_AND_DEVICE_H_
