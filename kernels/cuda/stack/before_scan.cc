#include "kernels/cuda/stack/before_scan.h"

#include <utility>

namespace sru::kernels::cuda {

BeforeScan::BeforeScan(const PackedStack& stack, const DeviceStack& weights, Stream& stream,
                       const BatchHeader* header, int max_tokens, Multiply multiply)
    : stack_(stack),
      weights_(weights),
      stream_(stream),
      header_(header),
      max_tokens_(max_tokens),
      multiply_(std::move(multiply)) {}

Status BeforeScan::MakeInput(const int32_t* token_ids, const float* features, int feature_stride,
                             void* embedded, void* x) const {
  const bool maps_input = stack_.input_to_hidden.exists();
  EmbedArgs args{};
  args.header = header_;
  args.max_tokens = max_tokens_;
  args.token_ids = token_ids;
  args.features = features;
  args.feature_stride = feature_stride;
  if (token_ids != nullptr) args.table = weights_.tensor(stack_.embedding);
  args.segments = stack_.input.segments;
  args.size = stack_.input.size;
  args.padded = stack_.input.padded();
  args.x = maps_input ? embedded : x;
  Status status = stream_.Embed(stack_.dtype, args);
  if (status.ok() && maps_input) status = multiply_(stack_.input_to_hidden, embedded, x);
  return status;
}

Status BeforeScan::Prepare(const PackedLayer& layer, const void* x, void* normalized,
                           void* projected, const void** input) const {
  *input = x;
  if (layer.layer_norm == LayerNorm::kBefore) {
    SRU_RETURN_IF_ERROR(Normalize(layer, layer.input, x, normalized));
    *input = normalized;
  }
  if (!layer.projection.exists()) return OkStatus();
  const void* const unprojected = *input;
  *input = projected;
  return multiply_(layer.projection, unprojected, projected);
}

Status BeforeScan::Normalize(const PackedLayer& layer, const RowLayout& rows, const void* x,
                             void* y) const {
  LayerNormArgs args{};
  args.header = header_;
  args.max_tokens = max_tokens_;
  args.segments = rows.segments;
  args.size = rows.size;
  args.padded = rows.padded();
  args.weight = weights_.floats(layer.norm_weight);
  args.bias = weights_.floats(layer.norm_bias);
  args.epsilon = kLayerNormEpsilon;
  args.x = x;
  args.y = y;
  return stream_.Normalize(stack_.dtype, args);
}

}  // namespace sru::kernels::cuda
