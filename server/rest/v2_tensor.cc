#include "server/rest/v2_tensor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <system_error>
#include <type_traits>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/valid_utf8.h"
#include "server/rest/json_message.h"
#include "server/rest/json_reader.h"

#ifndef ABSL_IS_LITTLE_ENDIAN
#error "values are copied as the processor has them, which the protocol wants little-endian"
#endif

namespace sru::server::rest {

class DataReader;

struct TensorType {
  absl::string_view name;
  size_t bytes;  // of an element; for BYTES those of its length
  size_t json_bytes =
      0;  // most characters of an element, with its comma; 0: it has no form in JSON
  // These read the next value from JSON, and write the value of these bytes as JSON.
  absl::Status (DataReader::*read)(size_t index) = nullptr;
  void (*append)(absl::string_view bytes, std::string* json) = nullptr;
  bool is_text = false;  // the bytes of an element follow its length
};

namespace {

using Kind = JsonReader::Kind;

constexpr size_t kMaxElements = size_t{1} << 40;  // beyond what any message holds
constexpr size_t kDigitsShown = 40;

template <typename T>
void AppendBytes(T value, std::string* raw) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  raw->append(bytes, sizeof(T));
}

// False if the value is not one of T. Values too small for T become zero or what is nearest.
template <typename T>
bool ParseNumber(absl::string_view digits, T* value) {
  const char* const end = digits.data() + digits.size();
  const std::from_chars_result result = std::from_chars(digits.data(), end, *value);
  if constexpr (std::is_floating_point_v<T>) {
    // from_chars does not tell what is too small from what is too large.
    if (result.ec != std::errc()) {
      const std::string text(digits);
      *value = sizeof(T) == sizeof(float) ? std::strtof(text.c_str(), nullptr)
                                          : static_cast<T>(std::strtod(text.c_str(), nullptr));
    }
    return std::isfinite(*value);
  } else {
    if (result.ptr == end) return result.ec == std::errc();
    // A fraction or an exponent, or a sign.
    const std::optional<int64_t> whole = ParseJsonNumber(digits).as_signed;
    *value = static_cast<T>(whole.value_or(0));
    return whole.has_value() && static_cast<int64_t>(*value) == *whole &&
           (std::is_signed_v<T> || *whole >= 0);
  }
}

template <typename T>
std::string Expected() {
  if constexpr (std::is_floating_point_v<T>) {
    return "a number, \"NaN\", \"Infinity\" or \"-Infinity\"";
  } else {
    return absl::StrCat("a whole number from ", +std::numeric_limits<T>::min(), " to ",
                        +std::numeric_limits<T>::max());
  }
}

}  // namespace

// Reads one tensor's array.
class DataReader {
 public:
  DataReader(absl::string_view json, const TensorType& type, const std::vector<int64_t>& shape,
             size_t count, absl::string_view tensor, std::string* raw)
      : reader_(json),
        type_(type),
        shape_(shape),
        count_(static_cast<int64_t>(count)),
        tensor_(tensor),
        raw_(*raw) {}

  absl::Status Read() {
    if (reader_.Next() == Kind::kArray) return ReadLevel(0);
    return Error("", absl::StrCat("an array of ", type_.name));
  }

  template <typename T>
  absl::Status ReadNumber(size_t index) {
    T value{};
    absl::string_view text;
    const Kind kind = reader_.Next();
    const std::string found =
        std::is_floating_point_v<T> && kind == Kind::kString ? reader_.Found() : "";
    if (!found.empty()) {
      if (!reader_.ReadString(&scratch_, &text)) return reader_.status();
      if (text == "NaN") {
        value = std::numeric_limits<T>::quiet_NaN();
      } else if (text == "Infinity" || text == "-Infinity") {
        value = std::numeric_limits<T>::infinity();
        if (text.front() == '-') value = -value;
      } else {
        return ValueError(index, Expected<T>(), found);
      }
    } else {
      if (kind != Kind::kNumber) return ValueError(index, Expected<T>(), reader_.Found());
      if (!reader_.ReadNumber(&text)) return reader_.status();
      if (!ParseNumber(text, &value)) {
        return ValueError(index, Expected<T>(), absl::StrCat(text.substr(0, kDigitsShown)));
      }
    }
    AppendBytes(value, &raw_);
    return absl::OkStatus();
  }

  absl::Status ReadBool(size_t index) {
    bool value = false;
    if (reader_.Next() != Kind::kBool) return ValueError(index, "true or false", reader_.Found());
    if (!reader_.ReadBool(&value)) return reader_.status();
    raw_.push_back(value ? 1 : 0);
    return absl::OkStatus();
  }

  absl::Status ReadText(size_t index) {
    absl::string_view value;
    if (reader_.Next() != Kind::kString) return ValueError(index, "a string", reader_.Found());
    if (!reader_.ReadString(&scratch_, &value)) return reader_.status();
    AppendBytes(static_cast<uint32_t>(value.size()), &raw_);
    raw_.append(value.data(), value.size());
    return absl::OkStatus();
  }

 private:
  absl::Status Error(absl::string_view where, absl::string_view expected) {
    return InvalidArgument(tensor_, ": data", where, ": expected ", expected, ", found ",
                           reader_.Found());
  }

  // Reads the array of dimension `level`: one level of brackets is the whole tensor, or all of its
  // dimensions have theirs. There are at most as many levels as a JSON text may have.
  absl::Status ReadLevel(size_t level) {  // NOLINT(misc-no-recursion)
    if (!reader_.EnterArray()) return reader_.status();
    int64_t values = 0;
    for (; reader_.NextElement(); ++values) {
      const bool is_array = reader_.Next() == Kind::kArray;
      if (level == 0 && values == 0) is_nested_ = shape_.size() > 1 && is_array;
      const bool is_last = !is_nested_ || level + 1 == shape_.size();
      if (!is_last && !is_array) {
        return Error(absl::StrCat("[", index_, "]"),
                     absl::StrCat("an array of dimension ", level + 1, " as before"));
      }
      SRU_RETURN_UNLESS_OK(is_last ? (this->*type_.read)(index_++) : ReadLevel(level + 1));
    }
    if (!reader_.ok()) return reader_.status();
    const int64_t expected = is_nested_ ? shape_[level] : count_;
    if (values == expected) return absl::OkStatus();
    const std::string shape = absl::StrCat("[", absl::StrJoin(shape_, ", "), "]");
    if (!is_nested_) {
      return InvalidArgument(tensor_, ": data: expected ", expected, " values by the shape ", shape,
                             ", found ", values);
    }
    return InvalidArgument(tensor_, ": data: expected arrays of ", expected, " at dimension ",
                           level, " of the shape ", shape, ", found one of ", values);
  }

  absl::Status ValueError(size_t index, absl::string_view expected, absl::string_view found) {
    return InvalidArgument(tensor_, ": data[", index, "]: expected ", expected, " (", type_.name,
                           "), found ", found);
  }

  JsonReader reader_;
  const TensorType& type_;
  const std::vector<int64_t>& shape_;
  const int64_t count_;
  const absl::string_view tensor_;
  std::string& raw_;
  bool is_nested_ = false;
  std::string scratch_;
  size_t index_ = 0;  // of the next value
};

namespace {

template <typename T>
T ReadBytes(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void AppendNumber(absl::string_view bytes, std::string* json) {
  const T value = ReadBytes<T>(bytes.data());
  char digits[32];
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) {
      json->append(std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
      return;
    }
    if (value == 0 && std::signbit(value)) {
      json->append("-0.0");  // as an integer, -0 would be read as 0
      return;
    }
  }
  std::to_chars_result result = std::to_chars(digits, digits + sizeof(digits), value);
  if constexpr (std::is_same_v<T, float>) {
    // Readers that know doubles only round twice. For a few values that would give a neighbor.
    double as_double = 0;
    std::from_chars(digits, result.ptr, as_double);
    if (static_cast<float>(as_double) != value) {
      result = std::to_chars(digits, digits + sizeof(digits), static_cast<double>(value));
    }
  }
  json->append(digits, static_cast<size_t>(result.ptr - digits));
}

void AppendBool(absl::string_view bytes, std::string* json) {
  json->append(bytes[0] != 0 ? "true" : "false");
}

void AppendText(absl::string_view bytes, std::string* json) {
  AppendJsonString(bytes.substr(sizeof(uint32_t)), json);
}

template <typename T>
constexpr TensorType Numbers(absl::string_view name, size_t json_bytes) {
  return {name, sizeof(T), json_bytes, &DataReader::ReadNumber<T>, &AppendNumber<T>};
}

constexpr TensorType kTypes[] = {
    {"BOOL", 1, 6, &DataReader::ReadBool, &AppendBool},
    Numbers<uint8_t>("UINT8", 4),
    Numbers<uint16_t>("UINT16", 6),
    Numbers<uint32_t>("UINT32", 11),
    Numbers<uint64_t>("UINT64", 21),
    Numbers<int8_t>("INT8", 5),
    Numbers<int16_t>("INT16", 7),
    Numbers<int32_t>("INT32", 12),
    Numbers<int64_t>("INT64", 21),
    {"FP16", 2},
    Numbers<float>("FP32", 25),
    Numbers<double>("FP64", 25),
    {"BF16", 2},
    {"BYTES", sizeof(uint32_t), 3, &DataReader::ReadText, &AppendText, /*is_text=*/true},
};

absl::Status CheckStrings(absl::string_view raw, size_t count, absl::string_view tensor) {
  for (size_t i = 0; i < count; ++i) {
    const size_t size = raw.size() < 4 ? 0 : ReadBytes<uint32_t>(raw.data());
    if (raw.size() < 4 || raw.size() - 4 < size) {
      return absl::InternalError(absl::StrCat(tensor, ": the bytes end within element ", i));
    }
    const absl::string_view text = raw.substr(4, size);
    if (!IsValidUtf8({text.data(), text.size()})) {
      return InvalidArgument(tensor, ": element ", i,
                             " is not UTF-8, as a JSON string must be: ask for ",
                             "this output with the parameter binary_data");
    }
    raw.remove_prefix(4 + size);
  }
  if (!raw.empty()) {
    return absl::InternalError(
        absl::StrCat(tensor, ": ", raw.size(), " bytes follow the last element"));
  }
  return absl::OkStatus();
}

}  // namespace

const TensorType* FindTensorType(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [name](const TensorType& one) { return one.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string TensorTypeNames() {
  return absl::StrJoin(kTypes, ", ", [](std::string* out, const TensorType& type) {
    absl::StrAppend(out, type.name);
  });
}

size_t TensorBytesBound(const TensorType& type, size_t count, size_t string_bytes) {
  return count * type.bytes + (type.is_text ? string_bytes : 0);
}

size_t JsonBytesBound(size_t raw_bytes, const TensorType& type, size_t count) {
  // A byte of a string takes at most six characters, \u0001.
  return 2 + (type.is_text ? 6 * raw_bytes : 0) + count * type.json_bytes;
}

absl::StatusOr<size_t> CountElements(const std::vector<int64_t>& shape, size_t limit,
                                     absl::string_view tensor) {
  size_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) {
      return InvalidArgument(tensor, ": shape [", absl::StrJoin(shape, ", "),
                             "]: expected no negative size, found ", size);
    }
  }
  if (std::count(shape.begin(), shape.end(), 0) > 0) return size_t{0};
  for (const int64_t size : shape) {
    if (static_cast<uint64_t>(size) > limit / count) {
      return InvalidArgument(tensor, ": shape [", absl::StrJoin(shape, ", "),
                             "]: expected at most ", limit, " elements, found more");
    }
    count *= static_cast<size_t>(size);
  }
  return count;
}

absl::Status ReadTensorData(absl::string_view json, const TensorType& type,
                            const std::vector<int64_t>& shape, absl::string_view tensor,
                            std::string* raw) {
  const absl::StatusOr<size_t> count = CountElements(shape, kMaxElements, tensor);
  if (!count.ok()) return count.status();
  if (type.json_bytes == 0) {
    return InvalidArgument(tensor, ": ", type.name, " has no form in JSON: send it as binary data");
  }
  return DataReader(json, type, shape, *count, tensor, raw).Read();
}

absl::Status CheckTensorData(absl::string_view raw, const TensorType& type, size_t count,
                             absl::string_view tensor) {
  if (type.json_bytes == 0) {
    return InvalidArgument(tensor, ": ", type.name,
                           " has no form in JSON: ask for it with the parameter binary_data");
  }
  if (type.is_text) return CheckStrings(raw, count, tensor);
  const size_t bytes = type.bytes;
  if (raw.size() / bytes == count && raw.size() % bytes == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(tensor, ": expected ", count, " elements of ", bytes,
                                          " bytes, found ", raw.size(), " bytes"));
}

absl::string_view AppendTensorPart(absl::string_view raw, const TensorType& type, size_t most,
                                   std::string* json) {
  const size_t begin = json->size();
  while (!raw.empty() && json->size() - begin < most) {
    const size_t bytes = type.bytes + (type.is_text ? ReadBytes<uint32_t>(raw.data()) : 0);
    type.append(raw.substr(0, bytes), json);
    raw.remove_prefix(bytes);
    if (!raw.empty()) json->push_back(',');
  }
  return raw;
}

}  // namespace sru::server::rest
