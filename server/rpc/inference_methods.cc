#include "server/rpc/inference_methods.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "server/calls/kinds/reply_call.h"
#include "server/calls/messages/response_writer.h"
#include "server/tasks/tasks.h"
#include "sru/v1/admin.pb.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rpc {
namespace {

using calls::Method;
using Id = calls::MethodId;

void WriteServedModel(const lifecycle::ServedModel& served, const calls::RequestLimits& limits,
                      v1::ModelInfo* info) {
  tasks::WriteSizes(*served.model, info);
  calls::WriteModelInfo(*served.model, served.engine->instances(), limits.max_sequence_tokens,
                        info);
}

}  // namespace

std::vector<Method> InferenceMethods(const calls::ServiceContext& context) {
  std::vector<Method> rows = tasks::TaskMethods(context);
  rows.push_back(calls::LookupMethod<v1::ListModelsRequest, v1::ListModelsResponse>(
      Id::kListModels, context, [&context](const auto& /*request*/, auto* answer, auto*) {
        for (const std::shared_ptr<lifecycle::ServedModel>& served : context.registry->List()) {
          WriteServedModel(*served, context.limits, answer->add_models());
        }
        for (const telemetry::ModelStatus& model : context.manager->Statuses()) {
          calls::WriteModelStatus(model, answer->add_statuses());
        }
        return absl::OkStatus();
      }));
  rows.push_back(calls::LookupMethod<v1::GetModelRequest, v1::GetModelResponse>(
      Id::kGetModel, context, [&context](const auto& request, auto* answer, auto* served) {
        SRU_ASSIGN_OR_RETURN(*served, context.registry->Find(request.model(), request.version()));
        WriteServedModel(**served, context.limits, answer->mutable_model());
        return absl::OkStatus();
      }));
  return rows;
}

std::vector<Method> AdminMethods(const calls::AdminContext& context) {
  using Call = calls::ReplyCall::Pointer;
  return {calls::ReplyMethod<v1::LoadModelRequest, v1::LoadModelResponse>(
              Id::kLoadModel, *context.service,
              [&context](const v1::LoadModelRequest& load, const Call& call) {
                SRU_RETURN_UNLESS_OK(context.CheckExplicitControl());
                call->set_model(load.model());
                context.manager->RequestLoad(
                    load.model(), [call] { return call->finished(); },
                    [call](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& statuses) {
                      if (!statuses.ok()) return call->Finish(statuses.status());
                      v1::LoadModelResponse answer;
                      for (const telemetry::ModelStatus& s : *statuses) {
                        calls::WriteModelStatus(s, answer.add_statuses());
                      }
                      call->Finish(absl::OkStatus(), &answer);
                    });
                return absl::OkStatus();
              }),
          calls::ReplyMethod<v1::UnloadModelRequest, v1::UnloadModelResponse>(
              Id::kUnloadModel, *context.service,
              [&context](const v1::UnloadModelRequest& unload, const Call& call) {
                SRU_RETURN_UNLESS_OK(context.CheckExplicitControl());
                call->set_model(unload.model());
                context.manager->RequestUnload(
                    unload.model(), [call] { return call->finished(); },
                    [call](const absl::Status& result) {
                      call->Finish(result, &v1::UnloadModelResponse::default_instance());
                    });
                return absl::OkStatus();
              })};
}

}  // namespace sru::server::rpc
