// cuBLASLt, loaded when the first GPU is opened. It is not linked: the library has over 500 MB, and
// a program that was built with the toolkit must also start on a machine that has neither.
#ifndef SRU_KERNELS_CUDA_DEVICE_CUBLASLT_H_
#define SRU_KERNELS_CUDA_DEVICE_CUBLASLT_H_

#include <cublasLt.h>

#include "kernels/status.h"

namespace sru::kernels::cuda {

// The functions that the backend calls, named as in cublasLt.h.
struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) MatmulAlgoConfigGetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
};

// Loads the library once per process; it stays loaded. kUnavailable, with the loader's own words,
// when it is not there. Thread-safe.
Status LoadCublasLt(const CublasLt** library);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_CUBLASLT_H_
