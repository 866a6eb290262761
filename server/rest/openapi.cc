#include "server/rest/openapi.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/rest/error_response.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

std::string NameOf(const Descriptor& message) { return std::string(message.name()); }

json ScalarSchema(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_BOOL:
      return {{"type", "boolean"}};
    case FieldDescriptor::TYPE_STRING:
      return {{"type", "string"}};
    case FieldDescriptor::TYPE_BYTES:
      return {{"type", "string"}, {"contentEncoding", "base64"}};
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_DOUBLE:
      // Not finite: as strings.
      return {{"type", {"number", "string"}},
              {"format", field.type() == FieldDescriptor::TYPE_FLOAT ? "float" : "double"}};
    case FieldDescriptor::TYPE_ENUM: {
      json names = json::array();
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        names.push_back(std::string(field.enum_type()->value(i)->name()));
      }
      return {{"type", "string"}, {"enum", names}};
    }
    case FieldDescriptor::TYPE_MESSAGE:
      return SchemaReference(NameOf(*field.message_type()));
    case FieldDescriptor::TYPE_INT32:
    case FieldDescriptor::TYPE_UINT32:
      return {{"type", "integer"}, {"format", "int32"}};
    default:
      // 64 bits: written as strings, read as numbers as well.
      return {{"type", {"string", "integer"}}, {"format", "int64"}};
  }
}

json MessageSchema(const Descriptor& message) {
  json properties = json::object();
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    json schema;
    if (field.is_map()) {
      schema = {
          {"type", "object"},
          {"additionalProperties", ScalarSchema(*field.message_type()->FindFieldByNumber(2))}};
    } else if (field.is_repeated()) {
      schema = {{"type", "array"}, {"items", ScalarSchema(field)}};
    } else {
      schema = ScalarSchema(field);
    }
    properties[std::string(field.name())] = std::move(schema);
  }
  return {
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

json HeaderParameter(const char* name, const char* description, json schema) {
  return {{"name", name},
          {"in", "header"},
          {"description", description},
          {"schema", std::move(schema)}};
}

json CommonParameters() {
  return {{"RequestId",
           HeaderParameter("X-Request-Id", "Comes back with the answer and is in the server's log.",
                           {{"type", "string"}, {"maxLength", 128}})},
          {"Traceparent", HeaderParameter("traceparent", "W3C Trace Context, for the server's log.",
                                          {{"type", "string"}})},
          {"Timeout",
           HeaderParameter("X-Request-Timeout-Ms",
                           "The deadline: work that cannot be finished in time is not begun.",
                           {{"type", "integer"}, {"minimum", 1}, {"maximum", 86400000}})}};
}

json ErrorSchema(ErrorForm form) {
  const json text = {{"type", "string"}};
  switch (form) {
    case ErrorForm::kV1:
      return {{"type", "object"},
              {"required", {"error"}},
              {"properties",
               {{"error",
                 {{"type", "object"},
                  {"required", {"code", "message"}},
                  {"properties", {{"code", text}, {"message", text}}}}}}}};
    case ErrorForm::kOpenInference:
      return {{"type", "object"},
              {"required", {"error"}},
              {"properties", {{"error", text}, {"code", text}}}};
    case ErrorForm::kDeepL:
    case ErrorForm::kLibreTranslate: {
      const char* const name = form == ErrorForm::kDeepL ? "message" : "error";
      return {{"type", "object"}, {"required", {name}}, {"properties", {{name, text}}}};
    }
    default:
      break;
  }
  return {{"type", "object"},
          {"required", {"error"}},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", {"message", "type", "param", "code"}},
              {"properties",
               {{"message", text},
                {"type", text},
                {"param", {{"type", {"string", "null"}}}},
                {"code", text}}}}}}}};
}

const char* ErrorName(ErrorForm form) {
  switch (form) {
    case ErrorForm::kV1:
      return "Error";
    case ErrorForm::kOpenInference:
      return "InferenceError";
    case ErrorForm::kDeepL:
      return "DeepLError";
    case ErrorForm::kLibreTranslate:
      return "LibreTranslateError";
    default:
      break;
  }
  return "OpenAiError";
}

// "/v2/models/{name}/infer" with POST: "post_v2_models_name_infer".
std::string OperationId(const Route& route) {
  std::string id = absl::AsciiStrToLower(route.method);
  for (const char c : route.path) {
    if (c == '/' || c == '.') {
      id += '_';
    } else if (c != '{' && c != '}') {
      id += c;
    }
  }
  return id;
}

void Complete(const Route& route, json* operation) {
  json parameters = operation->value("parameters", json::array());
  for (const absl::string_view segment : absl::StrSplit(route.path, '/')) {
    if (segment.empty() || segment.front() != '{') continue;
    const std::string name(segment.substr(1, segment.size() - 2));
    const bool described =
        std::any_of(parameters.begin(), parameters.end(), [&name](const json& parameter) {
          return parameter.value("name", "") == name && parameter.value("in", "") == "path";
        });
    if (described) continue;
    parameters.push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  for (const char* name : {"RequestId", "Traceparent", "Timeout"}) {
    parameters.push_back({{"$ref", absl::StrCat("#/components/parameters/", name)}});
  }
  (*operation)["parameters"] = std::move(parameters);
  json& responses = (*operation)["responses"];
  if (!responses.contains("default")) {
    responses["default"] = JsonAnswer("The call failed; the status follows the gRPC code.",
                                      SchemaReference(ErrorName(route.errors)));
  }
  if (!operation->contains("operationId")) (*operation)["operationId"] = OperationId(route);
}

}  // namespace

json SchemaReference(const std::string& name) {
  return {{"$ref", absl::StrCat("#/components/schemas/", name)}};
}

json JsonAnswer(const std::string& description, json schema) {
  return {{"description", description},
          {"content", {{kJsonContentType, {{"schema", std::move(schema)}}}}}};
}

json JsonBody(json schema) {
  return {{"required", true}, {"content", {{kJsonContentType, {{"schema", std::move(schema)}}}}}};
}

json MessageOperation(const std::string& summary, const Descriptor* request,
                      const Descriptor& response) {
  json operation = {
      {"summary", summary},
      {"responses", {{"200", JsonAnswer(NameOf(response), SchemaReference(NameOf(response)))}}}};
  if (request != nullptr) operation["requestBody"] = JsonBody(SchemaReference(NameOf(*request)));
  return operation;
}

void AddSchemas(const Descriptor& message, json* schemas) {
  if (schemas->contains(NameOf(message))) return;
  (*schemas)[NameOf(message)] = MessageSchema(message);
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.type() == FieldDescriptor::TYPE_MESSAGE && !field.is_map())
      AddSchemas(*field.message_type(), schemas);
  }
}

json EventsOperation(const std::string& summary, const Descriptor& request,
                     const Descriptor& response) {
  json content = {{"text/event-stream", {{"schema", SchemaReference(NameOf(response))}}}};
  return {{"summary", summary},
          {"requestBody", JsonBody(SchemaReference(NameOf(request)))},
          {"responses",
           {{"200",
             {{"description", "Events of one message each."}, {"content", std::move(content)}}}}}};
}

json ModelsOperation(const std::string& summary, const Descriptor& response, bool is_list) {
  const json text = {{"type", "string"}};
  const json whole = {{"type", "integer"}};
  json schema = MessageSchema(response);
  schema["required"] =
      is_list ? json{"object", "data", "models", "statuses"} : json{"id", "object", "model"};
  const json model = {{"id", text}, {"object", text}, {"created", whole}, {"owned_by", text}};
  if (is_list) {
    schema["properties"]["object"] = text;
    schema["properties"]["data"] = {{"type", "array"},
                                    {"items", {{"type", "object"}, {"properties", model}}}};
  } else {
    schema["properties"].update(model);
  }
  json operation = {{"summary", summary},
                    {"responses", {{"200", JsonAnswer(NameOf(response), std::move(schema))}}}};
  if (!is_list) {
    operation["parameters"] = json::array({{{"name", "version"},
                                            {"in", "query"},
                                            {"description", "0: the latest that is loaded."},
                                            {"schema", {{"type", "integer"}, {"minimum", 0}}}}});
  }
  return operation;
}

std::string OpenApiText(const std::vector<RouteGroup>& groups) {
  json paths = json::object();
  json schemas = json::object();
  std::set<ErrorForm> forms;
  for (const RouteGroup& group : groups) {
    if (group.schemas != nullptr) schemas.update(group.schemas());
    for (const Route& route : group.routes) {
      if (route.openapi == nullptr) continue;
      json operation = route.openapi();
      Complete(route, &operation);
      paths[route.path][absl::AsciiStrToLower(route.method)] = std::move(operation);
      forms.insert(route.errors);
    }
  }
  for (const ErrorForm form : forms) schemas[ErrorName(form)] = ErrorSchema(form);
  const json description = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "SRU inference server"},
        {"version", "1"},
        {"description",
         "Models of Simple Recurrent Units over HTTP. Every route is a call of the server's gRPC "
         "services."}}},
      {"paths", std::move(paths)},
      {"security", json::array({json::object(), {{"token", json::array()}}})},
      {"components",
       {{"schemas", std::move(schemas)},
        {"parameters", CommonParameters()},
        {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return description.dump(2);
}

}  // namespace sru::server::rest
