#include "kernels/cuda/stack/cuda_workspace.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sru::kernels::cuda {
InputLayout::InputLayout(const PackedStack& stack, const Bucket& bucket) {
  sequences = AlignStaged(sizeof(BatchHeader));
  initial_state = AlignStaged(sequences + bucket.sequences * sizeof(SequenceEntry));
  size_t state_bytes = 0;
  if (bucket.has(Bucket::kInitialState)) {
    state_bytes = bucket.sequences * stack.layers.size() * stack.output().stride() * sizeof(float);
  }
  tokens = AlignStaged(initial_state + state_bytes);
  token_bytes =
      bucket.has(Bucket::kFeatures) ? stack.spec.input_size * sizeof(float) : sizeof(int32_t);
  end = tokens + bucket.tokens * token_bytes;
}

size_t CudaWorkspace::TokenBucketIndex(int tokens) const {
  return std::lower_bound(token_buckets_.begin(), token_buckets_.end(), tokens) -
         token_buckets_.begin();
}

Status CudaWorkspace::Create(const PackedStack& stack, const std::shared_ptr<Gpu>& gpu,
                             ProductPlans& plans, const WorkspaceLimits& limits,
                             std::unique_ptr<CudaWorkspace>* workspace) {
  std::unique_ptr<CudaWorkspace> ws(new CudaWorkspace(gpu, limits));
  const size_t rows = ws->token_buckets_.back();
  const size_t sequences = limits.max_sequences;
  const size_t width = stack.output().stride();

  Bucket largest;
  largest.tokens = static_cast<int>(rows);
  largest.sequences = limits.max_sequences;
  if (limits.states) largest.flags |= Bucket::kInitialState;
  const size_t id_bytes = InputLayout(stack, largest).end;
  largest.flags |= Bucket::kFeatures;
  const size_t input_bytes = std::max(id_bytes, InputLayout(stack, largest).end);

  struct Rows {
    ResultRows* result;
    size_t count;
    size_t row_values;
  };
  const Rows results[] = {
      {&ws->labels, sequences, static_cast<size_t>(2) * stack.spec.num_labels},
      {&ws->pooled, sequences, width},
      {&ws->final_state, limits.states ? sequences : 0, stack.layers.size() * width},
      {&ws->token_vectors, rows, width},
  };
  ArrayPlan on_device;
  on_device.AddEach(ws->scratch.arrays(), StackScratch::Bytes(stack, rows));
  on_device.Add(&ws->input, input_bytes);
  ArrayPlan on_host;
  on_host.Add(&ws->host_input, input_bytes);
  for (const Rows& result : results) {
    const size_t bytes = result.count * result.row_values * sizeof(float);
    result.result->row_values = result.row_values;
    on_device.Add(&result.result->device, bytes);
    on_host.Add(&result.result->host, bytes);
  }
  const size_t device_bytes = gpu->device().product_workspace_bytes() + on_device.bytes();
  SRU_RETURN_IF_ERROR(gpu->CheckBudget("a workspace for " + std::to_string(limits.max_tokens) +
                                           " tokens and " + std::to_string(limits.max_sequences) +
                                           " sequences",
                                       device_bytes));
  SRU_RETURN_IF_ERROR(GpuStream::Create(gpu, &ws->stream));
  // Before the other memory is taken, for the trials need some of their own.
  SRU_RETURN_IF_ERROR(plans.Choose(ws->token_buckets_, *ws->stream, &ws->choices_));
  SRU_RETURN_IF_ERROR(ws->stream.CreateInitialized(gpu, on_device, &ws->device_memory_));
  SRU_RETURN_IF_ERROR(PinnedBuffer::Create(gpu, on_host, &ws->host_memory_));
  on_device.Place(ws->device_memory_.data());
  on_host.Place(ws->host_memory_.data());
  ws->bytes_ = device_bytes + on_host.bytes();
  *workspace = std::move(ws);
  return OkStatus();
}

CudaWorkspace::~CudaWorkspace() {
  // Nothing may be in flight when the memory goes; what the device says of it is of no use here.
  if (stream.get() != nullptr) (void)stream->Wait();
  graphs.Clear();
}

}  // namespace sru::kernels::cuda
