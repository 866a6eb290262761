#include "server/tasks/tasks.h"

#include "server/batching/engine.h"

namespace sru::server::tasks {

const std::vector<Task>& AllTasks() {
  static const auto* const kTasks =
      new std::vector<Task>{Classify(),  Encode(),   EncodeStream(), Score(),    Answer(),
                            Translate(), Generate(), Tag(),          Tokenize(), Detokenize()};
  return *kTasks;
}

calls::Method MethodOf(const Task& task, const calls::ServiceContext& context) {
  calls::Method method = calls::Method::Of(task.method);
  method.request = task.request;
  method.response = task.response;
  method.start = [id = task.method, start = task.start, &context](calls::Exchange* exchange) {
    return start(id, context, exchange, nullptr);
  };
  if (task.refuse != nullptr) {
    method.refuse = [id = task.method, refuse = task.refuse, &context](
                        const calls::Exchange& exchange, const absl::Cord& message) {
      return refuse(id, context, exchange, message);
    };
  }
  return method;
}

std::vector<calls::Method> TaskMethods(const calls::ServiceContext& context) {
  std::vector<calls::Method> methods;
  for (const Task& task : AllTasks()) methods.push_back(MethodOf(task, context));
  return methods;
}

batching::TaskRunners RunnersOf(models::Task task) {
  batching::TaskRunners row;
  for (const Task& one : AllTasks()) {
    if (one.add_runners != nullptr && one.is_of(task)) one.add_runners(&row);
  }
  return row;
}

void WriteSizes(const models::Model& model, v1::ModelInfo* info) {
  for (const Task& task : AllTasks()) {
    if (task.write_sizes == nullptr || !task.is_of(model.task())) continue;
    return task.write_sizes(model, info);
  }
  const kernels::StackSpec& spec = model.spec();
  info->set_input_size(spec.input_size);
  info->set_output_size(spec.output_size());
  info->set_hidden_size(spec.layers.back().hidden_size);
  info->set_num_layers(static_cast<int32_t>(spec.layers.size()));
  info->set_bidirectional(spec.layers.back().directions == 2);
}

}  // namespace sru::server::tasks
