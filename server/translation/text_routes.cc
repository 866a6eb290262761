#include "server/translation/text_routes.h"

#include <utility>

#include "server/rest/openapi.h"

namespace sru::server::translation {

using nlohmann::json;
using rest::kFormContentType;

std::vector<rest::RouteGroup> TextRoutes(const lifecycle::ModelRegistry* registry,
                                         const calls::RequestLimits& limits,
                                         calls::InFlight* in_flight) {
  const auto translator = std::make_shared<TextTranslator>(registry, limits, in_flight);
  return {DeepLRoutes(translator), LibreTranslateRoutes(translator)};
}

absl::Status ReadFields(const SharedCall& call, RequestFields* fields) {
  absl::Status status = fields->AddForm(call->request().query, &call->memory());
  if (!status.ok() || call->body().empty()) return status;
  status = fields->AddBody(call->body(), call->request().header("content-type"), &call->memory());
  std::string().swap(call->body());
  return status;
}

rest::Route TextRoute(const std::string& method, const std::string& path, rest::ErrorForm errors,
                      const std::string& summary, const std::vector<std::string>& fields,
                      const std::shared_ptr<TextTranslator>& translator, TextHandler handle) {
  rest::Route route(rest::AnswerMemory::kOwn, method, path, errors);
  route.content_types = {kFormContentType, rest::kJsonContentType};
  route.calls = calls::MethodId::kTranslate;
  route.handle = [translator, handle = std::move(handle)](const SharedCall& call) {
    handle(call, *translator);
  };
  route.openapi = [method, summary, fields] {
    const json any = json::object();
    json operation = {{"summary", summary},
                      {"responses", {{"200", rest::JsonAnswer("Its answer.", any)}}}};
    json properties = json::object();
    for (const std::string& field : fields) {
      properties[field] = any;
      if (method != "GET") continue;
      operation["parameters"].push_back({{"name", field}, {"in", "query"}, {"schema", any}});
    }
    if (method == "GET") return operation;
    const json schema = {{"type", "object"}, {"properties", std::move(properties)}};
    operation["requestBody"] = rest::JsonBody(schema);
    operation["requestBody"]["content"][kFormContentType] = {{"schema", schema}};
    return operation;
  };
  return route;
}

void ReplyJson(const SharedCall& call, const json& answer) {
  call->Reply(rest::JsonResponse(rest::JsonText(answer)));
}

}  // namespace sru::server::translation
