#include <utility>

#include "server/calls/kinds/task_call.h"
#include "server/tasks/classify/classify.h"

namespace sru::server::tasks {
namespace {

class ClassifyCall final : public calls::SequenceCall<v1::ClassifyRequest, v1::ClassifyResponse> {
 public:
  ClassifyCall(const calls::ServiceContext& context, calls::Exchange* exchange, Form form)
      : SequenceCall(calls::MethodId::kClassify, context, exchange, std::move(form)) {}

 private:
  absl::Status ParseParameters(const v1::ClassifyRequest& request) override {
    // An encoder is of the same family, but has no labels.
    if (model().task() != models::Task::kClassifier) {
      return calls::WrongTask(model(), calls::MethodId::kClassify);
    }
    absl::StatusOr<int> top_k =
        calls::ParseTopK(request.top_k(), static_cast<int>(model().labels().size()));
    if (!top_k.ok()) return top_k.status();
    top_k_ = *top_k;
    for (const std::string& label : model().labels()) name_bytes_ += 2 * label.size();
    return absl::OkStatus();
  }

  size_t OutputSize(int /*num_tokens*/) const override { return 2 * model().labels().size(); }

  int64_t AnswerBytes(size_t /*index*/, int /*num_tokens*/) const override {
    // Per label: a message with a string, and its bytes on the wire; its name is in both.
    return 192 + 144 * top_k_ + name_bytes_;
  }

  void SetOutput(size_t /*index*/, float* values, batching::SequenceTask* task) override {
    task->output.pooling = model().spec().pooling;
    task->output.logits = values;
    task->output.probabilities = values + model().labels().size();
  }

  void WriteSequence(size_t /*index*/, const calls::TokenCounts& counts, float* values,
                     v1::ClassifyResponse* response) const override {
    v1::Classification* classification = response->add_classifications();
    if (counts.computed == 0) return;
    calls::WriteLabels(model().labels(), values, values + model().labels().size(),
                       static_cast<int>(top_k_), classification);
    classification->set_token_count(counts.computed);
    classification->set_truncated(counts.truncated);
    classification->set_unknown_tokens(counts.unknown);
  }

  int64_t top_k_ = 0;
  int64_t name_bytes_ = 0;  // of all labels, twice
};

}  // namespace

calls::CallHandler* StartClassify(const calls::ServiceContext& context, calls::Exchange* exchange,
                                  calls::ClassifyForm form) {
  return new ClassifyCall(context, exchange, std::move(form));
}

calls::Method ClassifyMethod(const calls::ServiceContext& context) {
  return calls::Method::Of<v1::ClassifyRequest, v1::ClassifyResponse>(
      calls::MethodId::kClassify,
      [&context](calls::Exchange* exchange) { return StartClassify(context, exchange); });
}

}  // namespace sru::server::tasks
