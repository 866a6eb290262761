// The tasks: the methods that compute, each in a folder of its own with its call, the parser of its
// request, the writer of its answer and its tensors in the Open Inference Protocol. Here is all
// that the rest of the server knows of them.
#ifndef SRU_SERVER_TASKS_TASKS_H_
#define SRU_SERVER_TASKS_TASKS_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "google/protobuf/message.h"
#include "models/model.h"
#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/messages/message_form.h"
#include "server/calls/method.h"
#include "server/open_inference/tensors/task_tensors.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::batching {
struct TaskRunners;
}  // namespace sru::server::batching

namespace sru::server::tasks {

struct Task {
  using Start = calls::CallHandler* (*)(calls::MethodId, const calls::ServiceContext&,
                                        calls::Exchange*, calls::MessageFormPtr);

  // Whether models with that task compute it.
  bool is_of(models::Task task) const { return calls::Describe(method).tasks.has(task); }

  calls::MethodId method = calls::MethodId::kClassify;
  // Default instances.
  const google::protobuf::Message* request = nullptr;
  const google::protobuf::Message* response = nullptr;
  // Makes a call, which answers whenever that may be and is counted as one of the method. The
  // context outlives it. With a form, the messages are in that form.
  Start start = nullptr;
  // Ends a call in an overload instead of making it (quick_refusal.h); null: none is ended so.
  using Refuse = std::optional<calls::CallEnd> (*)(calls::MethodId, const calls::ServiceContext&,
                                                   const calls::Exchange&, const absl::Cord&);
  Refuse refuse = nullptr;
  // What ModelInfer calls it with; without outputs, it does not.
  open_inference::TaskTensors tensors = {};
  // Adds what these models need for it to the row by which they compute (engine.h); null: other
  // tasks of theirs say all.
  void (*add_runners)(batching::TaskRunners* row) = nullptr;
  // Writes the sizes of such a model; null: they are those of a stack.
  void (*write_sizes)(const models::Model& model, v1::ModelInfo* info) = nullptr;
};

// The row of a task whose calls are of the class `Call`, which derives from calls::TaskCall or
// looks alike.
template <typename Call>
Task TaskOf(calls::MethodId method, open_inference::TaskTensors tensors = {}) {
  Task task;
  task.method = method;
  task.request = &Call::RequestType::default_instance();
  task.response = &Call::ResponseType::default_instance();
  task.start = [](calls::MethodId id, const calls::ServiceContext& context,
                  calls::Exchange* exchange, calls::MessageFormPtr form) -> calls::CallHandler* {
    auto* const call = new Call(id, context, exchange, std::move(form));
    call->Start();
    return call;
  };
  task.tensors = std::move(tensors);
  return task;
}

// The rows, each in its folder.
Task Classify();
Task Encode();
Task EncodeStream();
Task Score();
Task Answer();
Task Translate();
Task Generate();
Task Tag();
Task Tokenize();
Task Detokenize();

// All of them. Where a model answers several, the first is what a ModelInfer without outputs means.
const std::vector<Task>& AllTasks();

// Their rows in the table of methods. `context` must outlive the calls.
calls::Method MethodOf(const Task& task, const calls::ServiceContext& context);
std::vector<calls::Method> TaskMethods(const calls::ServiceContext& context);

// How models with this task compute. Without runners, they do not.
batching::TaskRunners RunnersOf(models::Task task);

// Writes the sizes of the model's parts, as far as its task has them.
void WriteSizes(const models::Model& model, v1::ModelInfo* info);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TASKS_H_
