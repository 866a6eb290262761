// Composes a StackSpec from a config and named tensors, in the layout of the published package's
// state_dict. It checks every tensor's presence, type, shape and values.
#ifndef SRU_MODELS_STACK_BUILDER_H_
#define SRU_MODELS_STACK_BUILDER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/model_sizes.h"
#include "kernels/stack_spec.h"
#include "models/config.h"
#include "models/safetensors.h"
#include "models/tensor_reader.h"

namespace sru::models {

// One layer's sizes and variants, without its tensors.
kernels::LayerSpec LayerSizes(const EncoderConfig& config, int index);
// A stack's likewise: its views have sizes and point nowhere. `words`: of its embedding; 0: none.
kernels::StackSpec StackShape(const EncoderConfig& config, int words = 0);
// The sizes of a stack with an output layer, of which `block` rows are packed at a time.
kernels::ModelSizes StackSizes(const ModelConfig& config, int64_t outputs, int64_t block);
// The same with an output layer for the labels.
kernels::ModelSizes StackSizes(const ModelConfig& config);

// Takes the tensors of one layer, `<prefix>weight` and so on. What could not be taken is empty in
// the result; `reader` has the error.
kernels::LayerSpec ReadLayer(const EncoderConfig& config, int index, const std::string& prefix,
                             TensorReader& reader);

// Takes the encoder's tensors, `<prefix>rnn_lst.0.weight` and so on, in the same way, and the
// embedding's, if the model has one. `prefix` is "encoder." in a model, "" in the golden files.
kernels::StackSpec ReadEncoder(const ModelConfig& config, const std::string& prefix,
                               TensorReader& reader);

// A whole model: `embedding.weight`, `encoder.*`, `out.weight` and (optional) `out.bias`. A tensor
// that the model does not use is an error.
absl::StatusOr<kernels::StackSpec> BuildStack(const ModelConfig& config,
                                              const SafetensorsFile& tensors);

}  // namespace sru::models

#endif  // SRU_MODELS_STACK_BUILDER_H_
