// Products on one stream by cuBLASLt: float32 as float32 (never as TF32), bfloat16 with
// float32 sums. Not thread-safe.
#ifndef SRU_KERNELS_CUDA_DEVICE_PRODUCT_H_
#define SRU_KERNELS_CUDA_DEVICE_PRODUCT_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/device/cublaslt.h"
#include "kernels/cuda/device/device.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

class ProductRunner {
 public:
  // The device that is current is used. `workspace` is that of Device::CreateStream(), of
  // Device::product_workspace_bytes().
  static Status Create(const CublasLt& library, void* workspace, size_t workspace_bytes,
                       std::unique_ptr<ProductRunner>* runner);
  ~ProductRunner();
  ProductRunner(const ProductRunner&) = delete;
  ProductRunner& operator=(const ProductRunner&) = delete;

  // As Device::ProductCandidates().
  Status Candidates(const ProductShape& shape, int rows, size_t max_count,
                    std::vector<ProductAlgorithm>* candidates);

  // As Stream::Multiply().
  Status Run(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows, const void* x,
             const void* weights, void* y, cudaStream_t stream);

 private:
  ProductRunner(const CublasLt& library, void* workspace, size_t workspace_bytes)
      : library_(library), workspace_(workspace), workspace_bytes_(workspace_bytes) {}

  Status Check(cublasStatus_t status, const char* call) const;

  const CublasLt& library_;
  void* const workspace_;
  const size_t workspace_bytes_;
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_PRODUCT_H_
