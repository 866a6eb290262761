// The forward pass of one bucket: what runs between the copy of a batch to the device and the copy
// of its token vectors back.
#ifndef SRU_KERNELS_CUDA_STACK_FORWARD_H_
#define SRU_KERNELS_CUDA_STACK_FORWARD_H_

#include "kernels/cuda/device/bucket.h"
#include "kernels/cuda/stack/cuda_workspace.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/token_table.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// Puts the launches on the workspace's stream: embedding, layers, pooling, classifier, and the
// copies of the results per sequence to the host. Nothing of it depends on the batch but on its
// bucket, so it may be recorded. Token vectors are left on the device. With a table (null = none)
// batches of token ids begin with the first layer's scan.
Status EnqueueForward(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                      const Bucket& bucket, CudaWorkspace& workspace);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_FORWARD_H_
