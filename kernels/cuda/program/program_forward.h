// The operations of a part of a program for one bucket: what runs between the copy of a batch to
// the device and the copies of its results back.
#ifndef SRU_KERNELS_CUDA_PROGRAM_PROGRAM_FORWARD_H_
#define SRU_KERNELS_CUDA_PROGRAM_PROGRAM_FORWARD_H_

#include "kernels/cuda/program/program_pack.h"
#include "kernels/cuda/program/program_workspace.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// Puts the launches on the workspace's stream. Nothing of it depends on the batch but on its
// bucket, so it may be recorded. Results are left on the device: rows in the values' buffers, and
// what a Predict answers in the workspace's predictions.
Status EnqueueProgram(const PackedProgram& packed, const ProgramOnDevice& device,
                      const ProgramBucket& bucket, CudaProgramWorkspace& workspace);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PROGRAM_PROGRAM_FORWARD_H_
