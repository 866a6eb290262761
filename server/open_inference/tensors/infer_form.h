// InferForm: the form of a ModelInferRequest and its answer, for each call of sru.v1 that may answer it.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/messages/message_form.h"
#include "server/lifecycle/model_registry.h"
#include "server/open_inference/tensors/infer_parameters.h"
#include "server/open_inference/tensors/infer_request.h"
#include "server/open_inference/tensors/message_bytes.h"
#include "server/open_inference/tensors/model_tensors.h"
#include "server/open_inference/tensors/sequence_input.h"

namespace sru::server::open_inference {

// What is known of a ModelInfer before its call begins.
struct InferCall {
  explicit InferCall(calls::ByteBudget* budget) : bytes(budget) {}

  MessageBytes bytes;
  InferRequest request;  // points into `bytes`
  std::string id;
  std::shared_ptr<lifecycle::ServedModel> served;
  CommonParameters common;
  InferKind kind = InferKind::kClassify;
  Outputs outputs;
  calls::RequestLimits limits;

  const models::Model& model() const { return *served->model; }
};
using InferCallPtr = std::unique_ptr<InferCall>;

// An error about a field of sru.v1 that was made from a tensor, in terms of the tensor; `values` is the tensor that the sequences come
// from. Errors of other kinds stay as they are.
absl::Status ExplainField(const absl::Status& status, absl::string_view values);

// What all of them have in common.
template <typename Request, typename Response>
class InferForm : public calls::MessageForm<Request, Response> {
 public:
  explicit InferForm(InferCallPtr call) : call_(std::move(call)) {}

  calls::MethodId method() const final { return calls::MethodId::kModelInfer; }
  const std::shared_ptr<lifecycle::ServedModel>& served() const final { return call_->served; }
  absl::Duration timeout() const final { return call_->common.timeout; }

  absl::Status ReadOutline(calls::RequestOutline* outline) final {
    *outline = calls::RequestOutline();
    outline->priority = call_->common.priority;
    outline->message_bytes = static_cast<int64_t>(call_->bytes.view().size()) + kFormBytes;
    if (absl::Status status = CheckContents(call_->request); !status.ok()) return status;
    return OutlineInputs(outline);
  }

  absl::Status Parse(Request* request) final {
    request->set_priority(call_->common.priority);
    for (const InferParameter& parameter : call_->request.parameters) {
      if (IsCommonParameter(parameter.name)) continue;
      absl::Status status = ReadParameter(parameter, request);
      if (!status.ok()) return status;
    }
    SetOutputs(request);
    if (absl::Status status = ReadInputs(request); !status.ok()) return status;
    call_->request = InferRequest();
    call_->bytes.Release();
    return absl::OkStatus();
  }

  absl::Status Explain(const absl::Status& status) const override {
    return ExplainField(status, "");
  }

 protected:
  // Finds the inputs and adds to `outline` what they will take.
  virtual absl::Status OutlineInputs(calls::RequestOutline* outline) = 0;
  // Sets what the parameter means, or returns UnknownParameter().
  virtual absl::Status ReadParameter(const InferParameter& parameter, Request* request) = 0;
  virtual absl::Status ReadInputs(Request* request) = 0;
  // Sets what the wanted outputs need, if the call does not always give it.
  virtual void SetOutputs(Request* /*request*/) const {}

  const InferCall& call() const { return *call_; }
  const models::Model& model() const { return call_->model(); }

 private:
  // The form and the InferCall take about 1 KiB; the bytes of a message are counted four times.
  static constexpr int64_t kFormBytes = 256;

  const InferCallPtr call_;
};

// The form of a call whose request has `sequences`.
template <typename Request, typename Response>
class SequenceInferForm : public InferForm<Request, Response> {
 public:
  using InferForm<Request, Response>::InferForm;

  absl::Status Explain(const absl::Status& status) const final {
    return ExplainField(status, SequenceFormName(input_.form));
  }

 private:
  absl::Status OutlineInputs(calls::RequestOutline* outline) final {
    const InferCall& call = this->call();
    absl::Status status = FindSequenceInput(call.request, SequenceModelOf(call.model()), &input_);
    if (!status.ok()) return status;
    return OutlineSequences(call.request, input_, call.limits, outline);
  }

  absl::Status ReadInputs(Request* request) final {
    const InferCall& call = this->call();
    return ReadSequences(call.request, input_, SequenceModelOf(call.model()),
                         request->mutable_sequences());
  }

  SequenceInput input_;
};

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_
