#include "server/rest/v2_openapi.h"

#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/rest/openapi.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

json Answer(const std::string& description, const std::string& schema) {
  return JsonAnswer(description, SchemaReference(schema));
}

json TextSchema(const std::string& description) {
  return {{"type", "string"}, {"description", description}};
}

json ArrayOf(json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

json Object(json properties, json required = json::array()) {
  json object = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) object["required"] = std::move(required);
  return object;
}

// Those that stand in the path as {x}.
json PathParameters(const std::string& path) {
  json parameters = json::array();
  for (size_t at = path.find('{'); at != std::string::npos; at = path.find('{', at + 1)) {
    const std::string name = path.substr(at + 1, path.find('}', at) - at - 1);
    parameters.push_back(
        {{"name", name},
         {"in", "path"},
         {"required", true},
         {"description", name == "version" ? "A positive number in decimal." : "Of a model."},
         {"schema", {{"type", "string"}}}});
  }
  return parameters;
}

// An identifier that no other operation has: "v2_models_name_infer_get".
std::string OperationId(const std::string& path, const std::string& method) {
  std::string id;
  for (const char c : path) {
    if (absl::ascii_isalnum(c)) {
      id.push_back(c);
    } else if (c == '/' && !id.empty()) {
      id.push_back('_');
    }
  }
  return absl::StrCat(id, "_", method);
}

json Operation(const std::string& path, const std::string& method, const std::string& summary) {
  json operation = {{"tags", {"Open Inference Protocol"}},
                    {"summary", summary},
                    {"operationId", OperationId(path, method)}};
  json parameters = PathParameters(path);
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  operation["responses"]["default"] = Answer("An error.", "V2Error");
  return operation;
}

json TensorSchema(bool is_input) {
  json properties = {
      {"name", {{"type", "string"}}},
      {"shape", ArrayOf({{"type", "integer"}, {"format", "int64"}, {"minimum", 0}})},
      {"datatype", {{"type", "string"}, {"examples", {"BYTES", "INT64", "INT32", "FP32"}}}},
      {"parameters", SchemaReference("V2Parameters")},
      {"data",
       {{"type", "array"},
        {"items", json::object()},
        {"description",
         is_input ? "In row-major order, flat or nested as the shape. Absent if the parameter "
                    "binary_data_size says how many bytes of the body's end are its values."
                  : "In row-major order, flat. NaN and infinite values are the strings \"NaN\", "
                    "\"Infinity\" and \"-Infinity\". Absent with the parameter "
                    "binary_data_size."}}}};
  return Object(std::move(properties), {"name", "shape", "datatype"});
}

}  // namespace

json V2QueryOperation(const std::string& path, const std::string& summary,
                      const std::string& schema) {
  json operation = Operation(path, "get", summary);
  operation["responses"]["200"] = Answer("The answer.", schema);
  return operation;
}

json V2ProbeOperation(const std::string& path, const std::string& summary,
                      const std::string& schema) {
  json operation = V2QueryOperation(path, summary, schema);
  operation["responses"]["200"]["description"] = "It is so.";
  operation["responses"]["503"] = Answer("It is not so.", schema);
  return operation;
}

json V2InferOperation(const std::string& path) {
  json operation = Operation(path, "post", "Computes a batch of sequences.");
  const json length = {{"type", "integer"}, {"minimum", 1}};
  operation["parameters"].push_back(
      {{"name", "Inference-Header-Content-Length"},
       {"in", "header"},
       {"required", false},
       {"description", "Bytes of the JSON, if binary data follow it."},
       {"schema", length}});
  const json binary = {
      {"schema",
       {{"type", "string"},
        {"format", "binary"},
        {"description",
         "The JSON, then the values of those tensors that have binary_data_size."}}}};
  json& request = operation["requestBody"] = JsonBody(SchemaReference("V2InferRequest"));
  request["content"]["application/octet-stream"] = binary;
  json answer = Answer("The outputs.", "V2InferResponse");
  answer["content"]["application/octet-stream"] = binary;
  answer["headers"]["Inference-Header-Content-Length"] = {
      {"description", "Bytes of the JSON, if binary data follow it."}, {"schema", length}};
  operation["responses"]["200"] = std::move(answer);
  return operation;
}

json V2RefusedOperation(const std::string& path, const std::string& summary) {
  json operation = Operation(path, "post", summary);
  operation["deprecated"] = true;
  operation["responses"]["501"] = Answer("Always.", "V2Error");
  return operation;
}

json V2Schemas() {
  const json text = {{"type", "string"}};
  const json flag = {{"type", "boolean"}};
  const json any_object = {{"type", "object"}};
  json schemas;
  schemas["V2Error"] =
      Object({{"error", TextSchema("What is wrong: the tensor, what was expected and "
                                   "what was found.")},
              {"code", TextSchema("Of gRPC, such as INVALID_ARGUMENT.")}},
             {"error"});
  schemas["V2Server"] = Object({{"name", text}, {"version", text}, {"extensions", ArrayOf(text)}},
                               {"name", "version"});
  schemas["V2Live"] = Object({{"live", flag}}, {"live"});
  schemas["V2Ready"] = Object({{"ready", flag}}, {"ready"});
  schemas["V2ModelReady"] = Object({{"name", text}, {"ready", flag}}, {"name", "ready"});
  const json tensor = Object({{"name", text},
                              {"datatype", text},
                              {"shape", ArrayOf({{"type", "integer"}, {"format", "int64"}})}},
                             {"name", "datatype", "shape"});
  schemas["V2Model"] = Object({{"name", text},
                               {"versions", ArrayOf(text)},
                               {"platform", text},
                               {"inputs", ArrayOf(tensor)},
                               {"outputs", ArrayOf(tensor)}},
                              {"name", "platform", "inputs", "outputs"});
  schemas["V2ModelConfig"] = {
      {"type", "object"}, {"description", "inference.ModelConfig with the names of its fields."}};
  schemas["V2Statistics"] = Object({{"model_stats", ArrayOf(any_object)}}, {"model_stats"});
  schemas["V2Parameters"] = {{"type", "object"},
                             {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}};
  schemas["V2InputTensor"] = TensorSchema(true);
  schemas["V2OutputTensor"] = TensorSchema(false);
  const json wanted =
      Object({{"name", text}, {"parameters", SchemaReference("V2Parameters")}}, {"name"});
  schemas["V2InferRequest"] = Object({{"id", TextSchema("Comes back with the answer.")},
                                      {"parameters", SchemaReference("V2Parameters")},
                                      {"inputs", ArrayOf(SchemaReference("V2InputTensor"))},
                                      {"outputs", ArrayOf(wanted)}},
                                     {"inputs"});
  schemas["V2InferResponse"] = Object({{"model_name", text},
                                       {"model_version", text},
                                       {"id", text},
                                       {"parameters", SchemaReference("V2Parameters")},
                                       {"outputs", ArrayOf(SchemaReference("V2OutputTensor"))}},
                                      {"model_name", "outputs"});
  return schemas;
}

}  // namespace sru::server::rest
