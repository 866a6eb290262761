// TaskParts: the tasks of models (config.h) differ in this, a row each: how a config.json is read,
// what is made of the tensors, and how large it is. Pure functions, thread-safe.
#ifndef SRU_MODELS_TASK_PARTS_H_
#define SRU_MODELS_TASK_PARTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/model_sizes.h"
#include "kernels/program.h"
#include "models/config.h"
#include "models/safetensors.h"

namespace sru::models {

// The program of a model and what is known of it. A task derives a struct from it, with the names
// of the program's axes, inputs and outputs.
struct ProgramParts {
  virtual ~ProgramParts() = default;

  kernels::Program program;
  // Whether callers may take a sequence's fields and go on from them: a state (state_codec.h).
  bool keeps_states = false;
  // The values that views of the program point to and that are not in a SafetensorsFile; null:
  // there are none, or the program has been compiled.
  std::shared_ptr<const void> values;
  // The number of weights in the file; 0: as many as the program has.
  int64_t parameter_count = 0;
};

using BuiltProgram = absl::StatusOr<std::unique_ptr<ProgramParts>>;

struct TaskParts {
  // Reads the keys of a config.json that depend on the task.
  absl::Status (*read)(ObjectReader& root, ModelConfig* config) = nullptr;
  // Builds the program; null: the model is one stack (stack_builder.h). The views are those of
  // `tensors` or of ProgramParts::values.
  BuiltProgram (*build)(const ModelConfig& config, const SafetensorsFile& tensors) = nullptr;
  kernels::ModelSizes (*sizes)(const ModelConfig& config) = nullptr;
};

TaskParts PartsOf(Task task);

}  // namespace sru::models

#endif  // SRU_MODELS_TASK_PARTS_H_
