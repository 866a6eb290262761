#include "kernels/cuda/stack/cuda_workspace.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sru::kernels::cuda {
namespace {

// Whether the kernels write these results to the host's memory: then there is nothing to copy.
bool IsMapped(const Bucket& bucket, const ResultRows& rows) {
  return bucket.sequences * rows.row_values * sizeof(float) <= kMappedResultBytes;
}

Status CopyRows(const Bucket& bucket, const ResultRows& rows, Stream& stream) {
  return stream.CopyToHost(rows.host.data(), rows.device.data(),
                           bucket.sequences * rows.row_values * sizeof(float));
}

}  // namespace

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

Status EnqueueForward(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                      const Bucket& bucket, CudaWorkspace& workspace) {
  const InputLayout layout(stack, bucket);
  const char* const input = workspace.input.as<char>();
  StackPass pass;
  pass.stream = workspace.stream.get();
  pass.max_tokens = bucket.tokens;
  pass.num_sequences = bucket.sequences;
  pass.choice = [&](const PackedProduct& product) { return workspace.choice(product, bucket); };
  pass.header = reinterpret_cast<const BatchHeader*>(input + layout.header);
  pass.sequences = reinterpret_cast<const SequenceEntry*>(input + layout.sequences);
  if (bucket.has(Bucket::kFeatures)) {
    pass.features = reinterpret_cast<const float*>(input + layout.tokens);
    pass.feature_stride = stack.spec.input_size;
  } else {
    pass.token_ids = reinterpret_cast<const int32_t*>(input + layout.tokens);
  }
  if (bucket.has(Bucket::kInitialState)) {
    pass.initial_state = reinterpret_cast<const float*>(input + layout.initial_state);
  }
  const bool wants_labels = bucket.has(Bucket::kLabels);
  const ResultRows& labels = workspace.labels;
  const ResultRows& pooled = workspace.pooled;
  const ResultRows& final_state = workspace.final_state;
  const bool maps_labels = IsMapped(bucket, labels);
  // The classifier reads them, which must not go to the host and back.
  const bool maps_pooled = !wants_labels && IsMapped(bucket, pooled);
  const bool maps_state = IsMapped(bucket, final_state);
  const auto place = [](const ResultRows& rows, bool is_mapped) {
    return (is_mapped ? rows.host : rows.device).as<float>();
  };
  if (bucket.has(Bucket::kFinalState)) pass.final_state = place(final_state, maps_state);
  if (bucket.has(Bucket::kTokenVectors)) pass.token_vectors = place(workspace.token_vectors, false);
  if (wants_labels || bucket.has(Bucket::kPooled)) pass.pooled = place(pooled, maps_pooled);
  if (wants_labels) {
    pass.label_results = place(labels, false);
    if (maps_labels) pass.host_label_results = place(labels, true);
  }
  pass.scratch = &workspace.scratch;
  Status status = EnqueueStack(stack, weights, table, pass);
  Stream& stream = *workspace.stream;
  const auto copy = [&](Bucket::Flag flag, const ResultRows& rows, bool is_mapped) {
    if (status.ok() && bucket.has(flag) && !is_mapped) status = CopyRows(bucket, rows, stream);
  };
  copy(Bucket::kLabels, labels, maps_labels);
  copy(Bucket::kPooled, pooled, maps_pooled);
  copy(Bucket::kFinalState, final_state, maps_state);
  return status;
}

}  // namespace sru::kernels::cuda
