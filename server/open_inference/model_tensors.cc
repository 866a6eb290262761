#include "server/open_inference/model_tensors.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sru::server::open_inference {
namespace {

// Those with outputs that a model has; the first one is meant if no output is requested.
std::vector<const tasks::Task*> TasksOf(const models::Model& model) {
  std::vector<const tasks::Task*> found;
  for (const tasks::Task& task : tasks::AllTasks()) {
    const bool has_outputs = !task.tensors.outputs.empty();
    if (has_outputs && task.is_of(model.task())) found.push_back(&task);
  }
  return found;
}

using Choice = std::pair<const tasks::Task*, const Output*>;

std::vector<Choice> OutputsOf(const models::Model& model) {
  std::vector<Choice> outputs;
  for (const tasks::Task* const task : TasksOf(model)) {
    for (const Output& output : task->tensors.outputs) outputs.emplace_back(task, &output);
  }
  return outputs;
}

}  // namespace

absl::StatusOr<const tasks::Task*> ChooseOutputs(InferCall* call) {
  const models::Model& model = call->model();
  const std::vector<Choice> known = OutputsOf(model);
  const tasks::Task* task = known.front().first;
  const auto& requested = call->request.outputs;
  for (size_t i = 0; i < requested.size(); ++i) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const Choice& choice) {
      return requested[i] == choice.second->name;
    });
    if (found == known.end()) {
      const auto append = [](std::string* out, const Choice& choice) {
        out->append(choice.second->name);
      };
      return InvalidArgument("outputs[", i, "].name: ", Quoted(requested[i]),
                             " is not an output of '", model.name(), "', expected one of ",
                             absl::StrJoin(known, ", ", append));
    }
    const Output* const output = found->second;
    if (i > 0 && found->first != task) {
      return InvalidArgument("outputs[", i, "].name: ", output->name, " does not go with ",
                             call->outputs.front()->name,
                             ", since they come from different calls; send two requests");
    }
    if (std::count(call->outputs.begin(), call->outputs.end(), output) > 0) {
      return InvalidArgument("outputs[", i, "].name: ", output->name, " is requested twice");
    }
    task = found->first;
    call->outputs.push_back(output);
  }
  call->tensors = &task->tensors;
  if (!requested.empty()) return task;
  for (const Output& output : task->tensors.outputs) {
    if (output.comes == Output::kComes) call->outputs.push_back(&output);
  }
  return task;
}

std::vector<TensorInfo> InputInfos(const models::Model& model) {
  return TasksOf(model).front()->tensors.make_inputs()->Infos(model);
}

std::vector<TensorInfo> OutputInfos(const models::Model& model) {
  std::vector<TensorInfo> infos;
  for (const Output& output : TasksOf(model).front()->tensors.outputs) {
    Shape shape = {kAnySize};
    if (output.sizes != nullptr) {
      for (const int64_t size : output.sizes(model, nullptr)) shape.push_back(size);
    }
    infos.push_back({output.name, output.datatype, std::move(shape)});
  }
  return infos;
}

}  // namespace sru::server::open_inference
