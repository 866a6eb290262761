#include "server/rpc/inference_methods.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/calls.h"
#include "server/rpc/lookup_call.h"
#include "server/rpc/response_writer.h"
#include "sru/v1/admin.pb.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rpc {
namespace {

using calls::Method;
using calls::MethodKind;
using Id = telemetry::Method;

template <typename Request, typename Response>
Method Row(const char* service, Id id, MethodKind kind) {
  Method row;
  row.service = service;
  row.name = telemetry::MethodName(id);
  row.kind = kind;
  row.request = &Request::default_instance();
  row.response = &Response::default_instance();
  return row;
}

// A method that computes.
template <typename Request, typename Response>
Method Task(Id id, MethodKind kind, const char* http_path, const char* summary,
            std::function<calls::CallHandler*(calls::Exchange*)> start) {
  Method row = Row<Request, Response>(kInferenceService, id, kind);
  row.http_path = http_path;
  row.summary = summary;
  row.start = std::move(start);
  return row;
}

void WriteServedModel(const lifecycle::ServedModel& served, const RequestLimits& limits,
                      v1::ModelInfo* info) {
  WriteModelInfo(*served.model, served.engine->instances(), limits.max_sequence_tokens, info);
}

Method ListModels(const ServiceContext& context) {
  Method row = Row<v1::ListModelsRequest, v1::ListModelsResponse>(
      kInferenceService, Id::kListModels, MethodKind::kUnary);
  row.start = LookupCalls<v1::ListModelsRequest, v1::ListModelsResponse>(
      Id::kListModels, context, [&context](const auto& /*request*/, auto* answer, auto*) {
        for (const std::shared_ptr<lifecycle::ServedModel>& served : context.registry->List()) {
          WriteServedModel(*served, context.limits, answer->add_models());
        }
        for (const telemetry::ModelStatus& model : context.manager->Statuses()) {
          WriteModelStatus(model, answer->add_statuses());
        }
        return absl::OkStatus();
      });
  return row;
}

Method GetModel(const ServiceContext& context) {
  Method row = Row<v1::GetModelRequest, v1::GetModelResponse>(kInferenceService, Id::kGetModel,
                                                              MethodKind::kUnary);
  row.start = LookupCalls<v1::GetModelRequest, v1::GetModelResponse>(
      Id::kGetModel, context, [&context](const auto& request, auto* answer, auto* served) {
        absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> found =
            context.registry->Find(request.model(), request.version());
        if (!found.ok()) return found.status();
        *served = *std::move(found);
        WriteServedModel(**served, context.limits, answer->mutable_model());
        return absl::OkStatus();
      });
  return row;
}

Method LoadModel(const AdminContext& context) {
  Method row = Row<v1::LoadModelRequest, v1::LoadModelResponse>(kAdminService, Id::kLoadModel,
                                                                MethodKind::kUnary);
  row.start = AdminCalls<v1::LoadModelRequest>(
      Id::kLoadModel, context,
      [&context](const v1::LoadModelRequest& load, const AdminCall::Pointer& call) {
        absl::Status status = CheckExplicitControl(context.control);
        if (!status.ok()) return status;
        call->set_model(load.model());
        context.manager->RequestLoad(
            load.model(), [call] { return call->finished(); },
            [call](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& statuses) {
              if (!statuses.ok()) return call->Finish(statuses.status());
              v1::LoadModelResponse answer;
              for (const telemetry::ModelStatus& s : *statuses) {
                WriteModelStatus(s, answer.add_statuses());
              }
              call->Finish(absl::OkStatus(), &answer);
            });
        return absl::OkStatus();
      });
  return row;
}

Method UnloadModel(const AdminContext& context) {
  Method row = Row<v1::UnloadModelRequest, v1::UnloadModelResponse>(kAdminService, Id::kUnloadModel,
                                                                    MethodKind::kUnary);
  row.start = AdminCalls<v1::UnloadModelRequest>(
      Id::kUnloadModel, context,
      [&context](const v1::UnloadModelRequest& unload, const AdminCall::Pointer& call) {
        absl::Status status = CheckExplicitControl(context.control);
        if (!status.ok()) return status;
        call->set_model(unload.model());
        context.manager->RequestUnload(
            unload.model(), [call] { return call->finished(); },
            [call](const absl::Status& result) {
              const v1::UnloadModelResponse answer;
              call->Finish(result, result.ok() ? &answer : nullptr);
            });
        return absl::OkStatus();
      });
  return row;
}

}  // namespace

std::vector<Method> InferenceMethods(const ServiceContext& context) {
  const auto start = [&context](auto* function) {
    return [&context, function](calls::Exchange* exchange) {
      return function(context, exchange, nullptr);
    };
  };
  return {
      Task<v1::ClassifyRequest, v1::ClassifyResponse>(
          Id::kClassify, MethodKind::kUnary, "/v1/classify",
          "Labels with probabilities for each sequence.", start(StartClassify)),
      Task<v1::EncodeRequest, v1::EncodeResponse>(
          Id::kEncode, MethodKind::kUnary, "/v1/encode",
          "A pooled vector, or one vector per token, for each sequence.", start(StartEncode)),
      Task<v1::ScoreRequest, v1::ScoreResponse>(Id::kScore, MethodKind::kUnary, "/v1/score",
                                                "How probable each sequence is, token by token.",
                                                start(StartScore)),
      Task<v1::AnswerRequest, v1::AnswerResponse>(Id::kAnswer, MethodKind::kUnary, "/v1/answer",
                                                  "The spans of passages that answer questions.",
                                                  start(StartAnswer)),
      Task<v1::TranslateRequest, v1::TranslateResponse>(
          Id::kTranslate, MethodKind::kUnary, "/v1/translate",
          "The most probable translations of each sequence.", start(StartTranslate)),
      Task<v1::GenerateRequest, v1::GenerateResponse>(
          Id::kGenerate, MethodKind::kServerStream, "/v1/generate",
          "Goes on from a prompt, as server-sent events of one GenerateResponse each. An event "
          "with "
          "an error ends a text that failed after its beginning.",
          [&context](calls::Exchange* exchange) { return StartGenerate(context, exchange); }),
      Task<v1::EncodeStreamRequest, v1::EncodeStreamResponse>(
          Id::kEncodeStream, MethodKind::kBidirectional, "", "",
          [&context](calls::Exchange* exchange) { return StartEncodeStream(context, exchange); }),
      ListModels(context),
      GetModel(context)};
}

std::vector<Method> AdminMethods(const AdminContext& context) {
  return {LoadModel(context), UnloadModel(context)};
}

}  // namespace sru::server::rpc
