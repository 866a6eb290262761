#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/api_routes.h"
#include "server/rest/json_message.h"
#include "server/rest/method_call.h"
#include "server/rest/openapi.h"
#include "server/rest/v2_request.h"
#include "server/rest/v2_response.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;
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

json Answer(const std::string& description, const std::string& schema) {
  return JsonAnswer(description, SchemaReference(schema));
}

// An identifier that no other operation has: "v2_models_name_infer_get".
std::string V2OperationId(const Route& route) {
  std::string id;
  for (const char c : route.path) {
    if (absl::ascii_isalnum(c)) {
      id.push_back(c);
    } else if (c == '/' && !id.empty()) {
      id.push_back('_');
    }
  }
  return absl::StrCat(id, "_", absl::AsciiStrToLower(route.method));
}

// What the Operation Objects have in common.
json Operation(const Route& route, const std::string& summary) {
  json operation = {{"tags", {"Open Inference Protocol"}},
                    {"summary", summary},
                    {"operationId", V2OperationId(route)},
                    {"responses", {{"default", Answer("An error.", "V2Error")}}}};
  for (const auto& [name, meaning] :
       {std::pair{kModel, "Of a model."}, std::pair{kVersion, "A positive number in decimal."}}) {
    if (!absl::StrContains(route.path, absl::StrCat("{", name, "}"))) continue;
    operation["parameters"].push_back({{"name", name},
                                       {"in", "path"},
                                       {"required", true},
                                       {"description", meaning},
                                       {"schema", {{"type", "string"}}}});
  }
  return operation;
}

Route MakeRoute(const char* method, const std::string& path, void (*handle)(const CallPointer&)) {
  Route route(AnswerMemory::kTensors);
  route.method = method;
  route.path = path;
  route.error_form = ErrorForm::kOpenInference;
  route.handle = handle;
  return route;
}

// `schema` is the name of the answer's. The answer of a probe may be false, with 503.
Route Query(const std::string& path, void (*handle)(const CallPointer&), const char* summary,
            const char* schema, bool is_probe = false) {
  Route route = MakeRoute("GET", path, handle);
  route.is_probe = is_probe;
  json operation = Operation(route, summary);
  operation["responses"]["200"] = Answer(is_probe ? "It is so." : "The answer.", schema);
  if (is_probe) operation["responses"]["503"] = Answer("It is not so.", schema);
  route.openapi = [operation = std::move(operation)] { return operation; };
  return route;
}

Route InferRoute(const std::string& path) {
  Route route = MakeRoute("POST", path, ModelInfer);
  route.content_types = {"application/json", "application/octet-stream"};
  route.calls = calls::MethodId::kModelInfer;
  json operation = Operation(route, "Computes a batch of sequences.");
  json infer = OpenApiPart("infer");
  operation["parameters"].push_back(std::move(infer["parameter"]));
  operation["requestBody"] = std::move(infer["requestBody"]);
  operation["responses"]["200"] = std::move(infer["answer"]);
  route.openapi = [operation = std::move(operation)] { return operation; };
  return route;
}

Route RefusedRoute(const std::string& path) {
  Route route = MakeRoute("POST", path, RefuseRepository);
  json operation = Operation(route, "Refused: models are managed over gRPC, on the admin port.");
  operation["deprecated"] = true;
  operation["responses"]["501"] = Answer("Always.", "V2Error");
  route.openapi = [operation = std::move(operation)] { return operation; };
  return route;
}

}  // namespace

RouteGroup OpenInferenceRoutes() {
  RouteGroup group;
  std::vector<Route>& routes = group.routes;
  routes = {Query("/v2", ServerMetadata, "The server's name, version and extensions.", "V2Server"),
            Query("/v2/health/live", ServerLive, "Whether the process answers.", "V2Live", true),
            Query("/v2/health/ready", ServerReady, "Whether calls can be served.", "V2Ready", true),
            Query("/v2/models/stats", ModelStatistics,
                  "What all models have done since they were loaded.", "V2Statistics")};
  for (const std::string model : {"/v2/models/{name}", "/v2/models/{name}/versions/{version}"}) {
    routes.push_back(Query(model, ModelMetadata, "The model's tensors.", "V2Model"));
    routes.push_back(Query(model + "/ready", ModelReady,
                           "Whether the model is loaded and can be used.", "V2ModelReady", true));
    routes.push_back(
        Query(model + "/config", ModelConfig, "The model's configuration.", "V2ModelConfig"));
    routes.push_back(Query(model + "/stats", ModelStatistics,
                           "What the model has done since it was loaded.", "V2Statistics"));
    routes.push_back(InferRoute(model + "/infer"));
  }
  for (const char* path : {"/v2/repository/index", "/v2/repository/models/{name}/load",
                           "/v2/repository/models/{name}/unload"}) {
    routes.push_back(RefusedRoute(path));
  }
  group.schemas = [] { return OpenApiPart("v2_schemas"); };
  return group;
}

}  // namespace sru::server::rest
