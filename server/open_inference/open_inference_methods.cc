#include "server/open_inference/open_inference_methods.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "models/repository.h"
#include "server/calls/kinds/reply_call.h"
#include "server/calls/method_info.h"
#include "server/open_inference/model_infer.h"
#include "server/open_inference/model_metadata.h"

namespace sru::server::open_inference {
namespace {

using calls::Method;
using Id = calls::MethodId;

// Finds the model of a request with `name` and `version`.
template <typename Request>
absl::Status Find(const lifecycle::ModelRegistry& registry, const Request& request,
                  std::shared_ptr<lifecycle::ServedModel>* served) {
  SRU_ASSIGN_OR_RETURN(*served, FindModel(registry, "", request.name(), request.version()));
  return absl::OkStatus();
}

std::vector<int64_t> VersionsOf(const lifecycle::ModelRegistry& registry, const std::string& name) {
  std::vector<int64_t> versions;
  for (const auto& served : registry.List()) {
    if (served->name == name) versions.push_back(served->version);
  }
  return versions;
}

absl::Status WriteStatistics(const lifecycle::ModelRegistry& registry,
                             const inference::ModelStatisticsRequest& request,
                             inference::ModelStatisticsResponse* response) {
  SRU_RETURN_UNLESS_OK(models::CheckNameLength("name", request.name()));
  SRU_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion("version", request.version()));
  for (const auto& served : registry.List()) {
    if (!request.name().empty() && served->name != request.name()) continue;
    if (version != 0 && served->version != version) continue;
    WriteModelStatistics(*served, response->add_model_stats());
  }
  if (request.name().empty() || response->model_stats_size() > 0) return absl::OkStatus();
  // Its error says what is loaded.
  return registry.Find(request.name(), version).status();
}

}  // namespace

std::vector<Method> OpenInferenceMethods(const OpenInferenceContext& context) {
  const calls::ServiceContext& service = *context.service;
  Method infer = Method::Of(Id::kModelInfer);
  infer.start = [&service](calls::Exchange* exchange) {
    return StartModelInfer(service, exchange);
  };
  Method stream = Method::Of(Id::kModelStreamInfer);
  stream.start = [&service, infer](calls::Exchange* exchange) {
    return StartModelStreamInfer(service, exchange, infer);
  };
  const lifecycle::ModelRegistry& registry = *service.registry;
  return {
      calls::LookupMethod<inference::ServerLiveRequest, inference::ServerLiveResponse>(
          Id::kServerLive, service,
          [](const auto& /*request*/, auto* answer, auto* /*served*/) {
            answer->set_live(true);
            return absl::OkStatus();
          }),
      calls::LookupMethod<inference::ServerReadyRequest, inference::ServerReadyResponse>(
          Id::kServerReady, service,
          [&context](const auto& /*request*/, auto* answer, auto* /*served*/) {
            answer->set_ready(context.ready());
            return absl::OkStatus();
          }),
      calls::LookupMethod<inference::ModelReadyRequest, inference::ModelReadyResponse>(
          Id::kModelReady, service,
          [&context, &registry](const auto& asked, auto* answer, auto* served) {
            absl::Status status = Find(registry, asked, served);
            if (absl::IsNotFound(status)) return absl::OkStatus();
            if (!status.ok()) return status;
            answer->set_ready(context.ready() && (*served)->engine->instances() > 0);
            return absl::OkStatus();
          }),
      calls::LookupMethod<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
          Id::kServerMetadata, service,
          [](const auto& /*request*/, auto* answer, auto* /*served*/) {
            WriteServerMetadata(answer);
            return absl::OkStatus();
          }),
      calls::LookupMethod<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
          Id::kModelMetadata, service,
          [&registry](const auto& asked, auto* answer, auto* served) {
            SRU_RETURN_UNLESS_OK(Find(registry, asked, served));
            WriteModelMetadata(**served, VersionsOf(registry, asked.name()), answer);
            return absl::OkStatus();
          }),
      calls::LookupMethod<inference::ModelConfigRequest, inference::ModelConfigResponse>(
          Id::kModelConfig, service,
          [&context, &registry](const auto& asked, auto* answer, auto* served) {
            SRU_RETURN_UNLESS_OK(Find(registry, asked, served));
            WriteModelConfig(**served, VersionsOf(registry, asked.name()), context.service->limits,
                             context.max_queue_delay, answer->mutable_config());
            return absl::OkStatus();
          }),
      calls::LookupMethod<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
          Id::kModelStatistics, service,
          [&registry](const auto& asked, auto* answer, auto* /*served*/) {
            return WriteStatistics(registry, asked, answer);
          }),
      infer,
      stream};
}

}  // namespace sru::server::open_inference
