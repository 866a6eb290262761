#include "server/open_inference/model_infer.h"

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "server/batching/reject_reason.h"
#include "server/calls/kinds/call_basics.h"
#include "server/calls/kinds/end_call.h"
#include "server/open_inference/model_version.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/tasks/answer/answer.h"
#include "server/tasks/classify/classify.h"
#include "server/tasks/encode/encode.h"
#include "server/tasks/score/score.h"
#include "server/tasks/translate/translate.h"

namespace sru::server::open_inference {
namespace {

absl::Status Read(const calls::ServiceContext& context, const absl::Cord& bytes, InferCall* call) {
  if (!call->bytes.Read(bytes)) {
    return batching::MakeRefusal(
        batching::RejectReason::kMemory,
        calls::NoMemoryLeft(*context.budget, static_cast<int64_t>(bytes.size())));
  }
  InferRequest& request = call->request;
  if (absl::Status status = ReadInferRequest(call->bytes.view(), &request); !status.ok()) {
    return status;
  }
  auto served = FindModel(*context.registry, "model_", request.model_name, request.model_version);
  if (!served.ok()) return served.status();
  call->served = *std::move(served);
  const absl::StatusOr<CommonParameters> common = ReadCommonParameters(request);
  if (!common.ok()) return common.status();
  call->common = *common;
  call->limits = context.limits;
  call->id = std::string(request.id);
  return ChooseOutputs(call->model(), request.outputs, &call->kind, &call->outputs);
}

// Once the request is read, the call that answers it does all else.
class ModelInferCall final : public calls::CallHandler {
 public:
  ModelInferCall(const calls::ServiceContext& context, calls::Exchange* exchange)
      : context_(context), exchange_(*exchange) {}

  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    const absl::Cord bytes = message.value_or(absl::Cord());
    auto infer = std::make_unique<InferCall>(context_.budget);
    absl::Status status;
    try {
      status = Read(context_, bytes, infer.get());
    } catch (const std::bad_alloc&) {
      status = batching::MakeRefusal(batching::RejectReason::kMemory, calls::kNoMemory);
    }
    if (!status.ok()) return EndEarly(infer->served.get(), status, bytes.size());
    call_ = Start(std::move(infer));
    call_->OnMessage(std::move(message));
  }
  void OnCancel() override {
    if (call_ != nullptr) call_->OnCancel();
  }
  void OnDone() override {
    if (call_ != nullptr) call_->OnDone();
    delete this;
  }

 private:
  calls::CallHandler* Start(std::unique_ptr<InferCall> infer) {
    switch (infer->kind) {
      case InferKind::kClassify:
        return tasks::StartClassify(context_, &exchange_,
                                    tasks::MakeClassifyForm(std::move(infer)));
      case InferKind::kEncode:
        return tasks::StartEncode(context_, &exchange_, tasks::MakeEncodeForm(std::move(infer)));
      case InferKind::kScore:
        return tasks::StartScore(context_, &exchange_, tasks::MakeScoreForm(std::move(infer)));
      case InferKind::kAnswer:
        return tasks::StartAnswer(context_, &exchange_, tasks::MakeAnswerForm(std::move(infer)));
      case InferKind::kTranslate:
        return tasks::StartTranslate(context_, &exchange_,
                                     tasks::MakeTranslateForm(std::move(infer)));
    }
    return nullptr;
  }

  // The end of a call that has not got as far as to have a form.
  void EndEarly(const lifecycle::ServedModel* served, const absl::Status& status, size_t bytes) {
    const auto message_bytes = static_cast<int64_t>(bytes);
    context_.received->Add(message_bytes);
    calls::EndedCall ended;
    if (const std::optional<batching::RejectReason> reason = batching::GetRejectReason(status);
        reason.has_value()) {
      if (served != nullptr) {
        served->metrics->OnRefusal(*reason);
      } else {
        context_.metrics->OnRefusalWithoutModel(*reason);
      }
      if (message_bytes <= context_.budget->limit()) ended.retry_after = calls::kMemoryRetryAfter;
    }
    ended.origin = &exchange_;
    ended.request_id = telemetry::AccessLog::Begin(exchange_);
    ended.method = calls::MethodId::kModelInfer;
    ended.record.status = &status;
    if (served != nullptr) {
      ended.model_metrics = served->metrics.get();
      ended.record.model = served->name;
      ended.record.version = served->version;
    }
    exchange_.Finish(calls::EndCall(context_.metrics, context_.access_log, std::move(ended)));
  }

  const calls::ServiceContext& context_;
  calls::Exchange& exchange_;
  calls::CallHandler* call_ = nullptr;
};

}  // namespace

calls::CallHandler* StartModelInfer(const calls::ServiceContext& context,
                                    calls::Exchange* exchange) {
  return new ModelInferCall(context, exchange);
}

}  // namespace sru::server::open_inference
