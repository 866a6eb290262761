// cuBLASLt, loaded when the first GPU is opened. It is not linked: the library has over 500 MB, and
// a program that was built with the toolkit must also start on a machine that has neither.
#ifndef SRU_KERNELS_CUDA_DEVICE_CUBLASLT_H_
#define SRU_KERNELS_CUDA_DEVICE_CUBLASLT_H_

#include <cublasLt.h>

#include "kernels/status.h"

namespace sru::kernels::cuda {

// The functions that the backend calls, named as in cublasLt.h.
// clang-format off
#define SRU_CUBLASLT_FUNCTIONS(X) \
  X(Create) X(Destroy) X(GetStatusString) \
  X(Matmul) X(MatmulAlgoConfigGetAttribute) X(MatmulAlgoGetHeuristic) \
  X(MatmulDescCreate) X(MatmulDescDestroy) X(MatmulDescSetAttribute) \
  X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) \
  X(MatrixLayoutCreate) X(MatrixLayoutDestroy)
// clang-format on

struct CublasLt {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member
#define SRU_CUBLASLT_MEMBER(name) decltype(&cublasLt##name) name;
  SRU_CUBLASLT_FUNCTIONS(SRU_CUBLASLT_MEMBER)
#undef SRU_CUBLASLT_MEMBER
};

// Loads the library once per process; it stays loaded. kUnavailable, with the loader's own words,
// when it is not there. Thread-safe.
Status LoadCublasLt(const CublasLt** library);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_CUBLASLT_H_
