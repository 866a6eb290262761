// The kernels of all operations, with their launches. operations.cu and the tests' device on the
// host (tests/kernels/cuda_host/) share it.
#ifndef SRU_KERNELS_CUDA_KERNELS_OPERATION_LAUNCH_CUH_
#define SRU_KERNELS_CUDA_KERNELS_OPERATION_LAUNCH_CUH_

#include "kernels/cuda/kernels/attend.cuh"
#include "kernels/cuda/kernels/compare.cuh"
#include "kernels/cuda/kernels/embedding.cuh"
#include "kernels/cuda/kernels/head.cuh"
#include "kernels/cuda/kernels/pool.cuh"
#include "kernels/cuda/kernels/predict.cuh"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/sequence_operations.cuh"

#endif  // SRU_KERNELS_CUDA_KERNELS_OPERATION_LAUNCH_CUH_
