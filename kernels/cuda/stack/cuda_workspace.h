// The memory of one worker of the CUDA backend: a stream, device and pinned host memory, recorded
// graphs. All of it is allocated when it is made; serving adds recorded graphs only, which are
// bounded. Not thread-safe.
#ifndef SRU_KERNELS_CUDA_STACK_CUDA_WORKSPACE_H_
#define SRU_KERNELS_CUDA_STACK_CUDA_WORKSPACE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/device/array_plan.h"
#include "kernels/cuda/device/bucket.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/graph_cache.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/cuda/stack/stack_pass.h"

namespace sru::kernels::cuda {

// Results of a batch, of one kind, that take at most this much are written to host memory by the
// kernels themselves: less than what a copy takes to begin. More would hold up the kernels.
inline constexpr size_t kMappedResultBytes = size_t{16} << 10;

// Graphs that a workspace keeps: enough for the buckets that a steady load falls into.
inline constexpr size_t kMaxGraphs = 256;

// Where the parts of a batch are in the input staging, in bytes from its beginning. The same on
// the host and on the device, and the same for every batch of a bucket. One copy brings all of it.
struct InputLayout {
  InputLayout(const PackedStack& stack, const Bucket& bucket);

  size_t header = 0;         // BatchHeader
  size_t sequences = 0;      // SequenceEntry[bucket.sequences]
  size_t initial_state = 0;  // float [bucket.sequences][layers][output stride]
  size_t tokens = 0;         // int32_t or float [input_size], each of bucket.tokens
  size_t token_bytes = 0;    // of one token
  size_t end = 0;
};

// One kind of result: rows of float32 that are computed on the device and copied to the host.
struct ResultRows {
  size_t row_values = 0;
  ArrayView device;
  ArrayView host;

  float* row(int index) const { return host.as<float>() + index * row_values; }
};

class CudaWorkspace : public Workspace {
 private:
  const std::shared_ptr<Gpu> gpu_;  // outlives all that follows
  DeviceBuffer device_memory_;      // of the arrays below
  PinnedBuffer host_memory_;

 public:
  // kResourceExhausted when the device's budget does not hold it.
  static Status Create(const PackedStack& stack, const std::shared_ptr<Gpu>& gpu,
                       ProductPlans& plans, const WorkspaceLimits& limits,
                       std::unique_ptr<CudaWorkspace>* workspace);
  ~CudaWorkspace() override;

  const WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override { return bytes_; }

  Gpu& gpu() const { return *gpu_; }
  // The index in token_buckets() of the smallest bucket that holds this many tokens.
  size_t TokenBucketIndex(int tokens) const;
  const std::vector<int>& token_buckets() const { return token_buckets_; }
  const ProductChoice& choice(const PackedProduct& product, const Bucket& bucket) const {
    return choices_[product.shape][TokenBucketIndex(bucket.tokens)];
  }

  // Rows are those of the largest bucket.
  StackScratch scratch;
  ArrayView input;
  ArrayView host_input;
  ResultRows labels;         // [sequence][logits, probabilities][labels]
  ResultRows pooled;         // [sequence][output stride]
  ResultRows final_state;    // [sequence][layers][output stride]
  ResultRows token_vectors;  // [token][output stride]

  GpuStream stream;
  GraphCache graphs{kMaxGraphs, &gpu_->graph_use()};

 private:
  CudaWorkspace(std::shared_ptr<Gpu> gpu, const WorkspaceLimits& limits)
      : gpu_(std::move(gpu)), limits_(limits), token_buckets_(TokenBuckets(limits.max_tokens)) {}

  const WorkspaceLimits limits_;
  const std::vector<int> token_buckets_;
  std::vector<std::vector<ProductChoice>> choices_;  // [shape][token bucket]
  size_t bytes_ = 0;
};

// Puts the forward pass of one bucket on the workspace's stream: embedding, layers, pooling,
// classifier, and the copies of the results per sequence to the host. Nothing of it depends on the
// batch but on its bucket, so it may be recorded. Token vectors are left on the device. With a
// table (null = none) batches of token ids begin with the first layer's scan.
Status EnqueueForward(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                      const Bucket& bucket, CudaWorkspace& workspace);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_CUDA_WORKSPACE_H_
