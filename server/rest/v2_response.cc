#include "server/rest/v2_response.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
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
constexpr size_t kMostElements = size_t{1} << 40;
constexpr size_t kHeadBytes = 256;  // of an output besides its values, and of the answer
// A longer answer is sent in parts, which take a thread of the server a fraction of a millisecond
// each.
constexpr size_t kMostBytesAtOnce = 256 << 10;
constexpr size_t kPartBytes = 16 << 10;

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
  absl::StrAppend(json, ",\"parameters\":", JsonText(object));
}

// The JSON of an answer, which must outlive it.
class InferJson {
 public:
  InferJson(const inference::ModelInferResponse& response, const OutputForms& forms)
      : response_(response), forms_(forms) {}

  // Before anything else. What it does not find wrong can be written.
  absl::Status Check() {
    if (response_.raw_output_contents_size() != response_.outputs_size()) {
      return absl::InternalError(absl::StrCat("expected the values of ", response_.outputs_size(),
                                              " outputs, found ",
                                              response_.raw_output_contents_size()));
    }
    most_bytes_ = kHeadBytes + response_.id().size() * 6;
    for (int i = 0; i < response_.outputs_size(); ++i) {
      absl::StatusOr<OutputValues> values = DescribeOutput(response_.outputs(i), forms_);
      if (!values.ok()) return values.status();
      const std::string& raw = response_.raw_output_contents(i);
      absl::Status status;
      if (!values->binary) status = CheckTensorData(raw, values->type, values->count, values->name);
      if (!status.ok()) return status;
      if (values->binary) binary_bytes_ += raw.size();
      most_bytes_ +=
          kHeadBytes +
          (values->binary ? raw.size() : JsonBytesBound(raw.size(), values->type, values->count));
      has_binary_ |= values->binary;
      outputs_.push_back(*std::move(values));
    }
    return absl::OkStatus();
  }

  bool has_binary() const { return has_binary_; }
  size_t binary_bytes() const { return binary_bytes_; }
  size_t most_bytes() const { return most_bytes_; }  // with those of binary values
  bool is_binary(int output) const { return outputs_[static_cast<size_t>(output)].binary; }

  // Appends what comes next, of `most` bytes or a little more. False once it is all.
  bool Append(size_t most, std::string* json) {
    const size_t begin = json->size();
    if (!std::exchange(begun_, true)) AppendHead(json);
    while (json->size() - begin < most) {
      if (in_data_) {
        const std::string& raw = response_.raw_output_contents(next_);
        const TensorType type = outputs_[static_cast<size_t>(next_)].type;
        left_ = AppendTensorPart(left_, type, left_.size() == raw.size(),
                                 most - (json->size() - begin), json);
        if (!left_.empty()) continue;
        json->append("]}");
        in_data_ = false;
        ++next_;
      } else if (next_ == response_.outputs_size()) {
        json->append("]}");
        return false;
      } else {
        AppendOutput(json);
      }
    }
    return true;
  }

 private:
  void AppendHead(std::string* json) const {
    json->append("{\"model_name\":");
    AppendJsonString(response_.model_name(), json);
    json->append(",\"model_version\":");
    AppendJsonString(response_.model_version(), json);
    if (!response_.id().empty()) {
      json->append(",\"id\":");
      AppendJsonString(response_.id(), json);
    }
    AppendParameters(response_.parameters(), std::nullopt, json);
    json->append(",\"outputs\":[");
  }

  // Up to its values.
  void AppendOutput(std::string* json) {
    const Output& output = response_.outputs(next_);
    const OutputValues& values = outputs_[static_cast<size_t>(next_)];
    const std::string& raw = response_.raw_output_contents(next_);
    json->append(next_ == 0 ? "{\"name\":" : ",{\"name\":");
    AppendJsonString(output.name(), json);
    absl::StrAppend(json, ",\"datatype\":\"", TensorTypeName(values.type), "\",\"shape\":[",
                    absl::StrJoin(output.shape(), ","), "]");
    AppendParameters(output.parameters(),
                     values.binary ? std::optional<size_t>(raw.size()) : std::nullopt, json);
    json->append(values.binary ? "}" : ",\"data\":[");
    in_data_ = !values.binary;
    left_ = raw;
    if (values.binary) ++next_;
  }

  const inference::ModelInferResponse& response_;
  const OutputForms& forms_;
  std::vector<OutputValues> outputs_;
  size_t most_bytes_ = 0;
  size_t binary_bytes_ = 0;
  bool has_binary_ = false;
  bool begun_ = false;
  // The values of this output are written next, or its beginning.
  int next_ = 0;
  bool in_data_ = false;
  absl::string_view left_;
};

// Sends an answer in parts. Each is written when the client has taken the one before it.
class AnswerInParts : public std::enable_shared_from_this<AnswerInParts> {
 public:
  AnswerInParts(std::shared_ptr<RestCall> call, inference::ModelInferResponse response,
                OutputForms forms)
      : call_(std::move(call)), response_(std::move(response)), forms_(std::move(forms)) {}

  void Reply() {
    if (absl::Status status = json_.Check(); !status.ok()) return call_->Fail({status});
    if (json_.has_binary() || json_.most_bytes() <= kMostBytesAtOnce) {
      absl::StatusOr<http::PageResponse> page =
          WriteHttpInferResponse(response_, forms_, &call_->memory());
      return page.ok() ? call_->Reply(*std::move(page)) : call_->Fail({page.status()});
    }
    stream_ = call_->ReplyInParts(JsonResponse(""));
    Send();
  }

 private:
  // A part may have left before AsyncWrite() returns: who comes second, of that and what it calls,
  // goes on.
  void Send() {
    try {
      do {
        std::string part;
        is_last_ = !json_.Append(kPartBytes, &part);
        if (is_last_) call_->LeavePlaces();
        second_ = false;
        stream_->AsyncWrite(std::move(part), [self = shared_from_this()](bool wanted) {
          if (!wanted) self->is_last_ = true;
          if (!self->second_.exchange(true)) return;
          self->is_last_ ? self->stream_.reset() : self->Send();
        });
        if (!second_.exchange(true)) return;
      } while (!is_last_);
    } catch (const std::bad_alloc&) {  // the answer ends here, and is no JSON
    }
    stream_.reset();
  }

  const std::shared_ptr<RestCall> call_;  // with what it has reserved
  const inference::ModelInferResponse response_;
  const OutputForms forms_;
  InferJson json_{response_, forms_};
  std::unique_ptr<http::PageStream> stream_;
  bool is_last_ = false;
  std::atomic<bool> second_{false};
};

}  // namespace

absl::StatusOr<http::PageResponse> WriteHttpInferResponse(
    const inference::ModelInferResponse& response, const OutputForms& forms, MemoryHold* memory) {
  InferJson json(response, forms);
  SRU_RETURN_UNLESS_OK(json.Check());
  const int64_t before = memory->bytes();
  if (!memory->Grow(static_cast<int64_t>(json.most_bytes()))) return memory->NoMemory();
  http::PageResponse page = JsonResponse("");
  std::string& body = page.body;
  json.Append(std::string::npos, &body);
  if (json.has_binary()) {
    page.content_type = kBinaryContentType;
    page.headers.emplace_back(kJsonLengthHeader, absl::StrCat(body.size()));
    body.reserve(body.size() + json.binary_bytes());
    for (int i = 0; i < response.outputs_size(); ++i) {
      if (json.is_binary(i)) body.append(response.raw_output_contents(i));
    }
  }
  memory->ShrinkTo(before + static_cast<int64_t>(body.capacity()));
  return page;
}

void ReplyHttpInferResponse(std::shared_ptr<RestCall> call, inference::ModelInferResponse response,
                            OutputForms forms) {
  std::make_shared<AnswerInParts>(std::move(call), std::move(response), std::move(forms))->Reply();
}

}  // namespace sru::server::rest
