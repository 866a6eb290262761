#include <algorithm>
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
#include "server/rest/v2_infer.h"
#include "server/rest/v2_tensor.h"

namespace sru::server::rest {
namespace {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

constexpr size_t kMostElements = size_t{1} << 40;
// A longer answer is sent in parts, which take a thread of the server a fraction of a millisecond
// each.
constexpr size_t kMostBytesAtOnce = 256 << 10;
constexpr size_t kPartBytes = 16 << 10;

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
  // Before anything else. An answer without an error here can be written.
  absl::Status Read(const inference::ModelInferResponse& response, const OutputForms& forms) {
    const int num_outputs = response.outputs_size();
    if (response.raw_output_contents_size() != num_outputs) {
      return absl::InternalError(absl::StrCat("expected the values of ", num_outputs,
                                              " outputs, found ",
                                              response.raw_output_contents_size()));
    }
    std::string text;
    AppendJsonText("{\"model_name\":", response.model_name(), &text);
    AppendJsonText(",\"model_version\":", response.model_version(), &text);
    if (!response.id().empty()) AppendJsonText(",\"id\":", response.id(), &text);
    AppendParameters(response.parameters(), std::nullopt, &text);
    text += ",\"outputs\":[";
    for (int i = 0; i < num_outputs; ++i) {
      if (i > 0) text += ',';
      const bool is_binary = forms.IsBinary(response.outputs(i).name());
      SRU_RETURN_UNLESS_OK(
          AddOutput(response.outputs(i), response.raw_output_contents(i), is_binary, &text));
    }
    AddPiece(text + "]}", "", nullptr);
    return absl::OkStatus();
  }

  bool has_binary() const { return has_binary_; }
  size_t binary_bytes() const { return binary_bytes_; }
  size_t most_bytes() const { return most_bytes_ + binary_bytes_; }

  // Appends what comes next, of `most` bytes or a little more. False once it is all.
  bool Append(size_t most, std::string* json) {
    const size_t begin = json->size();
    while (next_ < pieces_.size() && json->size() - begin < most) {
      Piece& piece = pieces_[next_];
      json->append(std::exchange(piece.text, ""));
      if (!piece.values.empty()) {
        const size_t left = most - std::min(most, json->size() - begin);
        piece.values = AppendTensorPart(piece.values, *piece.type, left, json);
      }
      if (piece.values.empty()) ++next_;
    }
    return next_ < pieces_.size();
  }

 private:
  // What is still to be written: text, and then the values of an output.
  struct Piece {
    std::string text;
    absl::string_view values;  // may be empty
    const TensorType* type;
  };

  void AddPiece(std::string text, absl::string_view values, const TensorType* type) {
    most_bytes_ += text.size();
    pieces_.push_back({std::move(text), values, type});
  }

  absl::Status AddOutput(const inference::ModelInferResponse::InferOutputTensor& output,
                         absl::string_view raw, bool is_binary, std::string* text) {
    const std::string name = absl::StrCat("output '", output.name(), "'");  // as errors have it
    const TensorType* const type = FindTensorType(output.datatype());
    if (type == nullptr) {
      return absl::InternalError(
          absl::StrCat(name, ": unknown datatype '", output.datatype(), "'"));
    }
    const absl::StatusOr<size_t> count =
        CountElements({output.shape().begin(), output.shape().end()}, kMostElements, name);
    if (!count.ok()) return absl::InternalError(count.status().message());
    if (!is_binary) SRU_RETURN_UNLESS_OK(CheckTensorData(raw, *type, *count, name));
    AppendJsonText("{\"name\":", output.name(), text);
    absl::StrAppend(text, ",\"datatype\":\"", output.datatype(), "\",\"shape\":[",
                    absl::StrJoin(output.shape(), ","), "]");
    AppendParameters(output.parameters(), is_binary ? std::make_optional(raw.size()) : std::nullopt,
                     text);
    if (is_binary) {
      has_binary_ = true;
      binary_bytes_ += raw.size();
      *text += '}';
    } else {
      most_bytes_ += JsonBytesBound(raw.size(), *type, *count);
      AddPiece(std::exchange(*text, "]}") + ",\"data\":[", raw, type);
    }
    return absl::OkStatus();
  }

  std::vector<Piece> pieces_;
  size_t next_ = 0;
  size_t most_bytes_ = 0;  // of the JSON
  size_t binary_bytes_ = 0;
  bool has_binary_ = false;
};

// Sends an answer in parts. Each is written when the client has taken the one before it.
class AnswerInParts : public std::enable_shared_from_this<AnswerInParts> {
 public:
  AnswerInParts(SharedCall call, inference::ModelInferResponse response)
      : call_(std::move(call)), response_(std::move(response)) {}

  void Reply(const OutputForms& forms) {
    if (absl::Status status = json_.Read(response_, forms); !status.ok()) {
      return call_->Fail({status});
    }
    if (json_.has_binary() || json_.most_bytes() <= kMostBytesAtOnce) {
      absl::StatusOr<http::PageResponse> page =
          WriteHttpInferResponse(response_, forms, &call_->memory());
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

  const SharedCall call_;  // with what it has reserved
  const inference::ModelInferResponse response_;
  InferJson json_;
  std::unique_ptr<http::PageStream> stream_;
  bool is_last_ = false;
  std::atomic<bool> second_{false};
};

}  // namespace

absl::StatusOr<http::PageResponse> WriteHttpInferResponse(
    const inference::ModelInferResponse& response, const OutputForms& forms, MemoryHold* memory) {
  InferJson json;
  SRU_RETURN_UNLESS_OK(json.Read(response, forms));
  const int64_t before = memory->bytes();
  if (!memory->Grow(static_cast<int64_t>(json.most_bytes()))) return memory->NoMemory();
  http::PageResponse page = JsonResponse("");
  std::string& body = page.body;
  json.Append(std::string::npos, &body);
  if (json.has_binary()) {
    page.content_type = "application/octet-stream";
    page.headers.emplace_back(kJsonLengthHeader, absl::StrCat(body.size()));
    body.reserve(body.size() + json.binary_bytes());
    for (int i = 0; i < response.outputs_size(); ++i) {
      if (forms.IsBinary(response.outputs(i).name())) body += response.raw_output_contents(i);
    }
  }
  memory->ShrinkTo(before + static_cast<int64_t>(body.capacity()));
  return page;
}

void ReplyHttpInferResponse(const SharedCall& call, inference::ModelInferResponse response,
                            const OutputForms& forms) {
  std::make_shared<AnswerInParts>(call, std::move(response))->Reply(forms);
}

}  // namespace sru::server::rest
