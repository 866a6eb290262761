#include "kernels/cuda/stack/forward.h"

#include "kernels/cuda/stack/stack_pass.h"

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
