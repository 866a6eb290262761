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
using Id = calls::MethodId;

using Start = std::function<calls::CallHandler*(calls::Exchange*)>;

template <typename Request, typename Response>
Method Row(Id id, Start start) {
  Method row = Method::Of(id);
  row.request = &Request::default_instance();
  row.response = &Response::default_instance();
  row.start = std::move(start);
  return row;
}

void WriteServedModel(const lifecycle::ServedModel& served, const RequestLimits& limits,
                      v1::ModelInfo* info) {
  WriteModelInfo(*served.model, served.engine->instances(), limits.max_sequence_tokens, info);
}

template <typename Request, typename Response, typename Write>
Method Lookup(Id id, const ServiceContext& context, Write write) {
  return Row<Request, Response>(id, LookupCalls<Request, Response>(id, context, std::move(write)));
}

template <typename Request, typename Response, typename Begin>
Method Admin(Id id, const AdminContext& context, Begin begin) {
  return Row<Request, Response>(id, AdminCalls<Request>(id, context, std::move(begin)));
}

Method ListModels(const ServiceContext& context) {
  return Lookup<v1::ListModelsRequest, v1::ListModelsResponse>(
      Id::kListModels, context, [&context](const auto& /*request*/, auto* answer, auto*) {
        for (const std::shared_ptr<lifecycle::ServedModel>& served : context.registry->List()) {
          WriteServedModel(*served, context.limits, answer->add_models());
        }
        for (const telemetry::ModelStatus& model : context.manager->Statuses()) {
          WriteModelStatus(model, answer->add_statuses());
        }
        return absl::OkStatus();
      });
}

Method GetModel(const ServiceContext& context) {
  return Lookup<v1::GetModelRequest, v1::GetModelResponse>(
      Id::kGetModel, context, [&context](const auto& request, auto* answer, auto* served) {
        absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> found =
            context.registry->Find(request.model(), request.version());
        if (!found.ok()) return found.status();
        *served = *std::move(found);
        WriteServedModel(**served, context.limits, answer->mutable_model());
        return absl::OkStatus();
      });
}

Method LoadModel(const AdminContext& context) {
  return Admin<v1::LoadModelRequest, v1::LoadModelResponse>(
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
}

Method UnloadModel(const AdminContext& context) {
  return Admin<v1::UnloadModelRequest, v1::UnloadModelResponse>(
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
}

}  // namespace

std::vector<Method> InferenceMethods(const ServiceContext& context) {
  // Starts calls that also exist in another form.
  const auto task = [&context](auto* start) -> Start {
    return
        [&context, start](calls::Exchange* exchange) { return start(context, exchange, nullptr); };
  };
  return {
      Row<v1::ClassifyRequest, v1::ClassifyResponse>(Id::kClassify, task(StartClassify)),
      Row<v1::EncodeRequest, v1::EncodeResponse>(Id::kEncode, task(StartEncode)),
      Row<v1::ScoreRequest, v1::ScoreResponse>(Id::kScore, task(StartScore)),
      Row<v1::AnswerRequest, v1::AnswerResponse>(Id::kAnswer, task(StartAnswer)),
      Row<v1::TranslateRequest, v1::TranslateResponse>(Id::kTranslate, task(StartTranslate)),
      Row<v1::GenerateRequest, v1::GenerateResponse>(
          Id::kGenerate,
          [&context](calls::Exchange* exchange) { return StartGenerate(context, exchange); }),
      Row<v1::EncodeStreamRequest, v1::EncodeStreamResponse>(
          Id::kEncodeStream,
          [&context](calls::Exchange* exchange) { return StartEncodeStream(context, exchange); }),
      ListModels(context),
      GetModel(context)};
}

std::vector<Method> AdminMethods(const AdminContext& context) {
  return {LoadModel(context), UnloadModel(context)};
}

}  // namespace sru::server::rpc
