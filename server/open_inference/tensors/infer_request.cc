#include "server/open_inference/tensors/infer_request.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/wire_reader.h"
#include "inference/open_inference.pb.h"
#include "server/calls/bounds/wire_check.h"

namespace sru::server::open_inference {
namespace {

using Request = inference::ModelInferRequest;
using Input = Request::InferInputTensor;
using Output = Request::InferRequestedOutputTensor;
using Parameter = inference::InferParameter;

constexpr int kMapKey = 1;
constexpr int kMapValue = 2;

absl::Status TooMany(absl::string_view field, int limit) {
  return InvalidArgument(field, ": too many, expected at most ", limit);
}

// The reader's error for a broken message; ReadInferRequest() says what is broken.
absl::Status Broken() { return absl::DataLossError(""); }

// Reads a part of a request. `left` counts down the fields that the whole request may still have:
// it is read by a loop, which they hold up.
class FieldReader : public WireReader {
 public:
  FieldReader(absl::string_view bytes, int* left) : WireReader(bytes), left_fields_(*left) {}

  bool Next() { return left_fields_ > 0 && WireReader::Next() && --left_fields_ > 0; }
  absl::Status End() const {
    if (left_fields_ == 0) return TooMany("message: fields", kMaxFields);
    return ok() ? absl::OkStatus() : Broken();
  }

 private:
  int& left_fields_;
};

absl::Status ReadValue(absl::string_view bytes, int* left, InferParameter* parameter) {
  FieldReader reader(bytes, left);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireTag(Parameter::kBoolParamFieldNumber, kWireVarint):
        parameter->value = reader.Varint() != 0;
        break;
      case WireTag(Parameter::kInt64ParamFieldNumber, kWireVarint):
        parameter->value = static_cast<int64_t>(reader.Varint());
        break;
      case WireTag(Parameter::kStringParamFieldNumber, kWireBytes):
        parameter->value = reader.Bytes();
        break;
      case WireTag(Parameter::kDoubleParamFieldNumber, kWireFixed64):
        parameter->value = reader.Double();
        break;
      case WireTag(Parameter::kUint64ParamFieldNumber, kWireVarint):
        parameter->value = reader.Varint();
        break;
      default:
        reader.Skip();
    }
  }
  return reader.End();
}

absl::Status ReadParameter(absl::string_view bytes, int* left, InferParameter* parameter) {
  FieldReader reader(bytes, left);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireTag(kMapKey, kWireBytes):
        parameter->name = reader.Bytes();
        break;
      case WireTag(kMapValue, kWireBytes):
        SRU_RETURN_UNLESS_OK(ReadValue(reader.Bytes(), left, parameter));
        break;
      default:
        reader.Skip();
    }
  }
  return reader.End();
}

// The parameters of a tensor say nothing that this server does, but some must not be passed over.
absl::Status CheckTensorParameter(absl::string_view field, int index, absl::string_view bytes,
                                  int* left) {
  InferParameter parameter;
  SRU_RETURN_UNLESS_OK(ReadParameter(bytes, left, &parameter));
  if (absl::StartsWith(parameter.name, "shared_memory_")) {
    return absl::UnimplementedError(
        absl::StrCat(field, "[", index, "].parameters: shared memory is not supported, expected ",
                     "the values in the message"));
  }
  if (parameter.name == "classification") {
    return absl::UnimplementedError(
        absl::StrCat(field, "[", index, "].parameters: classification is not supported; ",
                     "request the outputs label and probabilities instead"));
  }
  return absl::OkStatus();
}

absl::Status AddDimension(int64_t size, int index, InferInput* input) {
  if (input->shape.size() == kMaxDimensions) {
    return TooMany(absl::StrCat("inputs[", index, "].shape"), kMaxDimensions);
  }
  input->shape.push_back(size);
  return absl::OkStatus();
}

absl::Status ReadShape(absl::string_view packed, int index, InferInput* input) {
  WireReader reader(packed);
  while (!reader.at_end()) {
    const auto size = static_cast<int64_t>(reader.Varint());
    if (!reader.ok()) return Broken();
    SRU_RETURN_UNLESS_OK(AddDimension(size, index, input));
  }
  return absl::OkStatus();
}

absl::Status ReadInput(absl::string_view bytes, int index, int* left, InferInput* input) {
  FieldReader reader(bytes, left);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireTag(Input::kNameFieldNumber, kWireBytes):
        input->name = reader.Bytes();
        break;
      case WireTag(Input::kDatatypeFieldNumber, kWireBytes):
        input->datatype = reader.Bytes();
        break;
      case WireTag(Input::kShapeFieldNumber, kWireBytes):
        SRU_RETURN_UNLESS_OK(ReadShape(reader.Bytes(), index, input));
        break;
      case WireTag(Input::kShapeFieldNumber, kWireVarint):
        SRU_RETURN_UNLESS_OK(AddDimension(static_cast<int64_t>(reader.Varint()), index, input));
        break;
      case WireTag(Input::kParametersFieldNumber, kWireBytes):
        SRU_RETURN_UNLESS_OK(CheckTensorParameter("inputs", index, reader.Bytes(), left));
        break;
      case WireTag(Input::kContentsFieldNumber, kWireBytes):
        if (input->has_contents) {
          return InvalidArgument("inputs[", index, "].contents: occurs twice, expected once");
        }
        input->has_contents = true;
        input->contents = reader.Bytes();
        break;
      default:
        reader.Skip();
    }
  }
  return reader.End();
}

absl::Status ReadOutput(absl::string_view bytes, int index, int* left, absl::string_view* name) {
  FieldReader reader(bytes, left);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireTag(Output::kNameFieldNumber, kWireBytes):
        *name = reader.Bytes();
        break;
      case WireTag(Output::kParametersFieldNumber, kWireBytes):
        SRU_RETURN_UNLESS_OK(CheckTensorParameter("outputs", index, reader.Bytes(), left));
        break;
      default:
        reader.Skip();
    }
  }
  return reader.End();
}

absl::Status ReadFields(absl::string_view bytes, InferRequest* request) {
  int left = kMaxFields + 1;
  FieldReader reader(bytes, &left);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireTag(Request::kModelNameFieldNumber, kWireBytes):
        request->model_name = reader.Bytes();
        break;
      case WireTag(Request::kModelVersionFieldNumber, kWireBytes):
        request->model_version = reader.Bytes();
        break;
      case WireTag(Request::kIdFieldNumber, kWireBytes):
        request->id = reader.Bytes();
        break;
      case WireTag(Request::kParametersFieldNumber, kWireBytes):
        if (request->parameters.size() == kMaxParameters) {
          return TooMany("parameters", kMaxParameters);
        }
        SRU_RETURN_UNLESS_OK(
            ReadParameter(reader.Bytes(), &left, &request->parameters.emplace_back()));
        break;
      case WireTag(Request::kInputsFieldNumber, kWireBytes): {
        const auto index = static_cast<int>(request->inputs.size());
        if (index == kMaxTensors) return TooMany("inputs", kMaxTensors);
        SRU_RETURN_UNLESS_OK(
            ReadInput(reader.Bytes(), index, &left, &request->inputs.emplace_back()));
        break;
      }
      case WireTag(Request::kOutputsFieldNumber, kWireBytes): {
        const auto index = static_cast<int>(request->outputs.size());
        if (index == kMaxTensors) return TooMany("outputs", kMaxTensors);
        SRU_RETURN_UNLESS_OK(
            ReadOutput(reader.Bytes(), index, &left, &request->outputs.emplace_back()));
        break;
      }
      case WireTag(Request::kRawInputContentsFieldNumber, kWireBytes):
        if (request->raw_inputs.size() == kMaxTensors) {
          return TooMany("raw_input_contents", kMaxTensors);
        }
        request->raw_inputs.push_back(reader.Bytes());
        break;
      default:
        reader.Skip();
    }
  }
  return reader.End();
}

absl::Status CheckString(absl::string_view field, absl::string_view text) {
  const size_t invalid = FindInvalidUtf8({text.data(), text.size()});
  if (invalid == text.size()) return absl::OkStatus();
  return InvalidArgument(field, ": invalid UTF-8 at byte ", invalid);
}

}  // namespace

bool FindInferFields(absl::string_view bytes, InferRequest* request) {
  *request = InferRequest();
  return ReadFields(bytes, request).ok();
}

absl::Status ReadInferRequest(absl::string_view bytes, InferRequest* request) {
  *request = InferRequest();
  absl::Status status = ReadFields(bytes, request);
  if (absl::IsDataLoss(status)) return calls::ExplainParseFailure(*Request::descriptor(), bytes);
  if (!status.ok()) return status;
  status.Update(CheckString("model_name", request->model_name));
  status.Update(CheckString("model_version", request->model_version));
  status.Update(CheckString("id", request->id));
  return status;
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kMost = 64;
  const bool cut = text.size() > kMost;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMost)), cut ? "..." : "", "'");
}

}  // namespace sru::server::open_inference
