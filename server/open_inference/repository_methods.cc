#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "inference/open_inference.pb.h"
#include "models/repository.h"
#include "server/calls/kinds/reply_call.h"
#include "server/open_inference/open_inference_methods.h"
#include "server/open_inference/tensors/infer_request.h"

namespace sru::server::open_inference {
namespace {

// As Triton names them.
const char* StateName(telemetry::ModelState state) {
  static constexpr const char* kNames[] = {"LOADING", "READY", "UNLOADING", "UNAVAILABLE"};
  return kNames[static_cast<size_t>(state)];
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
  return InvalidArgument("repository_name: ", Quoted(name),
                         ", expected nothing: there is one repository");
}

// Of `request`, whose parameters may be `allowed` only.
template <typename Request>
absl::Status CheckRequest(const Request& request, absl::string_view allowed) {
  SRU_RETURN_UNLESS_OK(CheckRepository(request.repository_name()));
  SRU_RETURN_UNLESS_OK(models::CheckNameLength("model_name", request.model_name()));
  for (const auto& [name, value] : request.parameters()) {
    if (name == allowed) continue;
    return InvalidArgument(
        "parameters: ", Quoted(name), " is not supported, expected ",
        allowed.empty() ? "none: a model is loaded as the repository has it" : allowed);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<calls::Method> RepositoryMethods(const calls::AdminContext& context) {
  using calls::ReplyCall;
  return {calls::ReplyMethod<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
              calls::MethodId::kRepositoryIndex, *context.service,
              [&context](const auto& index, const ReplyCall::Pointer& call) {
                SRU_RETURN_UNLESS_OK(CheckRepository(index.repository_name()));
                inference::RepositoryIndexResponse answer;
                WriteIndex(context.manager->Statuses(), index.ready(), &answer);
                call->Finish(absl::OkStatus(), &answer);
                return absl::OkStatus();
              }),
          calls::ReplyMethod<inference::RepositoryModelLoadRequest,
                             inference::RepositoryModelLoadResponse>(
              calls::MethodId::kRepositoryModelLoad, *context.service,
              [&context](const auto& load, const ReplyCall::Pointer& call) {
                SRU_RETURN_UNLESS_OK(context.CheckExplicitControl());
                SRU_RETURN_UNLESS_OK(CheckRequest(load, ""));
                call->set_model(load.model_name());
                context.manager->RequestLoad(
                    load.model_name(), [call] { return call->finished(); },
                    [call](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& statuses) {
                      call->Finish(statuses.status(),
                                   &inference::RepositoryModelLoadResponse::default_instance());
                    });
                return absl::OkStatus();
              }),
          calls::ReplyMethod<inference::RepositoryModelUnloadRequest,
                             inference::RepositoryModelUnloadResponse>(
              calls::MethodId::kRepositoryModelUnload, *context.service,
              [&context](const auto& unload, const ReplyCall::Pointer& call) {
                SRU_RETURN_UNLESS_OK(context.CheckExplicitControl());
                SRU_RETURN_UNLESS_OK(CheckRequest(unload, "unload_dependents"));
                call->set_model(unload.model_name());
                context.manager->RequestUnload(
                    unload.model_name(), [call] { return call->finished(); },
                    [call](const absl::Status& result) {
                      call->Finish(result,
                                   &inference::RepositoryModelUnloadResponse::default_instance());
                    });
                return absl::OkStatus();
              })};
}

}  // namespace sru::server::open_inference
