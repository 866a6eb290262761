#include "models/stack_builder.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/tensor_reader.h"

namespace sru::models {

using kernels::FloatView;

kernels::LayerSpec LayerSizes(const EncoderConfig& config, int index) {
  kernels::LayerSpec layer;
  layer.input_size = config.layer_input_size(index);
  layer.hidden_size = config.hidden_size;
  layer.directions = config.directions();
  layer.projection_size = config.layer_projection_size(index);
  layer.has_skip_term = config.has_skip_term;
  layer.num_matrices = config.has_skip_term && layer.input_size != layer.output_size() ? 4 : 3;
  layer.activation = config.use_tanh ? kernels::Activation::kTanh : kernels::Activation::kIdentity;
  if (config.layer_norm) {
    layer.layer_norm =
        config.normalize_after ? kernels::LayerNorm::kAfter : kernels::LayerNorm::kBefore;
  }
  return layer;
}

kernels::StackSpec StackShape(const EncoderConfig& config, int words) {
  kernels::StackSpec spec;
  spec.input_size = config.input_size;
  spec.vocabulary_size = words;
  if (config.has_input_to_hidden()) {
    spec.input_to_hidden.size = size_t{1} * config.input_size * config.output_size();
  }
  for (int i = 0; i < config.num_layers; ++i) spec.layers.push_back(LayerSizes(config, i));
  return spec;
}

kernels::ModelSizes StackSizes(const ModelConfig& config, int64_t outputs, int64_t block) {
  const int words = config.has_embedding ? config.embedding.vocabulary_size : 0;
  const kernels::StackSpec spec = StackShape(config.encoder, words);
  kernels::ModelSizes sizes;
  AddStack(spec, &sizes);
  AddOutputLayer(spec, outputs, block, config.tied, &sizes);
  return sizes;
}

kernels::ModelSizes StackSizes(const ModelConfig& config) {
  const auto labels = static_cast<int64_t>(config.labels.size());
  return StackSizes(config, labels, labels);
}

kernels::LayerSpec ReadLayer(const EncoderConfig& config, int index, const std::string& prefix,
                             TensorReader& reader) {
  kernels::LayerSpec layer = LayerSizes(config, index);
  const int64_t outputs = layer.output_size();
  if (layer.projection_size > 0) {
    layer.weight_proj =
        reader.Take(prefix + "weight_proj", {layer.input_size, layer.projection_size});
  }
  layer.weight =
      reader.Take(prefix + "weight", {layer.product_size(), outputs * layer.num_matrices});
  layer.weight_c = reader.Take(prefix + "weight_c", {2 * outputs});
  // The package keeps zeros for v1; without them the recurrence is cheaper.
  if (config.v1 && std::all_of(layer.weight_c.data, layer.weight_c.data + layer.weight_c.size,
                               [](float value) { return value == 0.0f; })) {
    layer.weight_c = FloatView();
  }
  layer.bias = reader.Take(prefix + "bias", {2 * outputs});
  // Checked in every case, read only when the layer scales its input.
  const FloatView scale_x = reader.Take(prefix + "scale_x", {1});
  if (config.rescale && !scale_x.empty()) layer.alpha = scale_x.data[0];
  if (layer.layer_norm != kernels::LayerNorm::kNone) {
    const int64_t width =
        layer.layer_norm == kernels::LayerNorm::kAfter ? outputs : layer.input_size;
    layer.norm_weight = reader.Take(prefix + "layer_norm.weight", {width});
    layer.norm_bias = reader.Take(prefix + "layer_norm.bias", {width});
  }
  return layer;
}

kernels::StackSpec ReadEncoder(const ModelConfig& config, const std::string& prefix,
                               TensorReader& reader) {
  const EncoderConfig& encoder = config.encoder;
  kernels::StackSpec spec;
  spec.input_size = encoder.input_size;
  if (encoder.has_input_to_hidden()) {
    spec.input_to_hidden = reader.Take(absl::StrCat(prefix, "input_to_hidden.weight"),
                                       {encoder.output_size(), encoder.input_size});
  }
  for (int i = 0; i < encoder.num_layers; ++i) {
    spec.layers.push_back(ReadLayer(encoder, i, absl::StrCat(prefix, "rnn_lst.", i, "."), reader));
  }
  if (config.has_embedding) {
    spec.vocabulary_size = config.embedding.vocabulary_size;
    spec.embedding = reader.Take("embedding.weight", {spec.vocabulary_size, spec.input_size});
  }
  return spec;
}

absl::StatusOr<kernels::StackSpec> BuildStack(const ModelConfig& config,
                                              const SafetensorsFile& tensors) {
  TensorReader reader(tensors);
  kernels::StackSpec spec = ReadEncoder(config, "encoder.", reader);
  spec.pooling = config.pooling;
  if (!config.labels.empty()) {
    spec.num_labels = static_cast<int>(config.labels.size());
    spec.classifier_weight = reader.Take("out.weight", {spec.num_labels, spec.output_size()});
    spec.classifier_bias = reader.TakeIfPresent("out.bias", {spec.num_labels});
  }
  SRU_RETURN_UNLESS_OK(reader.Finish());
  return spec;
}

}  // namespace sru::models
