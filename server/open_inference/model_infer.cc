#include "server/open_inference/model_infer.h"

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/batching/reject_reason.h"
#include "server/open_inference/infer_form.h"
#include "server/open_inference/model_version.h"
#include "server/rpc/call_basics.h"
#include "server/rpc/calls.h"
#include "server/rpc/end_call.h"

namespace sru::server::open_inference {
namespace {

absl::Status Read(const rpc::ServiceContext& context, const grpc::ByteBuffer& bytes,
                  InferCall* call) {
  if (!call->bytes.Read(bytes)) {
    return batching::MakeRefusal(
        batching::RejectReason::kMemory,
        rpc::NoMemoryLeft(*context.budget, static_cast<int64_t>(bytes.Length())));
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

// The end of a call that has not got as far as to have a form.
grpc::Status EndEarly(const rpc::ServiceContext& context, grpc::CallbackServerContext* call,
                      const lifecycle::ServedModel* served, const absl::Status& status,
                      int64_t message_bytes) {
  rpc::EndedCall ended;
  if (const std::optional<batching::RejectReason> reason = batching::GetRejectReason(status);
      reason.has_value()) {
    if (served != nullptr) {
      served->metrics->OnRefusal(*reason);
    } else {
      context.metrics->OnRefusalWithoutModel(*reason);
    }
    if (message_bytes <= context.budget->limit()) ended.retry_after = rpc::kMemoryRetryAfter;
  }
  ended.call = call;
  ended.request_id = telemetry::AccessLog::Begin(*call);
  ended.method = telemetry::Method::kModelInfer;
  ended.record.status = &status;
  if (served != nullptr) {
    ended.model_metrics = served->metrics.get();
    ended.record.model = served->name;
    ended.record.version = served->version;
  }
  return rpc::EndCall(context.metrics, context.access_log, std::move(ended));
}

}  // namespace

grpc::ServerUnaryReactor* StartModelInfer(const rpc::ServiceContext& context,
                                          grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) {
  auto infer = std::make_unique<InferCall>(context.budget);
  absl::Status status;
  try {
    status = Read(context, *request, infer.get());
  } catch (const std::bad_alloc&) {
    status = batching::MakeRefusal(batching::RejectReason::kMemory, rpc::kNoMemory);
  }
  if (!status.ok()) {
    const auto bytes = static_cast<int64_t>(request->Length());
    context.received->Note(context.listener, *call, bytes);
    return rpc::FinishAtOnce(call, EndEarly(context, call, infer->served.get(), status, bytes));
  }
  switch (infer->kind) {
    case InferKind::kClassify:
      return rpc::StartClassify(context, call, request, response,
                                MakeClassifyForm(std::move(infer)));
    case InferKind::kEncode:
      return rpc::StartEncode(context, call, request, response, MakeEncodeForm(std::move(infer)));
    case InferKind::kScore:
      return rpc::StartScore(context, call, request, response, MakeScoreForm(std::move(infer)));
    case InferKind::kAnswer:
      return rpc::StartAnswer(context, call, request, response, MakeAnswerForm(std::move(infer)));
    case InferKind::kTranslate:
      return rpc::StartTranslate(context, call, request, response,
                                 MakeTranslateForm(std::move(infer)));
  }
  return nullptr;
}

}  // namespace sru::server::open_inference
