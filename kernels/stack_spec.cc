#include "kernels/stack_spec.h"

#include <string>

namespace sru::kernels {
namespace {

std::string Layer(size_t index, const std::string& field) {
  return "layers[" + std::to_string(index) + "]." + field;
}

Status CheckRange(const std::string& field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(field, ": expected ", low, " to ", high, ", found ", value);
}

Status CheckView(const std::string& field, const FloatView& view, int64_t expected) {
  if (view.size == static_cast<size_t>(expected) && (expected == 0 || view.data != nullptr)) {
    return OkStatus();
  }
  return InvalidArgument(field, ": expected ", expected, " values, found ", view.size);
}

Status ValidateLayer(size_t index, const LayerSpec& layer, int expected_input) {
  SRU_RETURN_IF_ERROR(
      CheckRange(Layer(index, "input_size"), layer.input_size, expected_input, expected_input));
  SRU_RETURN_IF_ERROR(CheckRange(Layer(index, "hidden_size"), layer.hidden_size, 1, kMaxSize));
  SRU_RETURN_IF_ERROR(CheckRange(Layer(index, "directions"), layer.directions, 1, 2));
  SRU_RETURN_IF_ERROR(
      CheckRange(Layer(index, "projection_size"), layer.projection_size, 0, kMaxSize));
  SRU_RETURN_IF_ERROR(CheckRange(Layer(index, "num_matrices"), layer.num_matrices, 3, 4));
  if (layer.num_matrices == 3 && layer.has_skip_term && layer.input_size != layer.output_size()) {
    return InvalidArgument(Layer(index, "num_matrices"),
                           ": expected 4, since input_size differs from the output size; found 3");
  }
  if (layer.num_matrices == 4 && !layer.has_skip_term) {
    return InvalidArgument(Layer(index, "num_matrices"),
                           ": expected 3 for a layer without skip term, found 4");
  }
  const int64_t outputs = layer.output_size();
  SRU_RETURN_IF_ERROR(CheckView(Layer(index, "weight"), layer.weight,
                                int64_t{layer.product_size()} * outputs * layer.num_matrices));
  SRU_RETURN_IF_ERROR(CheckView(Layer(index, "weight_proj"), layer.weight_proj,
                                int64_t{layer.input_size} * layer.projection_size));
  SRU_RETURN_IF_ERROR(CheckView(Layer(index, "weight_c"), layer.weight_c,
                                layer.weight_c.empty() ? 0 : 2 * outputs));
  SRU_RETURN_IF_ERROR(CheckView(Layer(index, "bias"), layer.bias, 2 * outputs));
  SRU_RETURN_IF_ERROR(CheckRange(Layer(index, "activation"), static_cast<int64_t>(layer.activation),
                                 0, static_cast<int64_t>(kAllActivations.size()) - 1));
  int64_t norm = -1;
  switch (layer.layer_norm) {
    case LayerNorm::kNone:
      norm = 0;
      break;
    case LayerNorm::kBefore:
      norm = layer.input_size;
      break;
    case LayerNorm::kAfter:
      norm = outputs;
      break;
  }
  if (norm < 0) {
    return InvalidArgument(Layer(index, "layer_norm"), ": no such placement, ",
                           static_cast<int>(layer.layer_norm));
  }
  SRU_RETURN_IF_ERROR(CheckView(Layer(index, "norm_weight"), layer.norm_weight, norm));
  return CheckView(Layer(index, "norm_bias"), layer.norm_bias, norm);
}

}  // namespace

void ForEachWeight(StackSpec* spec, const std::function<void(FloatView*)>& visit) {
  visit(&spec->embedding);
  visit(&spec->input_to_hidden);
  for (LayerSpec& layer : spec->layers) {
    visit(&layer.weight);
    visit(&layer.weight_proj);
    visit(&layer.weight_c);
    visit(&layer.bias);
    visit(&layer.norm_weight);
    visit(&layer.norm_bias);
  }
  visit(&spec->classifier_weight);
  visit(&spec->classifier_bias);
}

Status Validate(const StackSpec& spec) {
  SRU_RETURN_IF_ERROR(CheckRange("input_size", spec.input_size, 1, kMaxSize));
  SRU_RETURN_IF_ERROR(CheckRange("vocabulary_size", spec.vocabulary_size, 0, 1 << 30));
  SRU_RETURN_IF_ERROR(
      CheckView("embedding", spec.embedding, int64_t{spec.vocabulary_size} * spec.input_size));
  SRU_RETURN_IF_ERROR(CheckRange("layers", static_cast<int64_t>(spec.layers.size()), 1, 1024));
  int input = spec.input_size;
  if (!spec.input_to_hidden.empty()) {
    input = spec.layers[0].input_size;
    SRU_RETURN_IF_ERROR(
        CheckView("input_to_hidden", spec.input_to_hidden, int64_t{input} * spec.input_size));
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    SRU_RETURN_IF_ERROR(ValidateLayer(i, spec.layers[i], input));
    // One final state per layer is written with one width.
    SRU_RETURN_IF_ERROR(CheckRange(Layer(i, "output size"), spec.layers[i].output_size(),
                                   spec.output_size(), spec.output_size()));
    input = spec.layers[i].output_size();
  }
  SRU_RETURN_IF_ERROR(CheckRange("num_labels", spec.num_labels, 0, kMaxSize));
  SRU_RETURN_IF_ERROR(CheckRange("pooling", static_cast<int64_t>(spec.pooling), 0,
                                 static_cast<int64_t>(kAllPoolings.size()) - 1));
  if (spec.num_labels > 0 && spec.pooling == Pooling::kNone) {
    return InvalidArgument("pooling: a classifier needs ", ListNames<PoolingName>(1),
                           ", found none");
  }
  SRU_RETURN_IF_ERROR(CheckView("classifier_weight", spec.classifier_weight,
                                int64_t{spec.num_labels} * spec.output_size()));
  return CheckView("classifier_bias", spec.classifier_bias,
                   spec.classifier_bias.empty() ? 0 : spec.num_labels);
}

}  // namespace sru::kernels
