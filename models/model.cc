#include "models/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "models/kernel_status.h"
#include "models/stack_builder.h"
#include "models/tokenizer_loader.h"

namespace sru::models {
namespace {

int64_t CountParameters(const kernels::StackSpec& spec) {
  size_t count = spec.embedding.size + spec.input_to_hidden.size + spec.classifier_weight.size +
                 spec.classifier_bias.size;
  for (const kernels::LayerSpec& layer : spec.layers) {
    count += layer.weight.size + layer.weight_proj.size + layer.weight_c.size + layer.bias.size +
             layer.norm_weight.size + layer.norm_bias.size;
  }
  return static_cast<int64_t>(count);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& directory,
                                                         std::string name, int64_t version,
                                                         kernels::Backend& backend,
                                                         const kernels::CompileOptions& options) {
  std::shared_ptr<Model> model(new Model());
  model->name_ = std::move(name);
  model->version_ = version;

  absl::StatusOr<ModelConfig> config = ReadModelConfig(absl::StrCat(directory, "/config.json"));
  if (!config.ok()) return config.status();
  model->config_ = *std::move(config);

  absl::StatusOr<std::unique_ptr<SafetensorsFile>> weights =
      SafetensorsFile::Open(absl::StrCat(directory, "/model.safetensors"));
  if (!weights.ok()) return weights.status();
  model->weights_ = *std::move(weights);
  absl::StatusOr<kernels::StackSpec> spec = BuildStack(model->config_, *model->weights_);
  if (!spec.ok()) return spec.status();
  model->spec_ = *std::move(spec);

  if (model->config_.has_embedding) {
    absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer =
        LoadTokenizer(model->config_, directory);
    if (!tokenizer.ok()) return tokenizer.status();
    model->tokenizer_ = *std::move(tokenizer);
  }

  const absl::Status compiled =
      ToAbslStatus(backend.Compile(model->spec_, options, &model->executable_));
  if (!compiled.ok()) {
    return absl::Status(compiled.code(), absl::StrCat(directory, ": backend ", backend.name(), ": ",
                                                      compiled.message()));
  }
  model->backend_name_ = backend.name();
  model->backend_description_ = backend.description();
  model->dtype_ = options.dtype;
  model->parameter_count_ = CountParameters(model->spec_);
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace sru::models
