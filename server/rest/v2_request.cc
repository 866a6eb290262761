#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/valid_utf8.h"
#include "base/wire_reader.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/map.h"
#include "inference/open_inference.pb.h"
#include "server/calls/message_cord.h"
#include "server/rest/json_reader.h"
#include "server/rest/v2_infer.h"
#include "server/rest/v2_tensor.h"

namespace sru::server::rest {
namespace {

using google::protobuf::io::CodedOutputStream;
using Kind = JsonReader::Kind;
using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

constexpr char kBinarySize[] = "binary_data_size";
constexpr char kBinaryOutput[] = "binary_data";
constexpr char kBinaryOutputs[] = "binary_data_output";
constexpr size_t kTextShown = 64;
// Bytes of the body up to this length are copied: a slice of their own would cost more.
constexpr size_t kCopiedBytes = 4096;
constexpr uint32_t kRawInputTag =
    WireTag(inference::ModelInferRequest::kRawInputContentsFieldNumber, kWireBytes);

// The values of an input.
struct InputBytes {
  std::string data;                   // from JSON
  std::optional<size_t> binary_size;  // or of what follows the JSON
};

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kTextShown;
  return absl::StrCat("'", CutUtf8(text, kTextShown), cut ? "..." : "", "'");
}

absl::Status Wrong(absl::string_view field, absl::string_view expected, absl::string_view found) {
  return InvalidArgument(field, ": expected ", expected, ", found ", found);
}

std::string Describe(const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param() ? "true" : "false";
    case inference::InferParameter::kStringParam:
      return "a string";
    case inference::InferParameter::kDoubleParam:
      return "a fraction";
    case inference::InferParameter::kInt64Param:
      return absl::StrCat(parameter.int64_param());
    default:
      return "a larger number";
  }
}

class RequestReader {
 public:
  RequestReader(absl::string_view json, MemoryHold* memory)
      : json_(json), reader_(json), memory_(*memory) {}

  absl::Status Read(inference::ModelInferRequest* request, std::vector<InputBytes>* inputs,
                    OutputForms* forms) {
    SRU_RETURN_UNLESS_OK(Expect("the request", Kind::kObject, "a JSON object"));
    SRU_ASSIGN_OR_RETURN(
        const Keys present,
        ReadObject("the request",
                   {{"id", [&] { return ReadText("id", request->mutable_id()); }},
                    {"parameters",
                     [&] { return ReadParameters("parameters", request->mutable_parameters()); }},
                    {"inputs",
                     [&] {
                       return ReadArray("inputs", [&](const std::string& where) {
                         return ReadInput(where, request->add_inputs(), &inputs->emplace_back());
                       });
                     }},
                    {"outputs", [&] {
                       return ReadArray("outputs", [&](const std::string& where) {
                         return ReadOutput(where, request->add_outputs(), forms);
                       });
                     }}}));
    if (!reader_.ExpectEnd()) return reader_.status();
    if (present.count("inputs") == 0) return Missing("the request", "inputs");
    return TakeBool("parameters", kBinaryOutputs, request->mutable_parameters(),
                    &forms->binary_by_default);
  }

 private:
  // A key of an object, and what reads its value.
  struct Member {
    absl::string_view key;
    std::function<absl::Status()> read;
  };
  using Keys = std::set<absl::string_view>;  // that have a value

  static absl::Status Missing(absl::string_view where, absl::string_view key) {
    return InvalidArgument(where, ": expected the key '", key, "', found none");
  }

  absl::Status Expect(absl::string_view field, Kind kind, absl::string_view expected) {
    if (reader_.Next() == kind) return absl::OkStatus();
    // What is no JSON at all is told as such.
    if (reader_.Next() == Kind::kOther && !reader_.Skip()) return reader_.status();
    return Wrong(field, expected, reader_.Found());
  }
  absl::Status Enter(absl::string_view field, Kind kind) {
    const bool is_object = kind == Kind::kObject;
    SRU_RETURN_UNLESS_OK(Expect(field, kind, is_object ? "an object" : "an array"));
    is_object ? reader_.EnterObject() : reader_.EnterArray();
    return reader_.status();
  }

  // Returns the keys that have a value.
  absl::StatusOr<Keys> ReadObject(absl::string_view where, const std::vector<Member>& members) {
    SRU_RETURN_UNLESS_OK(Enter(where, Kind::kObject));
    Keys seen;
    Keys present;
    absl::string_view key;
    while (reader_.NextKey(&key)) {
      const auto member = std::find_if(members.begin(), members.end(),
                                       [key](const Member& one) { return one.key == key; });
      if (member == members.end()) {
        const auto append = [](std::string* out, const Member& one) {
          absl::StrAppend(out, one.key);
        };
        return InvalidArgument(where, ": unknown key ", Quoted(key), "; expected ",
                               absl::StrJoin(members, ", ", append));
      }
      if (!seen.insert(member->key).second) return TwiceError(where, key);
      if (reader_.Next() == Kind::kNull) {
        reader_.ReadNull();
        continue;
      }
      present.insert(member->key);
      SRU_RETURN_UNLESS_OK(member->read());
    }
    if (!reader_.ok()) return reader_.status();
    return present;
  }

  static absl::Status TwiceError(absl::string_view where, absl::string_view key) {
    return InvalidArgument(where, ": the key ", Quoted(key), " comes twice");
  }

  // Calls read("field[0]") and so on for each element.
  absl::Status ReadArray(absl::string_view field,
                         const std::function<absl::Status(const std::string& where)>& read) {
    SRU_RETURN_UNLESS_OK(Enter(field, Kind::kArray));
    for (size_t i = 0; reader_.NextElement(); ++i) {
      if (i == HttpInferRequest::kMaxTensors) {
        return InvalidArgument(field, ": expected at most ", HttpInferRequest::kMaxTensors,
                               ", found more");
      }
      SRU_RETURN_UNLESS_OK(read(absl::StrCat(field, "[", i, "]")));
    }
    return reader_.status();
  }

  absl::Status ReadText(absl::string_view field, std::string* text) {
    SRU_RETURN_UNLESS_OK(Expect(field, Kind::kString, "a string"));
    return Store(text);
  }

  // Reads a string that becomes a part of the message. It is there twice for a moment: as a field
  // and as the field's bytes.
  absl::Status Store(std::string* text) {
    absl::string_view value;
    if (!reader_.ReadString(&scratch_, &value)) return reader_.status();
    if (!memory_.Grow(2 * static_cast<int64_t>(value.size()))) return memory_.NoMemory();
    text->assign(value.data(), value.size());
    return absl::OkStatus();
  }

  absl::Status ReadShape(const std::string& field, std::vector<int64_t>* shape) {
    SRU_RETURN_UNLESS_OK(Enter(field, Kind::kArray));
    while (reader_.NextElement()) {
      if (shape->size() == HttpInferRequest::kMaxDimensions) {
        return Wrong(field,
                     absl::StrCat("at most ", HttpInferRequest::kMaxDimensions, " dimensions"),
                     "more");
      }
      const std::string where = absl::StrCat(field, "[", shape->size(), "]");
      constexpr char kSize[] = "a whole number";
      SRU_RETURN_UNLESS_OK(Expect(where, Kind::kNumber, kSize));
      absl::string_view digits;
      if (!reader_.ReadNumber(&digits)) return reader_.status();
      const std::optional<int64_t> size = ParseJsonNumber(digits).as_signed;
      if (!size.has_value()) return Wrong(where, kSize, Quoted(digits));
      shape->push_back(*size);
    }
    return reader_.status();
  }

  absl::Status ReadParameters(const std::string& field, Parameters* parameters) {
    SRU_RETURN_UNLESS_OK(Enter(field, Kind::kObject));
    absl::string_view key;
    while (reader_.NextKey(&key)) {
      if (++parameters_ > HttpInferRequest::kMaxParameters) {
        return InvalidArgument(field, ": expected at most ", HttpInferRequest::kMaxParameters,
                               " parameters in a request, found more");
      }
      const std::string name(key);
      if (parameters->count(name) > 0) return TwiceError(field, key);
      const std::string where = absl::StrCat(field, ".", Quoted(name));
      SRU_RETURN_UNLESS_OK(ReadParameter(where, &(*parameters)[name]));
    }
    return reader_.status();
  }

  absl::Status ReadParameter(const std::string& where, inference::InferParameter* parameter) {
    switch (reader_.Next()) {
      case Kind::kString:
        return Store(parameter->mutable_string_param());
      case Kind::kBool: {
        bool value = false;
        if (!reader_.ReadBool(&value)) return reader_.status();
        parameter->set_bool_param(value);
        return absl::OkStatus();
      }
      case Kind::kNumber:
        return ReadNumber(where, parameter);
      case Kind::kOther:
        reader_.Skip();
        return reader_.status();
      default:
        return Wrong(where, "a string, a number, true or false", reader_.Found());
    }
  }

  absl::Status ReadNumber(const std::string& where, inference::InferParameter* parameter) {
    absl::string_view digits;
    if (!reader_.ReadNumber(&digits)) return reader_.status();
    const JsonNumber number = ParseJsonNumber(digits);
    if (number.as_signed.has_value()) {
      parameter->set_int64_param(*number.as_signed);
    } else if (number.as_unsigned.has_value()) {
      parameter->set_uint64_param(*number.as_unsigned);
    } else if (digits.find_first_of(".eE") == absl::string_view::npos) {
      return Wrong(where, "a whole number of 64 bits", Quoted(digits));
    } else if (!std::isfinite(number.real)) {
      return Wrong(where, "a finite number", Quoted(digits));
    } else {
      parameter->set_double_param(number.real);
    }
    return absl::OkStatus();
  }

  // Takes a parameter that this side acts on out of the others. `*value` stays as it is if there is
  // none.
  static absl::Status TakeBool(absl::string_view where, const std::string& name,
                               Parameters* parameters, bool* value) {
    const auto found = parameters->find(name);
    if (found == parameters->end()) return absl::OkStatus();
    if (found->second.parameter_choice_case() != inference::InferParameter::kBoolParam) {
      return Wrong(absl::StrCat(where, ".'", name, "'"), "true or false", Describe(found->second));
    }
    *value = found->second.bool_param();
    parameters->erase(found);
    return absl::OkStatus();
  }

  absl::Status ReadInput(const std::string& where,
                         inference::ModelInferRequest::InferInputTensor* input, InputBytes* bytes) {
    std::vector<int64_t> shape;
    absl::string_view data;  // the array, read when the type and the shape are known
    size_t values = 0;
    size_t string_bytes = 0;
    SRU_ASSIGN_OR_RETURN(
        const Keys present,
        ReadObject(
            where,
            {{"name", [&] { return ReadText(where + ".name", input->mutable_name()); }},
             {"shape", [&] { return ReadShape(where + ".shape", &shape); }},
             {"datatype", [&] { return ReadText(where + ".datatype", input->mutable_datatype()); }},
             {"parameters",
              [&] { return ReadParameters(where + ".parameters", input->mutable_parameters()); }},
             {"data", [&] {
                SRU_RETURN_UNLESS_OK(Expect(where + ".data", Kind::kArray, "an array"));
                const size_t begin = reader_.offset();
                reader_.Skip(&values, &string_bytes);
                data = json_.substr(begin, reader_.offset() - begin);
                return reader_.status();
              }}}));
    if (present.count("name") == 0) return Missing(where, "name");
    const std::string tensor = absl::StrCat("input ", Quoted(input->name()));
    if (present.count("shape") == 0) return Missing(tensor, "shape");
    if (input->datatype().empty()) return Missing(tensor, "datatype");
    for (const int64_t size : shape) input->add_shape(size);

    const auto binary = input->parameters().find(kBinarySize);
    if (binary != input->parameters().end()) {
      const inference::InferParameter& size = binary->second;
      if (size.parameter_choice_case() != inference::InferParameter::kInt64Param ||
          size.int64_param() < 0) {
        return Wrong(absl::StrCat(tensor, ": ", kBinarySize), "a number of bytes", Describe(size));
      }
      if (!data.empty()) {
        return InvalidArgument(tensor, ": expected either data or the parameter ", kBinarySize,
                               ", found both");
      }
      bytes->binary_size = static_cast<size_t>(size.int64_param());
      input->mutable_parameters()->erase(kBinarySize);
      return absl::OkStatus();
    }
    if (data.empty()) {
      // Shared memory takes the place of the data. The service says that it has none.
      if (!input->parameters().empty()) return absl::OkStatus();
      return Missing(tensor, "data");
    }
    const TensorType* const type = FindTensorType(input->datatype());
    if (type == nullptr) {
      return Wrong(tensor + ": datatype", absl::StrCat("one of ", TensorTypeNames()),
                   Quoted(input->datatype()));
    }
    const size_t most = TensorBytesBound(*type, values, string_bytes);
    if (!memory_.Grow(static_cast<int64_t>(most))) return memory_.NoMemory();
    bytes->data.reserve(most);
    return ReadTensorData(data, *type, shape, tensor, &bytes->data);
  }

  absl::Status ReadOutput(const std::string& where,
                          inference::ModelInferRequest::InferRequestedOutputTensor* output,
                          OutputForms* forms) {
    SRU_ASSIGN_OR_RETURN(
        const Keys present,
        ReadObject(where,
                   {{"name", [&] { return ReadText(where + ".name", output->mutable_name()); }},
                    {"parameters", [&] {
                       return ReadParameters(where + ".parameters", output->mutable_parameters());
                     }}}));
    if (present.count("name") == 0) return Missing(where, "name");
    if (!output->parameters().contains(kBinaryOutput)) return absl::OkStatus();
    return TakeBool(where + ".parameters", kBinaryOutput, output->mutable_parameters(),
                    &forms->binary[output->name()]);
  }

  const absl::string_view json_;
  JsonReader reader_;
  MemoryHold& memory_;
  std::string scratch_;
  size_t parameters_ = 0;
};

absl::StatusOr<size_t> JsonLength(const std::string& header, size_t body_bytes) {
  if (header.empty()) return body_bytes;
  size_t length = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), length);
  if (error != std::errc() || end != header.data() + header.size() || length == 0 ||
      length > body_bytes) {
    return Wrong(kJsonLengthHeader,
                 absl::StrCat("a whole number from 1 to ", body_bytes, ", the bytes of the body"),
                 Quoted(header));
  }
  return length;
}

}  // namespace

absl::StatusOr<HttpInferRequest> ParseHttpInferRequest(std::string body,
                                                       const std::string& json_length,
                                                       const std::string& model,
                                                       const std::string& version,
                                                       MemoryHold* memory) {
  SRU_ASSIGN_OR_RETURN(const size_t length, JsonLength(json_length, body.size()));
  const auto text = std::make_shared<const std::string>(std::move(body));
  const absl::string_view json = absl::string_view(*text).substr(0, length);
  if (!IsValidUtf8({json.data(), json.size()})) {
    return InvalidArgument("JSON, byte ", FindInvalidUtf8({json.data(), json.size()}),
                           ": expected UTF-8");
  }
  const int64_t before = memory->bytes();

  HttpInferRequest result;
  inference::ModelInferRequest request;
  request.set_model_name(model);
  request.set_model_version(version);
  std::vector<InputBytes> inputs;
  SRU_RETURN_UNLESS_OK(RequestReader(json, memory).Read(&request, &inputs, &result.outputs));

  if (!calls::SerializeToCord(request, &result.message)) {
    return absl::InvalidArgumentError("the request is too large for a message");
  }
  absl::string_view binary = absl::string_view(*text).substr(length);
  bool uses_body = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    InputBytes& input = inputs[i];
    absl::string_view bytes = input.data;
    if (input.binary_size.has_value()) {
      if (*input.binary_size > binary.size()) {
        return Wrong(absl::StrCat("input ", Quoted(request.inputs(static_cast<int>(i)).name()),
                                  ": ", kBinarySize),
                     absl::StrCat("at most the ", binary.size(), " bytes that the body has left"),
                     absl::StrCat(*input.binary_size));
      }
      bytes = binary.substr(0, *input.binary_size);
      binary.remove_prefix(*input.binary_size);
    }
    uint8_t head[16];
    uint8_t* end = CodedOutputStream::WriteTagToArray(kRawInputTag, head);
    end = CodedOutputStream::WriteVarint64ToArray(bytes.size(), end);
    result.message.Append(absl::string_view(reinterpret_cast<const char*>(head), end - head));
    if (!input.binary_size.has_value()) {
      result.message.Append(std::move(input.data));
    } else if (bytes.size() <= kCopiedBytes) {
      result.message.Append(bytes);
    } else {
      uses_body = true;
      result.message.Append(absl::MakeCordFromExternal(bytes, [text] {}));
    }
  }
  if (!binary.empty()) {
    return InvalidArgument(
        "the body: expected no bytes after the JSON and the binary data of the inputs, found ",
        binary.size(),
        json_length.empty() ? absl::StrCat(" (is ", kJsonLengthHeader, " missing?)") : "");
  }
  // Without binary data, the body is freed with `text`.
  memory->ShrinkTo(static_cast<int64_t>(result.message.size()) + (uses_body ? before : 0));
  return result;
}

}  // namespace sru::server::rest
