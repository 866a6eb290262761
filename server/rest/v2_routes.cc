#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
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

std::string MethodPath(absl::string_view method) {
  return absl::StrCat("/inference.GRPCInferenceService/", method);
}

// 64-bit integers are numbers there.
void ReplyMessage(const CallPointer& call, const google::protobuf::Message& message,
                  int status = 200) {
  std::string json;
  const absl::Status good = WriteJsonMessage(message, JsonFields::kPlain, &call->memory(), &json);
  good.ok() ? call->Reply(JsonResponse(std::move(json), status)) : call->Fail(good);
}

template <typename Response>
void Reply(const CallPointer& call, const Response& response) {
  ReplyMessage(call, response);
}
void Reply(const CallPointer& call, const inference::ModelConfigResponse& response) {
  ReplyMessage(call, response.config());
}
// The answer of a probe may be false.
void Reply(const CallPointer& call, const inference::ServerLiveResponse& response) {
  ReplyMessage(call, response, response.live() ? 200 : 503);
}
void Reply(const CallPointer& call, const inference::ServerReadyResponse& response) {
  ReplyMessage(call, response, response.ready() ? 200 : 503);
}
void Reply(const CallPointer& call, const inference::ModelReadyResponse& response) {
  const ordered_json answer = {{"name", call->parameter(kModel)}, {"ready", response.ready()}};
  call->Reply(JsonResponse(JsonText(answer), response.ready() ? 200 : 503));
}

// Asks the method of this request about what the path names.
template <typename Request, typename Response>
void Ask(const CallPointer& call) {
  Request request;
  for (const char* const name : {kModel, kVersion}) {
    const google::protobuf::FieldDescriptor* const field =
        Request::descriptor()->FindFieldByName(name);
    if (field == nullptr) continue;
    request.GetReflection()->SetString(&request, field, call->parameter(name));
  }
  AskMethod<Response>(call, MethodPath(absl::StripSuffix(Request::descriptor()->name(), "Request")),
                      request, [call](const Response& response) { Reply(call, response); });
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
  Route route(AnswerMemory::kTensors, method, path, ErrorForm::kOpenInference);
  route.handle = handle;
  return route;
}

// A GET whose answer is a message.
struct Query {
  const char* path;
  void (*handle)(const CallPointer&);
  const char* summary;
  const char* schema;     // the name of the answer's
  bool is_probe = false;  // the answer may be false, with 503
};
constexpr Query kServerQueries[] = {
    {"/v2", Ask<inference::ServerMetadataRequest, inference::ServerMetadataResponse>,
     "The server's name, version and extensions.", "V2Server"},
    {"/v2/health/live", Ask<inference::ServerLiveRequest, inference::ServerLiveResponse>,
     "Whether the process answers.", "V2Live", true},
    {"/v2/health/ready", Ask<inference::ServerReadyRequest, inference::ServerReadyResponse>,
     "Whether calls can be served.", "V2Ready", true},
    {"/v2/models/stats", Ask<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>,
     "What all models have done since they were loaded.", "V2Statistics"}};
constexpr Query kModelQueries[] = {
    {"", Ask<inference::ModelMetadataRequest, inference::ModelMetadataResponse>,
     "The model's tensors.", "V2Model"},
    {"/ready", Ask<inference::ModelReadyRequest, inference::ModelReadyResponse>,
     "Whether the model is loaded and can be used.", "V2ModelReady", true},
    {"/config", Ask<inference::ModelConfigRequest, inference::ModelConfigResponse>,
     "The model's configuration.", "V2ModelConfig"},
    {"/stats", Ask<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>,
     "What the model has done since it was loaded.", "V2Statistics"}};

Route QueryRoute(const std::string& model, const Query& query) {
  Route route = MakeRoute("GET", model + query.path, query.handle);
  route.is_probe = query.is_probe;
  json operation = Operation(route, query.summary);
  json& answers = operation["responses"];
  answers["200"] = Answer(query.is_probe ? "It is so." : "The answer.", query.schema);
  if (query.is_probe) answers["503"] = Answer("It is not so.", query.schema);
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
  route.content_types.clear();  // whatever the body is
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
  for (const Query& query : kServerQueries) routes.push_back(QueryRoute("", query));
  for (const std::string model : {"/v2/models/{name}", "/v2/models/{name}/versions/{version}"}) {
    for (const Query& query : kModelQueries) routes.push_back(QueryRoute(model, query));
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
