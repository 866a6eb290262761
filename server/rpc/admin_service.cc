#include "server/rpc/admin_service.h"

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/admin_call.h"
#include "server/rpc/request_parser.h"
#include "server/rpc/response_writer.h"

namespace sru::server::rpc {

grpc::ServerUnaryReactor* AdminService::LoadModel(grpc::CallbackServerContext* call,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<AdminCall::State>& state) {
    v1::LoadModelRequest load;
    absl::Status status = ParseSmallMessage(*request, &load);
    status.Update(CheckExplicitControl(control_));
    if (!status.ok()) return state->Finish(status);
    state->set_model(load.model());
    manager_.RequestLoad(
        load.model(), [state] { return state->finished(); },
        [state](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& statuses) {
          if (!statuses.ok()) return state->Finish(statuses.status());
          v1::LoadModelResponse answer;
          for (const telemetry::ModelStatus& s : *statuses)
            WriteModelStatus(s, answer.add_statuses());
          state->Finish(absl::OkStatus(), &answer);
        });
  };
  return StartAdminCall(call, response, telemetry::Method::kLoadModel, &metrics_, &access_log_,
                        begin);
}

grpc::ServerUnaryReactor* AdminService::UnloadModel(grpc::CallbackServerContext* call,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<AdminCall::State>& state) {
    v1::UnloadModelRequest unload;
    absl::Status status = ParseSmallMessage(*request, &unload);
    status.Update(CheckExplicitControl(control_));
    if (!status.ok()) return state->Finish(status);
    state->set_model(unload.model());
    manager_.RequestUnload(
        unload.model(), [state] { return state->finished(); },
        [state](const absl::Status& result) {
          const v1::UnloadModelResponse answer;
          state->Finish(result, result.ok() ? &answer : nullptr);
        });
  };
  return StartAdminCall(call, response, telemetry::Method::kUnloadModel, &metrics_, &access_log_,
                        begin);
}

}  // namespace sru::server::rpc
