#include "server/rest/v2_response.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/map.h"
#include "nlohmann/json.hpp"
#include "server/rest/error_response.h"
#include "server/rest/json_message.h"
#include "server/rest/v2_tensor.h"

namespace sru::server::rest {
namespace {

using Output = inference::ModelInferResponse::InferOutputTensor;
using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

constexpr char kBinaryContentType[] = "application/octet-stream";
constexpr char kLengthHeader[] = "Inference-Header-Content-Length";
constexpr size_t kMostElements = size_t{1} << 40;
constexpr size_t kHeadBytes = 256;  // of an output besides its values, and of the answer

struct OutputValues {
  TensorType type = TensorType::kBytes;
  size_t count = 0;
  bool binary = false;
  std::string name;  // as errors have it
};

absl::StatusOr<OutputValues> DescribeOutput(const Output& output, const OutputForms& forms) {
  OutputValues values;
  values.name = absl::StrCat("output '", output.name(), "'");
  const std::optional<TensorType> type = ParseTensorType(output.datatype());
  if (!type.has_value()) {
    return absl::InternalError(
        absl::StrCat(values.name, ": unknown datatype '", output.datatype(), "'"));
  }
  values.type = *type;
  const absl::StatusOr<size_t> count =
      CountElements({output.shape().begin(), output.shape().end()}, kMostElements, values.name);
  if (!count.ok()) return absl::InternalError(count.status().message());
  values.count = *count;
  values.binary = forms.IsBinary(output.name());
  return values;
}

nlohmann::json ParameterJson(const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return parameter.int64_param();
    case inference::InferParameter::kUint64Param:
      return parameter.uint64_param();
    case inference::InferParameter::kDoubleParam:
      return parameter.double_param();
    case inference::InferParameter::kStringParam:
      return parameter.string_param();
    default:
      return nullptr;
  }
}

// ,"parameters":{...}, or nothing if there are none.
void AppendParameters(const Parameters& parameters, std::optional<size_t> binary_bytes,
                      std::string* json) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, parameter] : parameters) object[name] = ParameterJson(parameter);
  if (binary_bytes.has_value()) object["binary_data_size"] = *binary_bytes;
  if (object.empty()) return;
  absl::StrAppend(json, ",\"parameters\":",
                  object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

absl::StatusOr<http::PageResponse> WriteHttpInferResponse(
    const inference::ModelInferResponse& response, const OutputForms& forms, MemoryHold* memory) {
  if (response.raw_output_contents_size() != response.outputs_size()) {
    return absl::InternalError(absl::StrCat("expected the values of ", response.outputs_size(),
                                            " outputs, found ",
                                            response.raw_output_contents_size()));
  }
  std::vector<OutputValues> outputs;
  size_t most_bytes = kHeadBytes + response.id().size() * 6;
  size_t binary_bytes = 0;
  for (int i = 0; i < response.outputs_size(); ++i) {
    absl::StatusOr<OutputValues> values = DescribeOutput(response.outputs(i), forms);
    if (!values.ok()) return values.status();
    const size_t raw = response.raw_output_contents(i).size();
    if (values->binary) binary_bytes += raw;
    most_bytes +=
        kHeadBytes + (values->binary ? raw : JsonBytesBound(raw, values->type, values->count));
    outputs.push_back(*std::move(values));
  }
  const int64_t before = memory->bytes();
  if (!memory->Grow(static_cast<int64_t>(most_bytes))) {
    return NoRequestMemory();
  }

  http::PageResponse page;
  page.content_type = kJsonContentType;
  std::string& body = page.body;
  body.append("{\"model_name\":");
  AppendJsonString(response.model_name(), &body);
  body.append(",\"model_version\":");
  AppendJsonString(response.model_version(), &body);
  if (!response.id().empty()) {
    body.append(",\"id\":");
    AppendJsonString(response.id(), &body);
  }
  AppendParameters(response.parameters(), std::nullopt, &body);
  body.append(",\"outputs\":[");
  for (int i = 0; i < response.outputs_size(); ++i) {
    const Output& output = response.outputs(i);
    const OutputValues& values = outputs[static_cast<size_t>(i)];
    const std::string& raw = response.raw_output_contents(i);
    body.append(i == 0 ? "{\"name\":" : ",{\"name\":");
    AppendJsonString(output.name(), &body);
    absl::StrAppend(&body, ",\"datatype\":\"", TensorTypeName(values.type), "\",\"shape\":[",
                    absl::StrJoin(output.shape(), ","), "]");
    AppendParameters(output.parameters(),
                     values.binary ? std::optional<size_t>(raw.size()) : std::nullopt, &body);
    if (!values.binary) {
      body.append(",\"data\":");
      absl::Status status = AppendTensorData(raw, values.type, values.count, values.name, &body);
      if (!status.ok()) return status;
    }
    body.push_back('}');
  }
  body.append("]}");

  bool any_binary = false;
  for (const OutputValues& values : outputs) any_binary = any_binary || values.binary;
  if (any_binary) {
    page.content_type = kBinaryContentType;
    page.headers.emplace_back(kLengthHeader, absl::StrCat(body.size()));
    body.reserve(body.size() + binary_bytes);
    for (int i = 0; i < response.outputs_size(); ++i) {
      if (outputs[static_cast<size_t>(i)].binary) body.append(response.raw_output_contents(i));
    }
  }
  memory->ShrinkTo(before + static_cast<int64_t>(body.capacity()));
  return page;
}

}  // namespace sru::server::rest
