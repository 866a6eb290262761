// A model: what the small files in its folder say, and what a backend compiled from its weights.
#ifndef SRU_MODELS_MODEL_H_
#define SRU_MODELS_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/files/file.h"
#include "models/safetensors.h"
#include "models/state_codec.h"
#include "models/student.h"
#include "models/task_parts.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// Read once for the estimate of its memory (memory_estimate.h) and for the load that follows.
struct ModelFiles {
  FilePath directory = FilePath("");
  std::optional<Student> student;  // nullopt: a model of ours
  ModelConfig config;              // of either
};

// Reads config.json, or a student's options. Errors name the file and the key, what was expected
// and what was found.
absl::StatusOr<ModelFiles> OpenModel(const FilePath& directory);

// A loaded model. Immutable and thread-safe once loaded.
class Model {
 public:
  // Reads the rest of a folder (FORMAT.md), a model of ours or a student as Marian publishes it,
  // checks it and compiles the model with `backend`. Errors name the file, the key or tensor, what
  // was expected and what was found. `state_keys`: see state_codec.h.
  static absl::StatusOr<std::shared_ptr<const Model>> Load(
      const ModelFiles& files, std::string name, int64_t version, kernels::Backend& backend,
      const kernels::CompileOptions& options,
      std::shared_ptr<const StateKeys> state_keys = nullptr);
  static absl::StatusOr<std::shared_ptr<const Model>> Load(
      const FilePath& directory, std::string name, int64_t version, kernels::Backend& backend,
      const kernels::CompileOptions& options,
      std::shared_ptr<const StateKeys> state_keys = nullptr);

  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& name() const { return name_; }
  int64_t version() const { return version_; }
  const ModelConfig& config() const { return config_; }
  // Empty for a model whose outputs have no names.
  const std::vector<std::string>& labels() const { return config_.labels; }
  // Null for a model that takes no text.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  // A translator's tokenizer of the target; tokenizer() if both languages share a vocabulary.
  const Tokenizer* target_tokenizer() const {
    return target_tokenizer_ == nullptr ? tokenizer_.get() : target_tokenizer_.get();
  }
  Task task() const { return config_.task; }
  // The sizes of the SRU stack of a model that has one. The views of weights, here and in all that
  // follows, have their sizes and point nowhere: the backend has what it needs.
  const kernels::StackSpec& spec() const { return spec_; }
  // Besides what its embedding takes, if it has one.
  bool takes_features() const { return program_ == nullptr || !config_.has_embedding; }
  // Whatever was compiled.
  const kernels::CompiledModel& compiled() const {
    if (program_ != nullptr) return *program_;
    return *executable_;
  }
  // Requires a classifier or an encoder.
  const kernels::Executable& executable() const { return *executable_; }
  // The program and the names of its parts, of the struct that its task has, such as LanguageModel.
  // Null for any other struct, and for a classifier or an encoder.
  template <typename Parts>
  const Parts* As() const {
    return dynamic_cast<const Parts*>(parts_.get());
  }
  // Requires a model that is a program.
  const kernels::ProgramExecutable& program() const { return *program_; }
  // Whether a sequence may come in chunks, each going on from the state after the one before: to a
  // classifier, an encoder or a language model of one direction.
  bool is_unidirectional() const { return state_codec_ != nullptr; }
  // Requires is_unidirectional(). The state of a classifier or an encoder is one field of one row,
  // kernels::SequenceOutput::final_state.
  const StateCodec& state_codec() const { return *state_codec_; }
  const std::string& backend_name() const { return backend_name_; }
  const std::string& backend_description() const { return backend_description_; }
  // The type of the weights of products: that of the options, or of the files if they are int8.
  kernels::DataType dtype() const { return dtype_; }
  // Number of weights, the embedding included.
  int64_t parameter_count() const { return parameter_count_; }

 private:
  Model();

  absl::Status Compile(const SafetensorsFile& weights, kernels::Backend& backend,
                       kernels::CompileOptions options);
  absl::Status MakeStateCodec(const SafetensorsFile& weights,
                              std::vector<kernels::FieldSpec> fields);
  absl::Status CompileStack(const SafetensorsFile& weights, kernels::Backend& backend,
                            kernels::CompileOptions options);
  absl::Status LoadStudent(const Student& student, kernels::Backend& backend,
                           const kernels::CompileOptions& options);
  // Also counts the weights, and keeps no more of them than their sizes. `source` names the file of
  // weights.
  absl::Status CompileProgram(const std::string& source, kernels::Backend& backend,
                              const kernels::CompileOptions& options,
                              std::unique_ptr<ProgramParts> parts);

  std::string name_;
  int64_t version_ = 0;
  ModelConfig config_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const Tokenizer> target_tokenizer_;
  kernels::StackSpec spec_;
  std::unique_ptr<const ProgramParts> parts_;  // null: there is no program
  std::unique_ptr<kernels::Executable> executable_;
  std::unique_ptr<kernels::ProgramExecutable> program_;
  std::shared_ptr<const StateKeys> state_keys_;  // null: none
  std::unique_ptr<const StateCodec> state_codec_;
  std::string backend_name_;
  std::string backend_description_;
  kernels::DataType dtype_ = kernels::DataType::kFloat32;
  int64_t parameter_count_ = 0;
};

}  // namespace sru::models

#endif  // SRU_MODELS_MODEL_H_
