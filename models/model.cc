#include "models/model.h"

#include <set>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/kernel_status.h"
#include "models/stack_builder.h"
#include "models/task_parts.h"
#include "models/tokenizer_loader.h"

namespace sru::models {
namespace {

size_t CountParameters(kernels::StackSpec spec) {
  size_t count = 0;
  kernels::ForEachWeight(&spec, [&](kernels::FloatView* view) { count += view->size; });
  return count;
}

// A weight that two operations share counts once.
size_t CountParameters(kernels::Program program) {
  size_t count = 0;
  std::set<const void*> seen;
  kernels::ForEachWeight(&program, [&](kernels::FloatView* view) {
    if (seen.insert(view->data).second) count += view->size;
  });
  kernels::ForEachInt8Weight(&program, [&](kernels::Int8View* view) {
    if (seen.insert(view->data).second) count += view->size;
  });
  return count;
}

// `status` of a backend, in terms of the file that it compiled.
absl::Status CompileError(const std::string& source, const kernels::Backend& backend,
                          const kernels::Status& status) {
  const absl::Status compiled = ToAbslStatus(status);
  if (compiled.ok()) return compiled;
  return absl::Status(compiled.code(),
                      absl::StrCat(source, ": backend ", backend.name(), ": ", compiled.message()));
}

}  // namespace

absl::StatusOr<ModelFiles> OpenModel(const FilePath& directory) {
  ModelFiles files;
  files.directory = directory;
  SRU_ASSIGN_OR_RETURN(files.student, OpenStudent(directory));
  if (files.student.has_value()) {
    files.config = files.student->config;
    return files;
  }
  absl::StatusOr<ModelConfig> config = ReadModelConfig(directory / "config.json");
  if (absl::IsNotFound(config.status())) {
    return absl::NotFoundError(
        absl::StrCat(config.status().message(),
                     "; nor are there model*.npz or model*.bin of a student of Marian"));
  }
  SRU_RETURN_UNLESS_OK(config.status());
  files.config = *std::move(config);
  return files;
}

Model::Model() = default;
Model::~Model() = default;

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(
    const FilePath& directory, std::string name, int64_t version, kernels::Backend& backend,
    const kernels::CompileOptions& options, std::shared_ptr<const StateKeys> state_keys) {
  SRU_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(directory));
  return Load(files, std::move(name), version, backend, options, std::move(state_keys));
}

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(
    const ModelFiles& files, std::string name, int64_t version, kernels::Backend& backend,
    const kernels::CompileOptions& options, std::shared_ptr<const StateKeys> state_keys) {
  std::shared_ptr<Model> model(new Model());
  model->name_ = std::move(name);
  model->version_ = version;
  model->state_keys_ = std::move(state_keys);

  model->dtype_ = options.dtype;
  model->backend_name_ = backend.name();
  model->backend_description_ = backend.description();

  model->config_ = files.config;
  if (files.student.has_value()) {
    SRU_RETURN_UNLESS_OK(model->LoadStudent(*files.student, backend, options));
    return std::shared_ptr<const Model>(std::move(model));
  }
  SRU_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsFile> weights,
                       SafetensorsFile::OpenOnDemand(files.directory / "model.safetensors"));

  if (model->config_.has_tokenizer) {
    SRU_ASSIGN_OR_RETURN(model->tokenizer_, LoadTokenizer(model->config_, files.directory));
  }

  absl::Status compiled = model->Compile(*weights, backend, options);
  // What could not be read explains more than what the backend then made of zeros.
  if (!weights->read_status().ok()) compiled = weights->read_status();
  if (compiled.ok()) compiled = weights->CheckAllRead();
  if (!compiled.ok()) return compiled;
  return std::shared_ptr<const Model>(std::move(model));
}

absl::Status Model::LoadStudent(const Student& student, kernels::Backend& backend,
                                const kernels::CompileOptions& options) {
  if (config_.translator.int8_weights) dtype_ = kernels::DataType::kInt8;  // as its files have them
  SRU_ASSIGN_OR_RETURN(LoadedStudent loaded, models::LoadStudent(student));
  tokenizer_ = std::move(loaded.source);
  target_tokenizer_ = std::move(loaded.target);
  return CompileProgram(student.weights().path(), backend, options,
                        std::make_unique<Translator>(std::move(loaded.translator)));
}

absl::Status Model::Compile(const SafetensorsFile& weights, kernels::Backend& backend,
                            kernels::CompileOptions options) {
  const auto build = PartsOf(task()).build;
  if (build == nullptr) return CompileStack(weights, backend, options);
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<ProgramParts> parts, build(config_, weights));
  if (parts->keeps_states) SRU_RETURN_UNLESS_OK(MakeStateCodec(weights, parts->program.fields));
  options.weights = weights.weights();
  return CompileProgram(weights.source(), backend, options, std::move(parts));
}

absl::Status Model::MakeStateCodec(const SafetensorsFile& weights,
                                   std::vector<kernels::FieldSpec> fields) {
  SRU_ASSIGN_OR_RETURN(const std::string digest, weights.Digest());
  state_codec_ =
      std::make_unique<StateCodec>(StateOwner{name_, version_, digest, dtype_}, std::move(fields),
                                   config_.embedding.vocabulary_size, state_keys_);
  return absl::OkStatus();
}

absl::Status Model::CompileStack(const SafetensorsFile& weights, kernels::Backend& backend,
                                 kernels::CompileOptions options) {
  SRU_ASSIGN_OR_RETURN(kernels::StackSpec spec, BuildStack(config_, weights));
  options.weights = weights.weights();
  const kernels::Status compiled = backend.Compile(spec, options, &executable_);
  spec_ = kernels::WithoutWeights(std::move(spec));
  parameter_count_ = static_cast<int64_t>(CountParameters(spec_));
  if (!compiled.ok()) return CompileError(weights.source(), backend, compiled);
  if (config_.encoder.bidirectional) return absl::OkStatus();
  const int width = static_cast<int>(spec_.layers.size()) * spec_.output_size();
  return MakeStateCodec(weights, {{"c", width, /*grows=*/false}});
}

absl::Status Model::CompileProgram(const std::string& source, kernels::Backend& backend,
                                   const kernels::CompileOptions& options,
                                   std::unique_ptr<ProgramParts> parts) {
  kernels::Program& program = parts->program;
  const kernels::Status compiled = backend.Compile(program, options, &program_);
  parameter_count_ = parts->parameter_count > 0 ? parts->parameter_count
                                                : static_cast<int64_t>(CountParameters(program));
  program = kernels::WithoutWeights(std::move(program));
  kernels::ForEachInt8Weight(&program, [](kernels::Int8View* view) { view->data = nullptr; });
  for (const kernels::Operation& operation : program.operations) {
    if (const auto* stack = std::get_if<kernels::ops::Stack>(&operation)) spec_ = stack->spec;
  }
  parts->values = nullptr;
  parts_ = std::move(parts);
  return CompileError(source, backend, compiled);
}

}  // namespace sru::models
