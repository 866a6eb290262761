#include "server/open_inference/repository_service.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/open_inference/infer_request.h"
#include "server/rpc/admin_call.h"
#include "server/rpc/request_parser.h"

namespace sru::server::open_inference {
namespace {

// As Triton names them.
const char* StateName(telemetry::ModelState state) {
  switch (state) {
    case telemetry::ModelState::kLoading:
      return "LOADING";
    case telemetry::ModelState::kReady:
      return "READY";
    case telemetry::ModelState::kUnloading:
      return "UNLOADING";
    case telemetry::ModelState::kFailed:
      return "UNAVAILABLE";
  }
  return "";
}

void WriteIndex(const std::vector<telemetry::ModelStatus>& statuses, bool only_ready,
                inference::RepositoryIndexResponse* response) {
  for (const telemetry::ModelStatus& status : statuses) {
    if (only_ready && status.state != telemetry::ModelState::kReady) continue;
    inference::RepositoryIndexResponse::ModelIndex* const model = response->add_models();
    model->set_name(status.model);
    if (status.version != 0) model->set_version(absl::StrCat(status.version));
    model->set_state(StateName(status.state));
    model->set_reason(status.message);
  }
}

absl::Status CheckRepository(const std::string& name) {
  if (name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("repository_name: ", Quoted(name),
                                                 ", expected nothing: there is one repository"));
}

// Of `request`, whose parameters may be `allowed` only.
template <typename Request>
absl::Status CheckRequest(const Request& request, absl::string_view allowed) {
  if (absl::Status status = CheckRepository(request.repository_name()); !status.ok()) {
    return status;
  }
  for (const auto& [name, value] : request.parameters()) {
    if (name == allowed) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameters: ", Quoted(name), " is not supported, expected ",
        allowed.empty() ? "none: a model is loaded as the repository has it" : allowed));
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* RepositoryService::RepositoryIndex(grpc::CallbackServerContext* call,
                                                             const grpc::ByteBuffer* request,
                                                             grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<rpc::AdminCall::State>& state) {
    inference::RepositoryIndexRequest index;
    absl::Status status = rpc::ParseSmallMessage(*request, &index);
    status.Update(CheckRepository(index.repository_name()));
    if (!status.ok()) return state->Finish(status);
    inference::RepositoryIndexResponse answer;
    WriteIndex(manager_.Statuses(), index.ready(), &answer);
    state->Finish(absl::OkStatus(), &answer);
  };
  return rpc::StartAdminCall(call, response, telemetry::Method::kRepositoryIndex, &metrics_,
                             &access_log_, begin);
}

grpc::ServerUnaryReactor* RepositoryService::RepositoryModelLoad(grpc::CallbackServerContext* call,
                                                                 const grpc::ByteBuffer* request,
                                                                 grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<rpc::AdminCall::State>& state) {
    inference::RepositoryModelLoadRequest load;
    absl::Status status = rpc::ParseSmallMessage(*request, &load);
    status.Update(rpc::CheckExplicitControl(control_));
    status.Update(CheckRequest(load, ""));
    if (!status.ok()) return state->Finish(status);
    state->set_model(load.model_name());
    manager_.RequestLoad(
        load.model_name(), [state] { return state->finished(); },
        [state](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& statuses) {
          const inference::RepositoryModelLoadResponse answer;
          state->Finish(statuses.status(), statuses.ok() ? &answer : nullptr);
        });
  };
  return rpc::StartAdminCall(call, response, telemetry::Method::kRepositoryModelLoad, &metrics_,
                             &access_log_, begin);
}

grpc::ServerUnaryReactor* RepositoryService::RepositoryModelUnload(
    grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<rpc::AdminCall::State>& state) {
    inference::RepositoryModelUnloadRequest unload;
    absl::Status status = rpc::ParseSmallMessage(*request, &unload);
    status.Update(rpc::CheckExplicitControl(control_));
    status.Update(CheckRequest(unload, "unload_dependents"));
    if (!status.ok()) return state->Finish(status);
    state->set_model(unload.model_name());
    manager_.RequestUnload(
        unload.model_name(), [state] { return state->finished(); },
        [state](const absl::Status& result) {
          const inference::RepositoryModelUnloadResponse answer;
          state->Finish(result, result.ok() ? &answer : nullptr);
        });
  };
  return rpc::StartAdminCall(call, response, telemetry::Method::kRepositoryModelUnload, &metrics_,
                             &access_log_, begin);
}

}  // namespace sru::server::open_inference
