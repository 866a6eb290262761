#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/api_routes.h"
#include "server/rest/json_message.h"
#include "server/rest/method_call.h"
#include "server/rest/openapi.h"
#include "server/rest/v2_infer.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kModel[] = "name";
constexpr char kVersion[] = "version";
constexpr char kModelInfer[] = "/inference.GRPCInferenceService/ModelInfer";

// 64-bit integers are numbers there.
void ReplyMessage(const SharedCall& call, const google::protobuf::Message& message,
                  int status = 200) {
  std::string json;
  const absl::Status good = WriteJsonMessage(message, JsonFields::kPlain, &call->memory(), &json);
  good.ok() ? call->Reply(JsonResponse(std::move(json), status)) : call->Fail(good);
}

template <typename Response>
void Reply(const SharedCall& call, const Response& response) {
  ReplyMessage(call, response);
}
void Reply(const SharedCall& call, const inference::ModelConfigResponse& response) {
  ReplyMessage(call, response.config());
}
// The answer of a probe may be false.
void Reply(const SharedCall& call, const inference::ServerLiveResponse& response) {
  ReplyMessage(call, response, response.live() ? 200 : 503);
}
void Reply(const SharedCall& call, const inference::ServerReadyResponse& response) {
  ReplyMessage(call, response, response.ready() ? 200 : 503);
}
void Reply(const SharedCall& call, const inference::ModelReadyResponse& response) {
  const ordered_json answer = {{"name", call->parameter(kModel)}, {"ready", response.ready()}};
  call->Reply(JsonResponse(JsonText(answer), response.ready() ? 200 : 503));
}

// Asks the method of this request about what the path names.
template <typename Request, typename Response>
void Ask(const SharedCall& call) {
  Request request;
  for (const char* const name : {kModel, kVersion}) {
    const google::protobuf::FieldDescriptor* const field =
        Request::descriptor()->FindFieldByName(name);
    if (field == nullptr) continue;
    request.GetReflection()->SetString(&request, field, call->parameter(name));
  }
  AskMethod<Response>(call, request, [call](const Response& response) { Reply(call, response); });
}

void ModelInfer(const SharedCall& call) {
  absl::StatusOr<HttpInferRequest> request = ParseHttpInferRequest(
      std::move(call->body()), call->request().header("inference-header-content-length"),
      call->parameter(kModel), call->parameter(kVersion), &call->memory());
  if (!request.ok()) return call->Fail({request.status()});
  call->Unary(kModelInfer, request->message,  // a copy shares the bytes
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

void RefuseRepository(const SharedCall& call) {
  call->Fail(absl::UnimplementedError(
      "the repository of models is not managed over HTTP: call RepositoryIndex, "
      "RepositoryModelLoad or RepositoryModelUnload of inference.GRPCInferenceService over gRPC on "
      "the admin port (--admin_listen), or `sru_client admin`"));
}

json Answer(const std::string& description, const std::string& schema) {
  return JsonAnswer(description, SchemaReference(schema));
}

// `operation`: what the Operation Object has besides what all have in common.
Route MakeRoute(const char* method, const std::string& path, void (*handle)(const SharedCall&),
                const char* summary, json operation) {
  Route route(AnswerMemory::kTensors, method, path, ErrorForm::kOpenInference);
  route.handle = handle;
  operation["tags"] = json::array({"Open Inference Protocol"});
  operation["summary"] = summary;
  // An identifier that no other operation has: "v2_models_name_infer_get".
  operation["operationId"] =
      absl::StrCat(absl::StrReplaceAll(path.substr(1), {{"/", "_"}, {"{", ""}, {"}", ""}}), "_",
                   absl::AsciiStrToLower(method));
  operation["responses"]["default"] = Answer("An error.", "V2Error");
  json parameters = json::array();
  for (const char* const name : {kModel, kVersion}) {
    if (!absl::StrContains(path, absl::StrCat("{", name, "}"))) continue;
    parameters.push_back(OpenApiPart("v2_parameters").at(name));
  }
  for (json& own : operation["parameters"]) parameters.push_back(std::move(own));
  operation["parameters"] = std::move(parameters);
  route.openapi = [operation = std::move(operation)] { return operation; };
  return route;
}

// A GET whose answer is a message.
struct Query {
  const char* path;
  void (*handle)(const SharedCall&);
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
  json answers = {{"200", Answer(query.is_probe ? "It is so." : "The answer.", query.schema)}};
  if (query.is_probe) answers["503"] = Answer("It is not so.", query.schema);
  Route route = MakeRoute("GET", model + query.path, query.handle, query.summary,
                          {{"responses", std::move(answers)}});
  route.is_probe = query.is_probe;
  return route;
}

}  // namespace

RouteGroup OpenInferenceRoutes() {
  RouteGroup group;
  std::vector<Route>& routes = group.routes;
  for (const Query& query : kServerQueries) routes.push_back(QueryRoute("", query));
  for (const std::string model : {"/v2/models/{name}", "/v2/models/{name}/versions/{version}"}) {
    for (const Query& query : kModelQueries) routes.push_back(QueryRoute(model, query));
    Route infer = MakeRoute("POST", model + "/infer", ModelInfer, "Computes a batch of sequences.",
                            OpenApiPart("infer"));
    infer.content_types = {"application/json", "application/octet-stream"};
    infer.calls = calls::MethodId::kModelInfer;
    routes.push_back(std::move(infer));
  }
  for (const char* path : {"/v2/repository/index", "/v2/repository/models/{name}/load",
                           "/v2/repository/models/{name}/unload"}) {
    Route refused = MakeRoute(
        "POST", path, RefuseRepository, "Refused: models are managed over gRPC, on the admin port.",
        {{"deprecated", true}, {"responses", {{"501", Answer("Always.", "V2Error")}}}});
    refused.content_types.clear();  // whatever the body is
    routes.push_back(std::move(refused));
  }
  group.schemas = [] { return OpenApiPart("v2_schemas"); };
  return group;
}

}  // namespace sru::server::rest
