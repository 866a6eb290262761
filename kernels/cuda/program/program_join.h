// Joins what can be one launch of the operations of a packed program. At decoding's few rows a
// launch takes longer than what it does.
#ifndef SRU_KERNELS_CUDA_PROGRAM_PROGRAM_JOIN_H_
#define SRU_KERNELS_CUDA_PROGRAM_PROGRAM_JOIN_H_

#include "kernels/cuda/program/program_pack.h"

namespace sru::kernels::cuda {

// For a program whose products and parts are known. An operation rounds its own rows for the
// products that read them, where it can. Appends of values that are columns of one product, and an
// Add and the Normalize of its sum, are one launch, where nothing runs between them; what they read
// lives until the last one of them. The states of an axis' stacks are copied together.
// Throws std::bad_alloc.
void JoinOperations(PackedProgram* packed);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PROGRAM_PROGRAM_JOIN_H_
