// The tensors of a model: what its tasks have. Pure functions, thread-safe.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_TENSORS_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_TENSORS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "models/model.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/tasks/tasks.h"

namespace sru::server::open_inference {

// Sets the tensors and the outputs of the call, whose model and request are known, and returns the
// task that gives them. kInvalidArgument for a name that the model does not have, a name that
// occurs twice, and outputs that no one task gives.
absl::StatusOr<const tasks::Task*> ChooseOutputs(InferCall* call);

std::vector<TensorInfo> InputInfos(const models::Model& model);
// Those that one request may have together, as tools ask for all of them: of the first task.
std::vector<TensorInfo> OutputInfos(const models::Model& model);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_TENSORS_H_
