#include "server/open_inference/model_infer.h"

#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/repository.h"
#include "server/base/retry.h"
#include "server/batching/queue/reject_reason.h"
#include "server/calls/kinds/call_basics.h"
#include "server/calls/kinds/end_call.h"
#include "server/open_inference/model_tensors.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/tracing/tracer.h"

namespace sru::server::open_inference {
namespace {

absl::StatusOr<const tasks::Task*> Read(const calls::ServiceContext& context,
                                        const absl::Cord& bytes, InferCall* call) {
  if (!call->bytes.Read(bytes)) {
    return batching::MakeRefusal(
        batching::RejectReason::kMemory,
        calls::NoMemoryLeft(*context.budget, static_cast<int64_t>(bytes.size())));
  }
  InferRequest& request = call->request;
  SRU_RETURN_UNLESS_OK(ReadInferRequest(call->bytes.view(), &request));
  SRU_ASSIGN_OR_RETURN(call->served, FindModel(*context.registry, "model_", request.model_name,
                                               request.model_version));
  SRU_ASSIGN_OR_RETURN(call->common, ReadCommonParameters(request));
  call->limits = context.limits;
  call->id = std::string(request.id);
  return ChooseOutputs(call);
}

// Once the request is read, the call that answers it does all else.
class ModelInferCall final : public calls::CallHandler {
 public:
  ModelInferCall(const calls::ServiceContext& context, calls::Exchange* exchange)
      : context_(context), exchange_(*exchange) {}

  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    const absl::Cord bytes = message.value_or(absl::Cord());
    std::shared_ptr<lifecycle::ServedModel> served;
    calls::CallHandler* call = nullptr;
    absl::Status status;
    try {
      auto infer = std::make_unique<InferCall>(context_.budget);
      const absl::StatusOr<const tasks::Task*> task = Read(context_, bytes, infer.get());
      status = task.status();
      served = infer->served;
      if (task.ok()) {
        call = (*task)->start(calls::MethodId::kModelInfer, context_, &exchange_,
                              MakeInferForm(std::move(infer)));
      }
    } catch (const std::bad_alloc&) {
      status = batching::MakeRefusal(batching::RejectReason::kMemory, calls::kNoMemory);
    }
    if (call == nullptr) return EndEarly(served.get(), std::move(status), bytes.size());
    call_ = call;
    // Before, nobody was there to be told. It may be told twice.
    if (exchange_.is_cancelled()) call->OnCancel();
    call->OnMessage(std::move(message));
  }
  void OnCancel() override {
    if (calls::CallHandler* const call = call_) call->OnCancel();
  }
  void OnDone() override {
    if (calls::CallHandler* const call = call_) call->OnDone();
    delete this;
  }

 private:
  // The end of a call that has not got as far as to have a form.
  void EndEarly(const lifecycle::ServedModel* served, absl::Status status, size_t bytes) {
    const auto message_bytes = static_cast<int64_t>(bytes);
    *context_.received_bytes += message_bytes;
    if (const std::optional<batching::RejectReason> reason = batching::GetRejectReason(status);
        reason.has_value()) {
      if (served != nullptr) {
        served->metrics->OnRefusal(*reason);
      } else {
        context_.metrics->OnRefusalWithoutModel(*reason);
      }
      if (message_bytes <= context_.budget->most_of_caller()) {
        status = RetryAfter(std::move(status), kMemoryRetryAfter);
      }
    }
    calls::EndedCall ended(exchange_, telemetry::AccessLog::Begin(exchange_), status);
    ended.method = calls::MethodId::kModelInfer;
    ended.trace = tracing::BeginTrace(context_.tracer, exchange_, context_.clock->Now());
    if (served != nullptr) {
      ended.model_metrics = served->metrics.get();
      ended.record.model = served->name;
      ended.record.version = served->version;
    }
    exchange_.Finish(calls::EndCall(context_.metrics, context_.access_log, std::move(ended)));
  }

  const calls::ServiceContext& context_;
  calls::Exchange& exchange_;
  std::atomic<calls::CallHandler*> call_{nullptr};  // set where the message is read
};

}  // namespace

absl::StatusOr<int64_t> ParseModelVersion(absl::string_view field, absl::string_view text) {
  if (text.empty()) return 0;
  SRU_RETURN_UNLESS_OK(models::CheckNameLength(field, text));
  int64_t version = 0;
  if (absl::SimpleAtoi(text, &version) && version > 0) return version;
  return InvalidArgument(field, ": ", Quoted(text),
                         ", expected a positive number, or nothing for the latest version");
}

absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> FindModel(
    const lifecycle::ModelRegistry& registry, absl::string_view prefix, absl::string_view name,
    absl::string_view version) {
  if (name.empty()) {
    return InvalidArgument(prefix, "name: empty, expected the name of a model");
  }
  SRU_RETURN_UNLESS_OK(models::CheckNameLength(absl::StrCat(prefix, "name"), name));
  SRU_ASSIGN_OR_RETURN(const int64_t number,
                       ParseModelVersion(absl::StrCat(prefix, "version"), version));
  return registry.Find(std::string(name), number);
}

calls::CallHandler* StartModelInfer(const calls::ServiceContext& context,
                                    calls::Exchange* exchange) {
  return new ModelInferCall(context, exchange);
}

}  // namespace sru::server::open_inference
