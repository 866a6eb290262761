#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/rest/api_routes.h"
#include "server/rest/json_message.h"
#include "server/rest/method_call.h"
#include "server/rest/openapi.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

// A call with one answer, or one that is answered by events.
Route CallRoute(const calls::Method& method) {
  Route route(AnswerMemory::kJson, "POST", method.http_path);
  route.calls = method.id;
  route.handle = [&method](const SharedCall& call) { CallMethod(call, method, CallForm()); };
  route.openapi = [&method] {
    const std::string response(method.response->GetDescriptor()->name());
    json schema = SchemaReference(response);
    json answer = JsonAnswer(response, schema);
    if (method.kind == calls::MethodKind::kServerStream) {
      answer = {{"description", "Events of one message each."},
                {"content", {{"text/event-stream", {{"schema", std::move(schema)}}}}}};
    }
    const std::string request(method.request->GetDescriptor()->name());
    return json{{"summary", method.summary},
                {"requestBody", JsonBody(SchemaReference(request))},
                {"responses", {{"200", std::move(answer)}}}};
  };
  return route;
}

// A model as OpenAI describes one, without the braces.
std::string OpenAiModel(const std::string& name, int64_t created) {
  std::string text;
  AppendJsonText("\"id\":", name, &text);
  absl::StrAppend(&text, ",\"object\":\"model\",\"created\":", created, ",\"owned_by\":\"sru\"");
  return text;
}

// Answers with the JSON of the message, which has `members` in front of its own.
void ReplyJoined(const SharedCall& call, const std::string& members,
                 const google::protobuf::Message& message) {
  std::string text;
  absl::Status status = WriteJsonMessage(message, JsonFields::kAll, &call->memory(), &text);
  if (!status.ok()) return call->Fail(status);
  call->Reply(JsonResponse(absl::StrCat("{", members, text.size() > 2 ? "," : "", text.substr(1))));
}

Route ModelsRoute(int64_t created) {
  Route route(AnswerMemory::kJson, "GET", "/v1/models");
  route.handle = [created](const SharedCall& call) {
    AskMethod<v1::ListModelsResponse>(
        call, v1::ListModelsRequest(), [call, created](const v1::ListModelsResponse& response) {
          std::string members = R"("object":"list","data":[)";
          const std::string* last = nullptr;  // the versions of a model stand together
          for (const v1::ModelInfo& model : response.models()) {
            if (last != nullptr && *last == model.name()) continue;
            absl::StrAppend(&members, last == nullptr ? "{" : ",{",
                            OpenAiModel(model.name(), created), "}");
            last = &model.name();
          }
          members += ']';
          ReplyJoined(call, members, response);
        });
  };
  route.openapi = [] { return ModelsOperation("models", *v1::ListModelsResponse::descriptor()); };
  return route;
}

// The only parameter of the query is the version.
absl::Status ParseVersion(const std::string& query, int64_t* version) {
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parameter =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (parameter.first != "version") {
      return InvalidArgument("query: expected version=NUMBER, found '", part.substr(0, 64), "'");
    }
    if (!absl::SimpleAtoi(parameter.second, version) || *version < 0) {
      return InvalidArgument("query: version: expected a whole number, not negative, found '",
                             parameter.second.substr(0, 32), "'");
    }
  }
  return absl::OkStatus();
}

Route ModelRoute(int64_t created) {
  Route route(AnswerMemory::kJson, "GET", "/v1/models/{name}");
  route.handle = [created](const SharedCall& call) {
    v1::GetModelRequest request;
    request.set_model(call->parameter("name"));
    int64_t version = 0;
    if (absl::Status status = ParseVersion(call->request().query, &version); !status.ok())
      return call->Fail(status);
    request.set_version(version);
    AskMethod<v1::GetModelResponse>(
        call, request, [call, created](const v1::GetModelResponse& response) {
          ReplyJoined(call, OpenAiModel(response.model().name(), created), response);
        });
  };
  route.openapi = [] { return ModelsOperation("model", *v1::GetModelResponse::descriptor()); };
  return route;
}

}  // namespace

RouteGroup V1Routes(const calls::MethodTable& methods) {
  const int64_t created = absl::ToUnixSeconds(absl::Now());
  RouteGroup group;
  for (const calls::Method& method : methods.rows()) {
    if (method.http_path.empty()) continue;
    group.routes.push_back(CallRoute(method));
  }
  group.schemas = [&methods] {
    json schemas = json::object();
    for (const calls::Method& method : methods.rows()) {
      if (method.http_path.empty()) continue;
      AddSchemas(*method.request->GetDescriptor(), &schemas);
      AddSchemas(*method.response->GetDescriptor(), &schemas);
    }
    AddSchemas(*v1::ListModelsResponse::descriptor(), &schemas);
    AddSchemas(*v1::GetModelResponse::descriptor(), &schemas);
    return schemas;
  };
  group.routes.push_back(ModelsRoute(created));
  group.routes.push_back(ModelRoute(created));
  return group;
}

}  // namespace sru::server::rest
