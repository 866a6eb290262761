#include "kernels/cuda/forward.h"

#include "kernels/cuda/stack_pass.h"

namespace sru::kernels::cuda {
namespace {

Status CopyRows(const Bucket& bucket, Bucket::Flag flag, const ResultRows& rows, Stream& stream) {
  if (!bucket.has(flag)) return OkStatus();
  return stream.CopyToHost(rows.host.data(), rows.device.data(),
                           bucket.sequences * rows.row_values * sizeof(float));
}

}  // namespace

Status EnqueueForward(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                      const Bucket& bucket, CudaWorkspace& workspace) {
  const InputLayout layout(stack, bucket);
  const char* const input = workspace.input.as<char>();
  const auto results = [&](bool wanted, const ResultRows& rows) {
    return wanted ? rows.device.as<float>() : nullptr;
  };
  StackPass pass;
  pass.stream = workspace.stream.get();
  pass.max_tokens = bucket.tokens;
  pass.num_sequences = bucket.sequences;
  pass.choice = [&](const PackedProduct& product) -> const ProductChoice& {
    return workspace.choice(product, bucket);
  };
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
  const bool labels = bucket.has(Bucket::kLabels);
  pass.final_state = results(bucket.has(Bucket::kFinalState), workspace.final_state);
  pass.token_vectors = results(bucket.has(Bucket::kTokenVectors), workspace.token_vectors);
  pass.pooled = results(labels || bucket.has(Bucket::kPooled), workspace.pooled);
  pass.label_results = results(labels, workspace.labels);
  pass.x = workspace.x.data();
  pass.h = workspace.h.data();
  pass.normalized = workspace.normalized.data();
  pass.projected = workspace.projected.data();
  pass.u = workspace.u.data();
  Status status = EnqueueStack(stack, weights, table, pass);
  Stream& stream = *workspace.stream;
  if (status.ok()) status = CopyRows(bucket, Bucket::kLabels, workspace.labels, stream);
  if (status.ok()) status = CopyRows(bucket, Bucket::kPooled, workspace.pooled, stream);
  if (status.ok()) status = CopyRows(bucket, Bucket::kFinalState, workspace.final_state, stream);
  return status;
}

}  // namespace sru::kernels::cuda
