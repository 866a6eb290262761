#include "server/rest/v2_routes.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/json_message.h"
#include "server/rest/method_call.h"
#include "server/rest/v2_openapi.h"
#include "server/rest/v2_request.h"
#include "server/rest/v2_response.h"

namespace sru::server::rest {
namespace {

using nlohmann::ordered_json;
using CallPointer = std::shared_ptr<RestCall>;

constexpr char kModel[] = "name";
constexpr char kVersion[] = "version";

std::string MethodPath(const char* method) {
  return absl::StrCat("/inference.GRPCInferenceService/", method);
}

void ReplyJson(const CallPointer& call, int status, const ordered_json& json) {
  call->Reply(JsonResponse(JsonText(json), status));
}

// 64-bit integers are numbers there.
void ReplyMessage(const CallPointer& call, const google::protobuf::Message& message) {
  std::string json;
  const absl::Status status = WriteJsonMessage(message, JsonFields::kPlain, &call->memory(), &json);
  status.ok() ? call->Reply(JsonResponse(std::move(json))) : call->Fail(status);
}

// Sends the request; `reply` gets the answer.
template <typename Response, typename Reply>
void Ask(const CallPointer& call, const char* method, const google::protobuf::Message& request,
         Reply reply) {
  AskMethod<Response>(call, MethodPath(method), request, std::move(reply));
}

// A request about a model, or a version of one, that the path names.
template <typename Request>
Request ModelRequest(const RestCall& call) {
  Request request;
  request.set_name(call.parameter(kModel));
  request.set_version(call.parameter(kVersion));
  return request;
}

void ServerMetadata(const CallPointer& call) {
  Ask<inference::ServerMetadataResponse>(
      call, "ServerMetadata", inference::ServerMetadataRequest(),
      [call](const auto& response) { ReplyMessage(call, response); });
}

void ServerLive(const CallPointer& call) {
  Ask<inference::ServerLiveResponse>(
      call, "ServerLive", inference::ServerLiveRequest(), [call](const auto& response) {
        ReplyJson(call, response.live() ? 200 : 503, {{"live", response.live()}});
      });
}

void ServerReady(const CallPointer& call) {
  Ask<inference::ServerReadyResponse>(
      call, "ServerReady", inference::ServerReadyRequest(), [call](const auto& response) {
        ReplyJson(call, response.ready() ? 200 : 503, {{"ready", response.ready()}});
      });
}

void ModelMetadata(const CallPointer& call) {
  Ask<inference::ModelMetadataResponse>(
      call, "ModelMetadata", ModelRequest<inference::ModelMetadataRequest>(*call),
      [call](const auto& response) { ReplyMessage(call, response); });
}

void ModelReady(const CallPointer& call) {
  Ask<inference::ModelReadyResponse>(
      call, "ModelReady", ModelRequest<inference::ModelReadyRequest>(*call),
      [call](const auto& response) {
        ReplyJson(call, response.ready() ? 200 : 503,
                  {{"name", call->parameter(kModel)}, {"ready", response.ready()}});
      });
}

void ModelConfig(const CallPointer& call) {
  Ask<inference::ModelConfigResponse>(
      call, "ModelConfig", ModelRequest<inference::ModelConfigRequest>(*call),
      [call](const auto& response) { ReplyMessage(call, response.config()); });
}

void ModelStatistics(const CallPointer& call) {
  Ask<inference::ModelStatisticsResponse>(
      call, "ModelStatistics", ModelRequest<inference::ModelStatisticsRequest>(*call),
      [call](const auto& response) { ReplyMessage(call, response); });
}

void ModelInfer(const CallPointer& call) {
  absl::StatusOr<HttpInferRequest> request = ParseHttpInferRequest(
      std::move(call->body()), call->request().header("inference-header-content-length"),
      call->parameter(kModel), call->parameter(kVersion), &call->memory());
  if (!request.ok()) return call->Fail({request.status()});
  call->Unary(MethodPath("ModelInfer"), request->message,  // a copy shares the bytes
              [call, outputs = std::move(request->outputs)](calls::LocalAnswer answer) {
                if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
                MemoryHold& memory = call->memory();
                memory.ShrinkTo(0);  // the request is gone
                const auto size = static_cast<int64_t>(answer.message.size());
                // The message, and what is parsed of it.
                if (!memory.Grow(2 * size)) return call->Fail({memory.NoMemory()});
                inference::ModelInferResponse response;
                if (!calls::ParseCord(answer.message, &response)) {
                  return call->Fail({absl::InternalError("the service's answer cannot be read")});
                }
                answer.message.Clear();
                memory.ShrinkTo(size);
                ReplyHttpInferResponse(call, std::move(response), outputs);
              });
}

void RefuseRepository(const CallPointer& call) {
  call->Fail(
      {absl::UnimplementedError("the repository of models is not managed over HTTP: call "
                                "RepositoryIndex, RepositoryModelLoad or "
                                "RepositoryModelUnload of inference.GRPCInferenceService over gRPC "
                                "on the admin port (--admin_listen), "
                                "or `sru_client admin`")});
}

Route GetRoute(const std::string& path, void (*handle)(const CallPointer&),
               std::function<nlohmann::json()> openapi) {
  Route route;
  route.method = "GET";
  route.path = path;
  route.errors = ErrorForm::kOpenInference;
  route.handle = handle;
  route.openapi = std::move(openapi);
  return route;
}

Route PostRoute(const std::string& path, std::vector<std::string> content_types,
                void (*handle)(const CallPointer&), std::function<nlohmann::json()> openapi) {
  Route route = GetRoute(path, handle, std::move(openapi));
  route.method = "POST";
  route.content_types = std::move(content_types);
  return route;
}

}  // namespace

RouteGroup OpenInferenceRoutes() {
  RouteGroup group;
  const auto query = [&](const std::string& path, void (*handle)(const CallPointer&),
                         const char* summary, const char* schema) {
    group.routes.push_back(
        GetRoute(path, handle, [=] { return V2QueryOperation(path, summary, schema); }));
  };
  const auto probe = [&](const std::string& path, void (*handle)(const CallPointer&),
                         const char* summary, const char* schema) {
    group.routes.push_back(
        GetRoute(path, handle, [=] { return V2ProbeOperation(path, summary, schema); }));
  };
  query("/v2", ServerMetadata, "The server's name, version and extensions.", "V2Server");
  probe("/v2/health/live", ServerLive, "Whether the process answers.", "V2Live");
  probe("/v2/health/ready", ServerReady, "Whether calls can be served.", "V2Ready");
  query("/v2/models/stats", ModelStatistics, "What all models have done since they were loaded.",
        "V2Statistics");
  for (const char* model : {"/v2/models/{name}", "/v2/models/{name}/versions/{version}"}) {
    const auto path = [model](const char* rest) { return absl::StrCat(model, rest); };
    query(path(""), ModelMetadata, "The model's tensors.", "V2Model");
    probe(path("/ready"), ModelReady, "Whether the model is loaded and can be used.",
          "V2ModelReady");
    query(path("/config"), ModelConfig, "The model's configuration.", "V2ModelConfig");
    query(path("/stats"), ModelStatistics, "What the model has done since it was loaded.",
          "V2Statistics");
    const std::string infer = path("/infer");
    group.routes.push_back(PostRoute(infer, {"application/json", "application/octet-stream"},
                                     ModelInfer, [infer] { return V2InferOperation(infer); }));
    group.routes.back().calls = calls::MethodId::kModelInfer;
  }
  for (const char* path : {"/v2/repository/index", "/v2/repository/models/{name}/load",
                           "/v2/repository/models/{name}/unload"}) {
    const std::string refused = path;
    group.routes.push_back(PostRoute(refused, {}, RefuseRepository, [refused] {
      return V2RefusedOperation(refused,
                                "Refused: models are managed over gRPC, on the admin port.");
    }));
  }
  group.schemas = V2Schemas;
  return group;
}

}  // namespace sru::server::rest
