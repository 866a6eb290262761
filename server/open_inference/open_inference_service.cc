#include "server/open_inference/open_inference_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/open_inference/infer_stream_call.h"
#include "server/open_inference/model_infer.h"
#include "server/open_inference/model_metadata.h"
#include "server/open_inference/model_version.h"
#include "server/rpc/answer_at_once.h"
#include "server/rpc/request_parser.h"
#include "server/rpc/response_writer.h"

namespace sru::server::open_inference {
namespace {

// A look-up that is answered in its handler.
struct Lookup {
  const rpc::ServiceContext& context;
  telemetry::Method method;
  grpc::CallbackServerContext* call;
  const grpc::ByteBuffer* request;
  grpc::ByteBuffer* response;
};

// Parses a `Request` and answers it with the `Response` that write(request, &response, &served) writes. `served` is the model that it
// found, if any.
template <typename Request, typename Response, typename Write>
grpc::ServerUnaryReactor* Answer(const Lookup& lookup, const Write& write) {
  return rpc::AnswerAtOnce(lookup.call, [&] {
    Request request;
    Response response;
    std::shared_ptr<lifecycle::ServedModel> served;
    absl::Status status = rpc::ParseSmallMessage(*lookup.request, &request);
    if (status.ok()) status = write(request, &response, &served);
    if (status.ok()) status = rpc::SerializeMessage(response, lookup.response);
    return rpc::EndInHandler(lookup.context, lookup.method, served.get(), status, lookup.call);
  });
}

// Finds the model of a request with `name` and `version`.
template <typename Request>
absl::Status Find(const rpc::ServiceContext& context, const Request& request,
                  std::shared_ptr<lifecycle::ServedModel>* served) {
  auto found = FindModel(*context.registry, "", request.name(), request.version());
  if (!found.ok()) return found.status();
  *served = *std::move(found);
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
  const absl::StatusOr<int64_t> version = ParseModelVersion("version", request.version());
  if (!version.ok()) return version.status();
  for (const auto& served : registry.List()) {
    if (!request.name().empty() && served->name != request.name()) continue;
    if (*version != 0 && served->version != *version) continue;
    WriteModelStatistics(*served, response->add_model_stats());
  }
  if (request.name().empty() || response->model_stats_size() > 0) return absl::OkStatus();
  // Its error says what is loaded.
  return registry.Find(request.name(), *version).status();
}

}  // namespace

grpc::ServerUnaryReactor* OpenInferenceService::ServerLive(grpc::CallbackServerContext* call,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kServerLive, call, request, response};
  return Answer<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      lookup, [](const auto& /*request*/, auto* answer, auto* /*served*/) {
        answer->set_live(true);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ServerReady(grpc::CallbackServerContext* call,
                                                            const grpc::ByteBuffer* request,
                                                            grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kServerReady, call, request, response};
  return Answer<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      lookup, [this](const auto& /*request*/, auto* answer, auto* /*served*/) {
        answer->set_ready(options_.ready());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelReady(grpc::CallbackServerContext* call,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kModelReady, call, request, response};
  return Answer<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      lookup, [this](const auto& asked, auto* answer, auto* served) {
        absl::Status status = Find(options_.context, asked, served);
        if (absl::IsNotFound(status)) return absl::OkStatus();
        if (!status.ok()) return status;
        answer->set_ready(options_.ready() && (*served)->engine->instances() > 0);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ServerMetadata(grpc::CallbackServerContext* call,
                                                               const grpc::ByteBuffer* request,
                                                               grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kServerMetadata, call, request,
                      response};
  return Answer<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      lookup, [](const auto& /*request*/, auto* answer, auto* /*served*/) {
        WriteServerMetadata(answer);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelMetadata(grpc::CallbackServerContext* call,
                                                              const grpc::ByteBuffer* request,
                                                              grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kModelMetadata, call, request, response};
  return Answer<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      lookup, [this](const auto& asked, auto* answer, auto* served) {
        absl::Status status = Find(options_.context, asked, served);
        if (!status.ok()) return status;
        WriteModelMetadata(**served, VersionsOf(*options_.context.registry, asked.name()), answer);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelConfig(grpc::CallbackServerContext* call,
                                                            const grpc::ByteBuffer* request,
                                                            grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kModelConfig, call, request, response};
  return Answer<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      lookup, [this](const auto& asked, auto* answer, auto* served) {
        absl::Status status = Find(options_.context, asked, served);
        if (!status.ok()) return status;
        ConfigLimits limits;
        limits.max_sequences = options_.context.limits.max_sequences;
        limits.max_sequence_tokens = options_.context.limits.max_sequence_tokens;
        limits.max_queue_delay = options_.max_queue_delay;
        WriteModelConfig(**served, VersionsOf(*options_.context.registry, asked.name()), limits,
                         answer->mutable_config());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelStatistics(grpc::CallbackServerContext* call,
                                                                const grpc::ByteBuffer* request,
                                                                grpc::ByteBuffer* response) {
  const Lookup lookup{options_.context, telemetry::Method::kModelStatistics, call, request,
                      response};
  return Answer<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      lookup, [this](const auto& asked, auto* answer, auto* /*served*/) {
        return WriteStatistics(*options_.context.registry, asked, answer);
      });
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelInfer(grpc::CallbackServerContext* call,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  return StartModelInfer(options_.context, call, request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* OpenInferenceService::ModelStreamInfer(
    grpc::CallbackServerContext* call) {
  return StartModelStreamInfer(options_.context, call, channel_);
}

}  // namespace sru::server::open_inference
