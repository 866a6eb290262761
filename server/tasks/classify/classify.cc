#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "server/calls/kinds/quick_refusal.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/classify/labels.h"
#include "server/tasks/stacks/stack_batch_runner.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

class ClassifyCall final
    : public calls::SequenceCall<v1::ClassifyRequest, v1::ClassifyResponse, StackTask> {
 public:
  using SequenceCall::SequenceCall;

 private:
  absl::Status ParseParameters(const v1::ClassifyRequest& request) override {
    SRU_ASSIGN_OR_RETURN(top_k_,
                         ParseTopK(request.top_k(), static_cast<int>(model().labels().size())));
    for (const std::string& label : model().labels()) name_bytes_ += 2 * label.size();
    return absl::OkStatus();
  }

  size_t OutputSize(int /*num_tokens*/) const override { return 2 * model().labels().size(); }

  int64_t AnswerBytes(size_t /*index*/, int /*num_tokens*/) const override {
    // Per label: a message with a string, and its bytes on the wire; its name is in both.
    return 192 + 144 * top_k_ + name_bytes_;
  }

  void SetOutput(size_t /*index*/, float* values, StackTask* task) override {
    task->output.pooling = model().spec().pooling;
    task->output.logits = values;
    task->output.probabilities = values + model().labels().size();
  }

  void WriteSequence(size_t /*index*/, const calls::TokenCounts& counts, float* values,
                     v1::ClassifyResponse* response) const override {
    v1::Classification* classification = response->add_classifications();
    classification->set_unknown_tokens(counts.unknown);
    if (counts.computed == 0) return;
    WriteLabels(model().labels(), values, values + model().labels().size(),
                static_cast<int>(top_k_), classification);
    classification->set_token_count(counts.computed);
    classification->set_truncated(counts.truncated);
  }

  int64_t top_k_ = 0;
  int64_t name_bytes_ = 0;  // of all labels, twice
};

// The output of a value of each label. The labels of the message are sorted by probability, the
// values of the tensor are not.
open_inference::Output ScoresOutput(const char* name, float (v1::Label::*value_of)() const) {
  open_inference::Output output;
  output.name = name;
  output.values = [value_of](const google::protobuf::Message& item, uint8_t* to) {
    const auto& labels = static_cast<const v1::Classification&>(item).labels();
    for (const v1::Label& label : labels) {
      const float value = (label.*value_of)();
      std::memcpy(to + label.index() * sizeof(value), &value, sizeof(value));
    }
    return to + labels.size() * sizeof(float);
  };
  output.sizes = [](const models::Model& model, const google::protobuf::Message* /*answer*/) {
    return open_inference::Shape{static_cast<int64_t>(model.labels().size())};
  };
  return output;
}

}  // namespace

Task Classify() {
  open_inference::TaskTensors tensors;
  tensors.outputs = {
      ScoresOutput("probabilities", &v1::Label::probability),
      ScoresOutput("logits", &v1::Label::logit),
      open_inference::ValueOutput<v1::Classification>(
          "label",
          [](const v1::Classification& one) -> absl::string_view { return one.labels(0).name(); }),
      open_inference::ValueOutput<v1::Classification>(
          "label_ids", [](const v1::Classification& one) { return one.labels(0).index(); },
          open_inference::Output::kOnRequest)};
  tensors.parameters = {"truncate", "unknown"};
  tensors.make_inputs = open_inference::MakeSequenceInputs<v1::ClassifyRequest>;
  tensors.prepare = [](const open_inference::InferCall& call, google::protobuf::Message* request) {
    // Without sizes an output is about the best label alone.
    const bool only_best =
        std::all_of(call.outputs.begin(), call.outputs.end(),
                    [](const open_inference::Output* output) { return output->sizes == nullptr; });
    static_cast<v1::ClassifyRequest*>(request)->set_top_k(only_best ? 1 : 0);
  };
  Task task = TaskOf<ClassifyCall>(calls::MethodId::kClassify, std::move(tensors));
  task.refuse = calls::RefuseQuickly<v1::ClassifyRequest>;
  task.add_runners = AddStackRunners;
  return task;
}

}  // namespace sru::server::tasks
