#include "server/open_inference/tensors/infer_parameters.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace sru::server::open_inference {
namespace {

constexpr absl::string_view kPriority = "priority";
constexpr absl::string_view kTimeout = "timeout";
constexpr absl::string_view kSkipEmpty = "skip_empty";
// Triton's wish for a mark on the last answer to a request of a stream; every answer is the last.
constexpr absl::string_view kFinalResponse = "triton_enable_empty_final_response";

const char* KindOf(const InferParameter& parameter) {
  static constexpr const char* kKinds[] = {"nothing",  "a bool",   "a number",
                                           "a string", "a double", "a number"};
  static_assert(std::size(kKinds) == std::variant_size_v<decltype(InferParameter::value)>);
  return kKinds[parameter.value.index()];
}

template <typename... Args>
absl::Status Wrong(const InferParameter& parameter, const Args&... what) {
  return InvalidArgument("parameters[", parameter.name, "]: ", what...);
}

// A number of either kind; empty for anything else, and for one beyond int64.
std::optional<int64_t> NumberOf(const InferParameter& parameter) {
  if (const auto* number = std::get_if<int64_t>(&parameter.value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&parameter.value)) {
    if (*number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return static_cast<int64_t>(*number);
    }
  }
  return std::nullopt;
}

absl::StatusOr<v1::Priority> ReadPriority(const InferParameter& parameter) {
  static constexpr std::pair<absl::string_view, v1::Priority> kLevels[] = {
      {"", v1::PRIORITY_NORMAL},  // the server's default
      {"high", v1::PRIORITY_HIGH},
      {"normal", v1::PRIORITY_NORMAL},
      {"low", v1::PRIORITY_LOW}};
  if (const std::optional<int64_t> number = NumberOf(parameter); number.has_value()) {
    if (*number >= 0 && *number <= 3) return kLevels[*number].second;
    return Wrong(parameter, *number, " is out of range, expected 1 (high), 2 (normal) or 3 (low)");
  }
  if (const auto* name = std::get_if<absl::string_view>(&parameter.value)) {
    for (const auto& [known, level] : kLevels) {
      if (*name == known && !known.empty()) return level;
    }
    return Wrong(parameter, Quoted(*name), " is unknown, expected high, normal or low");
  }
  return Wrong(parameter, "expected a number or a string, found ", KindOf(parameter));
}

absl::StatusOr<absl::Duration> ReadTimeout(const InferParameter& parameter) {
  const std::optional<int64_t> number = NumberOf(parameter);
  if (!number.has_value() || *number < 0) {
    return Wrong(parameter, "expected microseconds, a number of at least 0, found ",
                 number.has_value() ? absl::StrCat(*number) : KindOf(parameter));
  }
  if (*number == 0) return absl::InfiniteDuration();
  return absl::Microseconds(*number);
}

absl::StatusOr<bool> ReadBool(const InferParameter& parameter) {
  if (const bool* const value = std::get_if<bool>(&parameter.value)) return *value;
  return Wrong(parameter, "expected a bool, found ", KindOf(parameter));
}

}  // namespace

bool IsCommonParameter(absl::string_view name) {
  return name == kPriority || name == kTimeout || name == kSkipEmpty || name == kFinalResponse;
}

absl::StatusOr<CommonParameters> ReadCommonParameters(const InferRequest& request) {
  CommonParameters common;
  for (const InferParameter& parameter : request.parameters) {
    if (parameter.name == kPriority) {
      SRU_ASSIGN_OR_RETURN(common.priority, ReadPriority(parameter));
    } else if (parameter.name == kTimeout) {
      SRU_ASSIGN_OR_RETURN(common.timeout, ReadTimeout(parameter));
    } else if (parameter.name == kSkipEmpty) {
      SRU_ASSIGN_OR_RETURN(common.skip_empty, ReadBool(parameter));
    }
  }
  return common;
}

absl::Status ReadField(const InferParameter& parameter, const std::vector<absl::string_view>& known,
                       google::protobuf::Message* request) {
  if (std::find(known.begin(), known.end(), parameter.name) == known.end()) {
    return InvalidArgument("parameters: ", Quoted(parameter.name), " is unknown, expected one of ",
                           absl::StrJoin(known, ", "), known.empty() ? "" : ", ", kPriority, ", ",
                           kTimeout, ", ", kSkipEmpty);
  }
  const google::protobuf::Reflection& fields = *request->GetReflection();
  const auto* const field = request->GetDescriptor()->FindFieldByName(std::string(parameter.name));
  if (field->type() == google::protobuf::FieldDescriptor::TYPE_BOOL) {
    SRU_ASSIGN_OR_RETURN(const bool value, ReadBool(parameter));
    fields.SetBool(request, field, value);
    return absl::OkStatus();
  }
  if (field->type() == google::protobuf::FieldDescriptor::TYPE_ENUM) {
    // UNKNOWN_SKIP of the field `unknown` is "skip"; the first value is that of no parameter.
    const auto* const name = std::get_if<absl::string_view>(&parameter.value);
    if (name == nullptr) return Wrong(parameter, "expected a string, found ", KindOf(parameter));
    const google::protobuf::EnumDescriptor& type = *field->enum_type();
    const std::string prefix = absl::StrCat(absl::AsciiStrToUpper(field->name()), "_");
    std::vector<std::string> values;
    for (int i = 1; i < type.value_count(); ++i) {
      values.push_back(absl::AsciiStrToLower(absl::StripPrefix(type.value(i)->name(), prefix)));
      if (values.back() != *name) continue;
      fields.SetEnumValue(request, field, type.value(i)->number());
      return absl::OkStatus();
    }
    return Wrong(parameter, Quoted(*name), " is unknown, expected one of ",
                 absl::StrJoin(values, ", "));
  }
  const std::optional<int64_t> number = NumberOf(parameter);
  if (field->type() == google::protobuf::FieldDescriptor::TYPE_FLOAT) {
    const double* const value = std::get_if<double>(&parameter.value);
    if (value == nullptr && !number.has_value()) {
      return Wrong(parameter, "expected a number, found ", KindOf(parameter));
    }
    fields.SetFloat(request, field, static_cast<float>(value != nullptr ? *value : *number));
    return absl::OkStatus();
  }
  if (!number.has_value()) {
    return Wrong(parameter, "expected a whole number, found ", KindOf(parameter));
  }
  if (*number < std::numeric_limits<int32_t>::min() ||
      *number > std::numeric_limits<int32_t>::max()) {
    return Wrong(parameter, *number, " is out of range");
  }
  fields.SetInt32(request, field, static_cast<int32_t>(*number));
  return absl::OkStatus();
}

}  // namespace sru::server::open_inference
